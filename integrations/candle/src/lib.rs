//! Operations for [candle](https://github.com/huggingface/candle) that are kernels of [cutlet](https://docs.rs/cutlet).
//!
//! | function | operation | of |
//! |---|---|---|
//! | [`softmax`] | [`Softmax`] | the last axis |
//! | [`rms_norm`] | [`RmsNorm`] | the last axis, with a weight |
//! | [`attention`] | [`Attention`] | full or causal, grouped queries, keys of earlier positions |
//! | [`QuantizedWeight`], a `Module` | [`QuantizedMatmul`] | weights of 4 or 8 bits with a scale for each group |
//!
//! Tensors are f32, f16 or bf16; all are computed with in f32. On the CPU the interpreter of cutlet runs the kernels: it is
//! the definition of what they do, not fast. With the feature `cuda` they run on a GPU, over candle's memory and on candle's
//! stream: nothing is copied, and nothing waits on the host. The operations take every layout that kernels can read as it is
//! and say with shapes and strides what they cannot; the functions copy then first.
//!
//! There are no backward passes.

#![deny(unsafe_code)]

mod attention;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod number;
mod place;
mod quantized;
mod rms_norm;
mod softmax;

pub use attention::{Attention, attention};
pub use quantized::{Bits, QuantizedMatmul, QuantizedWeight};
pub use rms_norm::{RmsNorm, rms_norm};
pub use softmax::{Softmax, softmax};

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
