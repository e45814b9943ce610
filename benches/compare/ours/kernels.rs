//! Compared kernels that are no example of their own.

use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::packed::PackedArray;
use cutlet::prelude::*;

use super::examples::quantized_matmul::{Extents, unpacked};

/// The sum of two vectors, every access by a tile of indices.
pub fn vadd_gather(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
    let at = ct::bid(0) * tile + ct::arange(0..tile);
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

/// Random numbers of mean 0 and variance 1, by the hardware's logarithm, sine and cosine, as cuRAND
/// makes them.
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

/// Returns the sum of a block over tiles at a distance of the number of blocks.
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

/// `quantized_matmul` for few rows: a block has a part of the sums of its tile. The first of three
/// axes is that of parts.
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

/// Stores the sums of the gradients of queries, times the scale, in their type.
pub fn narrowed<T: Element>(sums: Array<f32, 4>, dq: ArrayMut<T, 4>, scale: Scalar<f32>, [rows, dim]: [usize; 2])
where
    f32: CastTo<T>,
{
    let at = (ct::bid(2), ct::bid(1), ct::bid(0), 0);
    dq.store(at, (sums.load(at, [1, 1, rows, dim]) * (scale * std::f32::consts::LN_2)).cast::<T>());
}

/// Arguments of [`attention_tile`] that the code is made for: queries, keys and numbers of a tile,
/// and the mask.
pub type AttentionForm = ([usize; 3], bool);

/// Attention with a tile of queries a block, which takes all keys that it sees: the form of cuTile
/// Python's kernel. `scale` is log₂ e / √dim. Without a mask, the number of keys is a multiple of
/// the extent of a tile.
pub fn attention_tile<T: MmaInput<T, f32>>(
    (q, k, v): (Array<T, 4>, Array<T, 4>, Array<T, 4>),
    out: ArrayMut<T, 4>,
    scale: Scalar<f32>,
    ([m, n, d], causal): AttentionForm,
) where
    f32: CastTo<T>,
{
    let (heads, keys) = (q.extent(1), k.extent(2));
    let (tile, batch, head) = (ct::bid(0), ct::bid(1) / heads, ct::bid(1) % heads);
    let flush = ct::FloatMode::new().flush_to_zero();
    let x = q.load((batch, head, tile, 0), [1, 1, m, d]).reshape([m, d]);
    let rows = (tile * m + ct::arange(0..m)).unsqueeze(1);
    // Number of tiles whose keys all rows see, and number of tiles of which some row sees a key.
    let (full, some) = match causal {
        true => ((tile * m) / n, (tile * m + m).min(keys).ceil_div(n)),
        false => (keys / n, keys.ceil_div(n)),
    };
    let step = |(acc, max, sum): (Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>), j: Scalar<i32>, masked: bool| {
        let y = k.load_with((batch, head, j, 0), [1, 1, n, d], ct::LoadOptions::new().latency(2)).reshape([n, d]);
        let scores = ct::mma(x, y.transpose(), ct::zeros::<f32, 2>([m, n]));
        let sees = || rows.ge(j * n + ct::arange(0..n).unsqueeze(0));
        let mask = || ct::select(sees(), ct::zeros::<f32, 2>([m, n]), f32::NEG_INFINITY);
        let scores = if masked { scores + mask() } else { scores };
        let above = max.max(scores.reduce_max(1) * scale);
        let weights = scores.fma(scale, -above).exp2_with(flush);
        let fade = (max - above).exp2_with(flush);
        let z = v.load_with((batch, head, j, 0), [1, 1, n, d], ct::LoadOptions::new().latency(4)).reshape([n, d]);
        (ct::mma(weights.cast::<T>(), z, acc * fade), above, sum.fma(fade, weights.sum(1)))
    };
    let start = (ct::zeros([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    let seen = ct::fold(..if causal { full } else { some }, start, |all, j| step(all, j, false));
    let (acc, _, sum) = if causal { ct::fold(full..some, seen, |all, j| step(all, j, true)) } else { seen };
    let result = acc.div_with(sum, flush.approx());
    out.store((batch, head, tile, 0), result.cast::<T>().reshape([1, 1, m, d]));
}
