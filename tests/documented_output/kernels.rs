//! The kernels of `docs/tutorial.md`, as they stand there; and that of `README.md`.

use cutlet as ct;
use cutlet::prelude::*;

pub fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0);
    c.store(i, a.load(i, [tile]) + b.load(i, [tile]));
}

/// With the mistake that the README tells of.
pub fn vadd_mistaken(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0);
    c.store(i, a.load(i, [tile]) + b.load(i, [tile / 2]));
}

pub fn transpose(x: Array<f32, 2>, y: ArrayMut<f32, 2>, [rows, columns]: [usize; 2]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    y.store((j, i), x.load((i, j), [rows, columns]).transpose());
}

pub fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
    let row = ct::bid(0);
    let x = x.load_with((row, 0), [1, tile], ct::LoadOptions::new().padding(Padding::NegInf));
    let e = (x - x.reduce_max(1)).exp();
    y.store((row, 0), e / e.sum(1));
}

pub fn column_sums(x: Array<f32, 2>, sums: ArrayMut<f32, 1>, [rows, columns]: [usize; 2]) {
    let j = ct::bid(0);
    let start = ct::zeros::<f32, 2>([rows, columns]);
    let total = ct::fold(..x.num_tiles(0, [rows, columns]), start, |total, i| total + x.load((i, j), [rows, columns]));
    sums.store(j, total.sum(0).reshape([columns]));
}

pub fn embedding(table: Array<f16, 2>, ids: Array<i32, 1>, out: ArrayMut<f16, 2>, tile: usize) {
    let (row, part) = (ct::bid(0), ct::bid(1));
    let id = ids.load_scalar(row);
    out.store((row, part), table.gather((id, ct::span(part * tile, tile))));
}

pub fn matmul(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, [tm, tn, tk]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let start = ct::zeros::<f32, 2>([tm, tn]);
    let sum = ct::fold(..a.num_tiles(1, [tm, tk]), start, |sum, k| {
        ct::mma(a.load((i, k), [tm, tk]), b.load((k, j), [tk, tn]), sum)
    });
    c.store((i, j), sum.cast::<f16>());
}

pub fn attention(q: Array<f16, 3>, k: Array<f16, 3>, v: Array<f16, 3>, out: ArrayMut<f16, 3>, [m, n, d]: [usize; 3]) {
    let (tile, head) = (ct::bid(0), ct::bid(1));
    let q = q.load((head, tile, 0), [1, m, d]).squeeze(0);
    let scale = std::f32::consts::LOG2_E / (d as f32).sqrt();
    let start = (ct::zeros::<f32, 2>([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    let (acc, _, sum) = ct::fold(..k.num_tiles(1, [1, n, d]), start, |(acc, max, sum), j| {
        let scores = ct::mma(q, k.load((head, j, 0), [1, n, d]).squeeze(0).transpose(), ct::zeros([m, n]));
        let inside = (j * n + ct::arange(0..n)).lt(k.extent(1)).unsqueeze(0);
        let scores = ct::select(inside, scores, f32::NEG_INFINITY);
        let above = max.max(scores.reduce_max(1) * scale);
        let (weights, fade) = ((scores * scale - above).exp2(), (max - above).exp2());
        let acc = ct::mma(weights.cast::<f16>(), v.load((head, j, 0), [1, n, d]).squeeze(0), acc * fade);
        (acc, above, sum * fade + weights.sum(1))
    });
    out.store((head, tile, 0), (acc / sum).cast::<f16>().unsqueeze(0));
}

pub fn attention_fast(
    q: Array<f16, 3>,
    k: Array<f16, 3>,
    v: Array<f16, 3>,
    out: ArrayMut<f16, 3>,
    [m, n, d]: [usize; 3],
) {
    let (tile, head) = (ct::bid(0), ct::bid(1));
    let q = q.load((head, tile, 0), [1, m, d]).squeeze(0);
    let scale = std::f32::consts::LOG2_E / (d as f32).sqrt();
    let start = (ct::zeros::<f32, 2>([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    let (acc, _, sum) = ct::with_mode(ct::FloatMode::fast(), || {
        ct::fold(..k.num_tiles(1, [1, n, d]), start, |(acc, max, sum), j| {
            let scores = ct::mma(q, k.load((head, j, 0), [1, n, d]).squeeze(0).transpose(), ct::zeros([m, n]));
            let inside = (j * n + ct::arange(0..n)).lt(k.extent(1)).unsqueeze(0);
            let scores = ct::select(inside, scores, f32::NEG_INFINITY);
            let above = max.max(scores.reduce_max(1) * scale);
            let (weights, fade) = ((scores * scale - above).exp2(), (max - above).exp2());
            let acc = ct::mma(weights.cast::<f16>(), v.load((head, j, 0), [1, n, d]).squeeze(0), acc * fade);
            (acc, above, sum * fade + weights.sum(1))
        })
    });
    out.store((head, tile, 0), (acc / sum).cast::<f16>().unsqueeze(0));
}
