//! Complex numbers in kernels: tiles and scalars as parts, arrays of pairs in memory, and Fourier
//! transforms.

mod array;
mod fft;
mod tile;

pub use array::{ComplexArray, ComplexArrayMut};
pub use fft::{FftElement, fft, ifft};
