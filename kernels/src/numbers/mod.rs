//! Fourier transforms, random numbers and quantisation.

mod fft;

pub use fft::{Fft, Transform};
