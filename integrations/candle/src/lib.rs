//! Operations for [candle](https://github.com/huggingface/candle) that are kernels of [cutlet](https://docs.rs/cutlet).
//!
//! | function | operation | of |
//! |---|---|---|
//! | [`softmax`] | [`Softmax`] | the last axis |
//! | [`rms_norm`] | [`RmsNorm`] | the last axis, with a weight |
//! | [`attention`] | [`Attention`] | full or causal, grouped queries, keys of earlier positions |
//! | [`layer_norm`] | [`KernelOp`] | the last axis, with weight and bias |
//! | [`rotary`] | [`KernelOp`] | (batch, heads, tokens, dim) |
//! | [`QuantizedWeight`], a `Module` | [`QuantizedMatmul`] | weights of 4 or 8 bits with a scale for each group |
//! | [`GgufWeight`], a `Module` | [`GgufMatmul`] | weights in the blocks q8_0 and q4_K of GGUF files |
//!
//! [`KernelOp`] makes an operation of a kernel of one's own, in ten lines.
//!
//! Tensors are f32, f16 or bf16; all are computed with in f32. On the CPU the interpreter of cutlet
//! runs the kernels: it defines their results, and is slow. With the feature `cuda` they run on a
//! GPU, over candle's memory and on candle's stream: nothing is copied, and nothing waits on the
//! host. The operations accept each layout that kernels can read directly, and report others with
//! shapes and strides; the functions copy such tensors first.
//!
//! Each operation has a backward pass, by kernels, too. That of attention is for at most 256
//! numbers of a query.

#![deny(unsafe_code)]

mod attention;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod gguf;
mod gradients;
mod kernel_op;
mod layer_norm;
mod number;
mod place;
mod quantized;
mod rms_norm;
mod rotary;
mod softmax;

pub use attention::{Attention, attention};
pub use cutlet_kernels::gguf::Blocks;
pub use gguf::{GgufMatmul, GgufWeight};
pub use kernel_op::KernelOp;
pub use layer_norm::layer_norm;
pub use quantized::{Bits, QuantizedMatmul, QuantizedWeight};
pub use rms_norm::{RmsNorm, rms_norm};
pub use rotary::{Pairs, rotary};
pub use softmax::{Softmax, softmax};

/// The rows of a tensor along its last axis, as a matrix.
fn rows_of(x: &candle_core::Tensor) -> candle_core::Result<candle_core::Tensor> {
    let columns = x.dim(candle_core::D::Minus1)?;
    x.reshape((x.elem_count() / columns.max(1), columns))
}

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
