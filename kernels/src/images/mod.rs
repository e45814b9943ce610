//! Convolutions, pooling and resampling of images.
//!
//! | function | computes |
//! |---|---|
//! | [`Convolution::forward`] | a convolution, with bias, residual and activation |
//! | [`Convolution::input_gradient`], [`Convolution::weight_gradient`] | its gradients |
//! | [`max_pool`], [`average_pool`] | the largest element, and the mean, of windows |
//! | [`resize_bilinear`] | images of another size, by bilinear interpolation |
//!
//! Images are arrays (batch, rows, columns, channels): NHWC. Elements are f32, f16 or bf16; all
//! sums are in f32.

mod convolution;
mod depthwise;
mod gradients;
mod grouped;
mod implicit_gemm;
mod pooling;
mod resize;
mod taps;

pub use convolution::Convolution;
pub use pooling::{Window, average_pool, max_pool};
pub use resize::resize_bilinear;
