//! Fourier transforms, random numbers and quantisation.

mod fft;
mod hadamard;
mod quantize;
mod random;

pub use fft::{Fft, Transform};
pub use hadamard::hadamard;
pub use quantize::{
    BlockScale, Code, Float8, Rounded, Scales, dequantize_blocks, dequantize_e5m6, dequantize_groups, dequantize_nvfp4,
    nvfp4_tensor_scale, quantize_blocks, quantize_e5m6, quantize_groups, quantize_nvfp4, quantize_rows,
};
pub use random::{Distribution, Seed, fill_integers, fill_random};
