//! Fourier transforms, random numbers and quantisation.
