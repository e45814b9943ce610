//! Sums of products of weights with few rows of inputs on tensor cores, from registers alone.
//!
//! A thread loads 32 adjacent inputs of an output. A sum does not depend on the order of its terms:
//! in the order of [`in_order`], these inputs are elements of the thread in fragments of
//! `mma.m16n8k16`. So neither weights nor inputs are exchanged between threads. Warps have
//! different inputs, and add their sums at the end.

use cutlet as ct;
use cutlet::element::Element;
use cutlet::layout::{Modes, local, spatial};
use cutlet::prelude::*;

use crate::Number;

/// Inputs of a batch of products: 32 of each of four lanes.
pub const DEPTH: usize = 128;

/// Outputs of a tile block at least: the rows of an instruction.
pub const OUTPUTS: usize = 16;

/// Rows of inputs at most. More of them would not fit in registers.
pub const ROWS: usize = 16;

/// Returns the layout of a tile of (rows, inputs) in which a thread has 32 adjacent inputs.
fn layout([rows, k]: [usize; 2], warps: usize) -> Modes {
    let extents = |extents: [usize; 2]| extents.map(|extent| extent as i64).to_vec();
    let (of_warps, of_registers) = (spatial(extents([1, warps])), local(extents([rows / 8, k / DEPTH / warps])));
    of_warps * of_registers * spatial(extents([8, 4])) * local(extents([1, 32]))
}

/// Returns a tile of (rows, inputs) as a batch of (rows, 128 inputs). Of the 32 inputs of a lane,
/// each step of a tensor core has four.
fn in_order<T: Element>(tile: Tile<T, 2>) -> Tile<T, 3> {
    let [rows, k] = tile.shape();
    let groups = k / DEPTH;
    tile.reshape([rows, groups, 4, 8, 2, 2]).permute([1, 0, 3, 4, 2, 5]).reshape([groups, rows, DEPTH])
}

/// Returns the sums of 128 products of weights of (outputs, inputs) with `x` of (rows, inputs), of
/// shape (inputs / 128, outputs, rows), times scales of shape (inputs / 128, outputs). Rows are 8
/// or 16.
pub fn sums<T: Number>(weights: Tile<T, 2>, scales: Tile<f32, 2>, x: Tile<T, 2>, warps: usize) -> Tile<f32, 3> {
    let ([n, k], [m, _]) = (weights.shape(), x.shape());
    let weights = in_order(weights.with_layout(layout([n, k], warps)));
    let x = in_order(x.with_layout(layout([m, k], warps))).permute([0, 2, 1]);
    ct::mma(weights, x, ct::zeros::<f32, 3>([k / DEPTH, n, m])) * scales.unsqueeze(2)
}
