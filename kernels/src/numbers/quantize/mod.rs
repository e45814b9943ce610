//! Quantisation and dequantisation with scales of rows, groups and blocks.

mod blocks;
mod e5m6;
mod groups;
mod nvfp4;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::random::Philox;

use super::random::Seed;

pub use blocks::{BlockScale, Float8, Scales, dequantize_blocks, quantize_blocks, quantize_rows};
pub use e5m6::{dequantize_e5m6, quantize_e5m6};
pub use groups::{Code, dequantize_groups, quantize_groups};
pub use nvfp4::{dequantize_nvfp4, nvfp4_tensor_scale, quantize_nvfp4};

/// Rounding of a quantisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounded {
    /// To the nearest code, ties to the even one.
    #[default]
    Nearest,
    /// To one of two adjacent codes, with probabilities such that the mean is exact. The random
    /// bits are those of [`ct::random::Philox`] at row and column.
    Stochastic(Seed),
}

impl Rounded {
    /// Arguments of a kernel: whether the rounding is stochastic, and seed and offset.
    fn args(self) -> (bool, (u64, u64)) {
        match self {
            Rounded::Nearest => (false, (0, 0)),
            Rounded::Stochastic(Seed { seed, offset }) => (true, (seed, offset)),
        }
    }
}

/// Random bits of a tile.
fn bits((seed, offset): (Scalar<u64>, Scalar<u64>), at: [Scalar<i32>; 2], shape: [usize; 2]) -> Tile<u32, 2> {
    Philox::new(seed, offset).bits(at, shape)
}

/// 1 for a largest magnitude of 0.
fn scale_of(largest: Tile<f32, 4>, of_code: f32) -> Tile<f32, 4> {
    largest.gt(0.0).select(largest / of_code, ct::ones(largest.shape()))
}

/// Extents of blocks in a tile: (row of blocks, row, column of blocks, column).
fn apart([rows, columns]: [usize; 2], [block_rows, block_columns]: [usize; 2]) -> [usize; 4] {
    [rows / block_rows, block_rows, columns / block_columns, block_columns]
}
