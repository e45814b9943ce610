//! Compared kernels that are no example of their own.

use cutlet as ct;
use cutlet::element::CastTo;
use cutlet::packed::PackedArray;
use cutlet::prelude::*;

use super::examples::quantized_matmul::{Extents, unpacked};

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

/// Random numbers of mean 0 and variance 1, by the hardware's logarithm, sine and cosine, as cuRAND makes them.
pub fn normals(y: ArrayMut<f32, 1>, seed: Scalar<u64>, tile: usize) {
    let i = ct::bid(0);
    let fast = ct::FloatMode::new().approx();
    y.store(i, ct::with_mode(fast, || ct::random::Philox::new(seed, 0).normal::<f32, 1>(i, [tile])));
}

/// Random numbers from 0 to below 1.
pub fn uniforms(y: ArrayMut<f32, 1>, seed: Scalar<u64>, tile: usize) {
    let i = ct::bid(0);
    y.store(i, ct::random::Philox::new(seed, 0).uniform::<f32, 1>(i, [tile]));
}

/// What a block adds up: tiles at a distance of the number of blocks.
fn part(x: Array<f32, 1>, tile: usize) -> Tile<f32, 1> {
    let every = ct::range(ct::bid(0), x.num_tiles(0, [tile])).step(ct::num_blocks(0));
    ct::fold(every, ct::zeros::<f32, 1>([tile]), |sum, i| sum + x.load(i, [tile])).sum(0)
}

/// The sum of a vector, to which every block adds its part.
pub fn sum_atomic(x: Array<f32, 1>, total: ArrayMut<f32, 1>, tile: usize) {
    total.atomic_store_add(0, part(x, tile));
}

/// The part of each block, for [`sum_of_parts`].
pub fn sum_parts(x: Array<f32, 1>, parts: ArrayMut<f32, 1>, tile: usize) {
    parts.store(ct::bid(0), part(x, tile));
}

/// The sum of all parts.
pub fn sum_of_parts(parts: Array<f32, 1>, total: ArrayMut<f32, 1>, tile: usize) {
    total.store(0, parts.load(0, [tile]).sum(0));
}

/// A zero where parts are added up.
pub fn zero_sum(total: ArrayMut<f32, 1>) {
    total.store(0, ct::zeros::<f32, 1>([1]));
}

/// Each row of a matrix in order, one row a block.
pub fn sort(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
    let row = (ct::bid(0), 0);
    y.store(row, x.load(row, [1, tile]).sort(1));
}

/// The `k` largest of each row, and where they are; some rows a block.
pub fn top_k(
    x: Array<f32, 2>,
    value: ArrayMut<f32, 2>,
    index: ArrayMut<i32, 2>,
    ([rows, columns], k): ([usize; 2], usize),
) {
    let at = (ct::bid(0), 0);
    let (largest, places) = x.load(at, [rows, columns]).top_k(1, k);
    value.store(at, largest);
    index.store(at, places);
}

/// `quantized_matmul` for few rows: a block has a part of the sums of its tile. Parts lie in the first of three axes.
pub fn quantized_parts(
    x: Array<f16, 2>,
    weights: PackedArray<ct::packed::u4, 2>,
    scales: Array<f16, 2>,
    parts: ArrayMut<f32, 3>,
    extents: Extents,
) {
    let ([tm, tn, tk], _) = extents;
    let (i, j, part) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let steps = x.num_tiles(1, [tm, tk]).ceil_div(ct::num_blocks(2));
    let every = ct::range(part * steps, ((part + 1) * steps).min(x.num_tiles(1, [tm, tk])));
    let sum = ct::fold(every, ct::zeros::<f32, 2>([tm, tn]), |sum, k| {
        ct::mma(x.load((i, k), [tm, tk]), unpacked(weights, scales, (k, j), extents), sum)
    });
    parts.store((part, i, j), sum.unsqueeze(0));
}

/// The sums of these parts, a tile a block.
pub fn quantized_sum(parts: Array<f32, 3>, y: ArrayMut<f16, 2>, [count, tm, tn]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    y.store((i, j), parts.load((0, i, j), [count, tm, tn]).sum(0).squeeze(0).cast::<f16>());
}

/// What gradients of queries were added up to, times the scale, as numbers of their type.
pub fn narrowed<T: Element>(sums: Array<f32, 4>, dq: ArrayMut<T, 4>, scale: Scalar<f32>, [rows, dim]: [usize; 2])
where
    f32: CastTo<T>,
{
    let at = (ct::bid(2), ct::bid(1), ct::bid(0), 0);
    dq.store(at, (sums.load(at, [1, 1, rows, dim]) * (scale * std::f32::consts::LN_2)).cast::<T>());
}
