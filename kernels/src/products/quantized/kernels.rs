//! The kernels: a product of one piece, and one of parts, whose sums another kernel adds up. The
//! weights as numbers.

use cutlet as ct;
use cutlet::packed::{Narrow, PackedArray};
use cutlet::prelude::*;

use crate::Number;

/// Extents of a tile: rows, outputs, inputs; and how many inputs share a scale. Of these two and of
/// inputs of a tile one is a multiple of the other.
pub type Extents = ([usize; 3], usize);

/// A tile of weights, as numbers.
fn unpacked<T: Number, F: Narrow>(
    weights: PackedArray<F, 2>,
    scales: Array<T, 2>,
    (k, j): (Scalar<i32>, Scalar<i32>),
    ([_, tn, tk], group): Extents,
) -> Tile<T, 2> {
    let codes = weights.load((k, j), [tk, tn]).cast::<T>();
    if group >= tk {
        return codes * scales.load((k / (group / tk), j), [1, tn]);
    }
    let scales = scales.load((k, j), [tk / group, tn]).unsqueeze(1);
    (codes.reshape([tk / group, group, tn]) * scales).reshape([tk, tn])
}

/// A tile of the weights as numbers.
pub fn numbers<T: Number, F: Narrow>(
    weights: PackedArray<F, 2>,
    scales: Array<T, 2>,
    result: ArrayMut<T, 2>,
    extents: Extents,
) {
    let at = (ct::bid(1), ct::bid(0));
    result.store(at, unpacked(weights, scales, at, extents));
}

/// Returns the sum of these tiles of inputs for the tile (i, j) of the result.
fn sum<T: Number, F: Narrow>(
    (x, weights, scales): (Array<T, 2>, PackedArray<F, 2>, Array<T, 2>),
    (i, j): (Scalar<i32>, Scalar<i32>),
    (first, end): (Scalar<i32>, Scalar<i32>),
    extents: Extents,
) -> Tile<f32, 2> {
    let ([tm, tn, tk], _) = extents;
    // A converted operand is best the left one of tensor cores: the transposes are multiplied.
    ct::fold(ct::range(first, end), ct::zeros::<f32, 2>([tn, tm]), |sum, k| {
        ct::mma(unpacked(weights, scales, (k, j), extents).transpose(), x.load((i, k), [tm, tk]).transpose(), sum)
    })
    .transpose()
}

/// A tile of the result a block.
pub fn whole<T: Number, F: Narrow>(
    x: Array<T, 2>,
    weights: PackedArray<F, 2>,
    scales: Array<T, 2>,
    y: ArrayMut<T, 2>,
    extents: Extents,
) {
    let ([tm, _, tk], _) = extents;
    let at = (ct::bid(0), ct::bid(1));
    let all = (ct::scalar(0), x.num_tiles(1, [tm, tk]));
    y.store(at, sum((x, weights, scales), at, all, extents).cast::<T>());
}

/// A part of the sums of a tile a block; the blocks' third axis counts parts, as the first axis of
/// the result.
pub fn part<T: Number, F: Narrow>(
    x: Array<T, 2>,
    weights: PackedArray<F, 2>,
    scales: Array<T, 2>,
    parts: ArrayMut<f32, 3>,
    extents: Extents,
) {
    let ([tm, _, tk], _) = extents;
    let (i, j, part) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let tiles = x.num_tiles(1, [tm, tk]);
    let each = tiles.ceil_div(ct::num_blocks(2));
    let mine = (part * each, ((part + 1) * each).min(tiles));
    parts.store((part, i, j), sum((x, weights, scales), (i, j), mine, extents).unsqueeze(0));
}

/// The sums of these parts, a tile a block.
pub fn sum_of_parts<T: Number>(parts: Array<f32, 3>, y: ArrayMut<T, 2>, [count, tm, tn]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    y.store((i, j), parts.load((0, i, j), [count, tm, tn]).sum(0).squeeze(0).cast::<T>());
}
