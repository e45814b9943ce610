//! Ready kernels of [cutlet](https://docs.rs/cutlet), as functions of views.
//!
//! | function | computes | of |
//! |---|---|---|
//! | [`softmax`], [`norms::log_softmax`] | exponentials over their sum, with gradients | the last axis |
//! | [`rms_norm`], [`layer_norm`] | normalised rows, with residual and gradients | the last axis |
//! | [`rotary`], [`norms::rotary_pair`] | rotary position embedding, with gradients | the last axis, by halves or by pairs |
//! | [`matmul`](fn@matmul) | products with prologues and epilogues: of batches, groups, scaled and packed operands | matrices |
//! | [`attention`] | prefill, decode, gradients, grouped queries | (batch, heads, tokens, dim), packed sequences, pages |
//! | [`norms::group_norm`] | normalised groups of channels, with gradients | images |
//! | [`norms::gated`] | SwiGLU and GeGLU, with gradients | arrays |
//! | [`losses::CrossEntropy`] | losses of logits or of a linear layer, with gradients | matrices |
//! | [`losses::divergence`], [`losses::Grpo`], [`losses::Dpo`] | losses of students and policies, with gradients | matrices, tokens |
//! | [`moe::Router`], [`moe::Alignment`], [`moe::Experts`] | mixture of experts, with gradients | tokens |
//! | [`quantized`] | products with weights of 4 or 8 bits and a scale for each group | matrices |
//! | [`order`] | sorts, prefix sums, compaction, histograms, the largest elements, sampled tokens | vectors, and rows of matrices |
//! | [`numbers`] | Fourier and Hadamard transforms, random numbers, quantisation | rows and matrices |
//! | [`gguf`] | products with weights in the blocks q8_0 and q4_K of GGUF files | matrices |
//!
//! Elements are f32, f16 or bf16; all are computed with in f32. Views have any strides. Work is
//! queued on a stream.

#![deny(unsafe_code)]

pub mod attention;
mod check;
pub mod choice;
pub mod images;
pub mod inspect;
mod launch;
pub mod linalg;
pub mod losses;
pub mod moe;
pub mod norms;
mod number;
pub mod numbers;
pub mod order;
pub mod products;
pub mod recurrent;

pub use attention::Attention;
pub use launch::{batch_invariant, overlapped};
pub use norms::{Pairs, layer_norm, rms_norm, rotary, softmax};
pub use number::Number;
pub use products::{gguf, matmul, quantized};
