//! Attention of 8-bit floats, forward: `cargo run --example attention_f8`.

use cutlet as ct;
use cutlet::prelude::*;

/// Queries, keys and dim of a tile; whether a query sees only keys up to its own position.
pub type Form = ([usize; 3], bool);
/// Keys of a permuted group: the order of 8-bit operands differs from that of scores.
pub const GROUP: usize = 16;

/// Returns columns in the order in which the threads that compute scores multiply them.
fn in_order(x: Tile<f8e4m3fn, 2>) -> Tile<f8e4m3fn, 2> {
    let [rows, columns] = x.shape();
    x.reshape([rows, columns / GROUP, 2, 4, 2]).permute([0, 1, 3, 2, 4]).reshape([rows, columns])
}

/// Values contiguous along the sums: batch x heads x dim x sequence, in the order of keys.
pub fn turned(v: Array<f8e4m3fn, 4>, out: ArrayMut<f8e4m3fn, 4>, [n, d]: [usize; 2]) {
    let (i, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let x = v.load((batch, head, i, 0), [1, 1, n, d]).reshape([n, d]);
    out.store((batch, head, 0, i), in_order(x.transpose()).reshape([1, 1, d, n]));
}

/// softmax(Q Kᵀ / √dim) V. Each tile block computes one tile of queries, as in `attention`.
/// `scales`, for each head of each sequence: log₂ e / √dim times the scales of queries and keys,
/// and the scale of values; `v` is the result of [`turned`].
pub fn attention_f8(
    (q, k, v): (Array<f8e4m3fn, 4>, Array<f8e4m3fn, 4>, Array<f8e4m3fn, 4>),
    out: ArrayMut<bf16, 4>,
    scales: [Array<f32, 2>; 2],
    ([m, n, d], causal): Form,
) {
    let (tile, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let [scale, of_values] = scales.map(|scales| scales.load_scalar((batch, head)));
    let queries = q.load((batch, head, tile, 0), [1, 1, m, d]).reshape([m, d]);
    // The number of keys that each query sees, and that any query of the tile sees.
    let keys = k.extent(2);
    let (seen, most) = match causal {
        true => (tile * m + ct::arange_from(m, 1, 1), (tile * m + m).min(keys)),
        false => (ct::full([m], keys), keys),
    };
    let start = (ct::zeros([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    ct::with_mode(ct::FloatMode::fast(), || {
        let (acc, _, sum) = ct::fold(..most.ceil_div(n), start, |(acc, max, sum), j| {
            let keys = k.load((batch, head, j, 0), [1, 1, n, d]).reshape([n, d]).transpose();
            let values = v.load((batch, head, 0, j), [1, 1, d, n]).reshape([d, n]).transpose();
            let scores = ct::mma_fast_acc(queries, keys, ct::zeros::<f32, 2>([m, n]));
            let visible = (j * n + ct::arange(0..n)).unsqueeze(0).lt(seen.unsqueeze(1));
            let scores = ct::select(visible, scores, f32::NEG_INFINITY);
            let new_max = max.max(scores.reduce_max(1) * scale);
            // The largest weight is 2⁸, so that small ones have bits, too.
            let weights = (scores * scale - (new_max - 8.0)).exp2();
            let decay = (max - new_max).exp2();
            (ct::mma_fast_acc(in_order(weights.cast()), values, acc * decay), new_max, sum * decay + weights.sum(1))
        });
        out.store((batch, head, tile, 0), (acc * (of_values / sum)).cast::<bf16>().reshape([1, 1, m, d]));
    });
}

fn main() -> ct::Result<()> {
    let ([batch, heads, seq, dim], tile) = ([1, 2, 150usize, 64], [64, 64, 64]);
    let shape = [batch, heads, seq, dim];
    let number = |at: usize, way: f32| f8e4m3fn::from_f32(2.0 * (at as f32 * way).sin());
    let device = ct::Device::first()?;
    let array = |way| device.from_fn(shape, |[b, h, i, j]| number(((b * heads + h) * seq + i) * dim + j, way));
    let (q, k, v) = (array(0.37)?, array(0.11)?, array(0.23)?);
    let mut along = device.zeros([batch, heads, dim, seq.next_multiple_of(GROUP)])?;
    ct::launch(turned, [seq.div_ceil(tile[1]), heads, batch], (&v, &mut along, Constant([tile[1], dim])))?;
    // Scales of queries and keys, and of values.
    let (of_scores, of_values) = (0.5f32, 0.25f32);
    let scale = of_scores * (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    let scales = (device.full([batch, heads], scale)?, device.full([batch, heads], of_values)?);
    for causal in [false, true] {
        let mut out = device.zeros::<bf16, 4>(shape)?;
        let grid = [seq.div_ceil(tile[0]), heads, batch];
        ct::launch(attention_f8, grid, ((&q, &k, &along), &mut out, [&scales.0, &scales.1], Constant((tile, causal))))?;

        let out = out.to_vec()?;
        let number = |at, way| number(at, way).to_f64();
        let of_row = |row: usize| {
            let (head, seen) = (row / seq * seq, if causal { row % seq + 1 } else { seq });
            let score =
                |key| (0..dim).map(|j| number(row * dim + j, 0.37) * number((head + key) * dim + j, 0.11)).sum::<f64>();
            let scale = f64::from(of_scores) / (dim as f64).sqrt();
            let weights: Vec<f64> = (0..seen).map(|key| (score(key) * scale).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let terms = |j| (0..seen).map(move |key| (key, j));
            let value = |(key, j)| weights[key] / sum * number((head + key) * dim + j, 0.23) * f64::from(of_values);
            // Errors are relative to the magnitude of the terms.
            let error = |j: usize| {
                let (want, size) = (terms(j).map(value).sum::<f64>(), terms(j).map(|at| value(at).abs()).sum::<f64>());
                (out[row * dim + j].to_f64() - want).abs() / size
            };
            (0..dim).map(error).max_by(f64::total_cmp)
        };
        let error = (0..batch * heads * seq).filter_map(of_row).max_by(f64::total_cmp).unwrap_or(0.0);
        let what = if causal { "causal" } else { "full" };
        println!(
            "attention_f8: e4m3 {what} {batch} x {heads} x {seq} x {dim}, {}, largest error {error:.1e}",
            device.name()
        );
        assert!(error <= 7e-2, "wrong results");
    }
    Ok(())
}
