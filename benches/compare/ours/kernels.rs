//! Compared kernels that are no example of their own.

use cutlet as ct;
use cutlet::prelude::*;

/// The sum of two vectors, every access by a tile of indices.
pub fn vadd_gather(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
    let at = ct::bid(0) * tile + ct::arange(tile, 0, 1);
    c.scatter(at, a.gather(at) + b.gather(at));
}

/// `y[i] = x[at[i]]`.
pub fn gather(x: Array<f32, 1>, at: Array<i32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0);
    y.store(i, x.gather(at.load(i, [tile])));
}

/// `y[at[i]] = x[i]`.
pub fn scatter(x: Array<f32, 1>, at: Array<i32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0);
    y.scatter(at.load(i, [tile]), x.load(i, [tile]));
}

/// Prefix sums of each row of a matrix, one row a block.
pub fn cumsum(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
    let row = (ct::bid(0), 0);
    y.store(row, x.load(row, [1, tile]).cumsum(1));
}

/// Zeros where counts are added up.
pub fn zero(counts: ArrayMut<i32, 1>, tile: usize) {
    counts.store(ct::bid(0), ct::zeros::<i32, 1>([tile]));
}
