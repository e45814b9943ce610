//! The kernels, for the build script; the program does not need them.

use cutlet as ct;
use cutlet::prelude::*;

/// Elements of a tile.
pub const TILE: usize = 1024;

/// `y = a x + y`.
pub fn saxpy(a: Scalar<f32>, x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0);
    y.store(i, x.load(i, [tile]) * a + y.load(i, [tile]));
}
