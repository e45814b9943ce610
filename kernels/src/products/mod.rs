//! Matrix products.
//!
//! [`matmul`](fn@matmul) returns a builder. Its methods add stages of an [`epilogue`] and select a
//! [`prologue`]; one of its launches queues a single kernel:
//!
//! | launch | operands |
//! |---|---|
//! | [`Matmul::launch`] | two matrices of f16, bf16, f32 (exact or tf32), f64, e4m3, e5m2 or i8 |
//! | [`Matmul::launch_batched`] | two batches of matrices |
//! | [`Matmul::launch_grouped`] | groups of rows that begin anywhere, and a matrix for each group |
//! | [`Matmul::launch_packed`] | activations, and [packed weights](packed) of 1 to 8 bits with scales of groups |
//! | [`Matmul::launch_grouped_packed`] | groups of rows, and packed weights of each group |
//! | [`Matmul::launch_vector`] | a row of activations, and weights or packed weights of shape (outputs, inputs) |
//! | [`Matmul::launch_scaled`] | e4m3 or e5m2 with scales of 1 x 128, 128 x 128 and 128 x 1 elements |
//!
//! Integers with scales are `matmul().scale_rows(..).scale_columns(..)`. Few tiles are divided
//! along the terms ([`Share`]); the parts are added in their order, so that the result of a
//! configuration is the same in each launch.
//!
//! ```
//! use cutlet as ct;
//! use cutlet::prelude::*;
//! use cutlet_kernels::matmul;
//!
//! let device = ct::Device::cpu();
//! let stream = device.default_stream();
//! let (a, b) = (device.full([3, 8], f16::ONE)?, device.full([8, 4], f16::ONE)?);
//! let (bias, residual) = (device.full([4], 2.0f32)?, device.full([3, 4], f16::ONE)?);
//! let mut c = device.zeros::<f16, 2>([3, 4])?;
//! matmul().bias(bias.view()).relu().residual(residual.view()).launch(&stream, a.view(), b.view(), c.view_mut())?;
//! assert_eq!(c.to_vec()?[0].to_f32(), 11.0);
//! # Ok::<(), ct::Error>(())
//! ```

pub mod epilogue;
mod fragments;
pub mod gguf;
mod matmul;
pub mod packed;
pub mod prologue;
pub mod quantized;
mod scaled;
mod vector;

pub use matmul::{Configuration, Factor, Matmul, Precision, Share, Workspace, matmul};
pub use scaled::Float8;
pub use vector::{Columns, VectorWeights};
