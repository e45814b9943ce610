//! Attention, forward: `cargo run --example attention`.

use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Queries of a tile, keys of a tile, and elements of each query and key.
    pub tile: [usize; 3],
    /// Heads of queries that share a head of keys and values.
    pub group: usize,
    /// A query sees only the keys up to its own position.
    pub causal: bool,
}

/// softmax(Q Kᵀ / √dim) V for arrays of batch x heads x sequence x dim. Each tile block computes
/// one tile of queries. `scale` is log₂ e / √dim, because exponentials are powers of two. `logs`,
/// if present, receives log₂ of each query's sum of exponentials.
pub fn attention<T: MmaInput<T, f32>>(
    (q, k, v): (Array<T, 4>, Array<T, 4>, Array<T, 4>),
    (out, logs): (ArrayMut<T, 4>, Option<ArrayMut<f32, 3>>),
    scale: Scalar<f32>,
    Form { tile: [m, n, d], group, causal }: Form,
) where
    f32: CastTo<T>,
{
    let (tile, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let queries = q.load((batch, head, tile, 0), [1, 1, m, d]).reshape([m, d]);
    // The number of keys that each query sees, and that any query of the tile sees.
    let keys = k.extent(2);
    let (seen, most) = match causal {
        true => (tile * m + ct::arange_from(m, 1, 1), (tile * m + m).min(keys)),
        false => (ct::full([m], keys), keys),
    };
    let start = (ct::zeros([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    ct::with_mode(ct::FloatMode::fast(), || {
        let (acc, max, sum) = ct::fold(..most.ceil_div(n), start, |(acc, max, sum), j| {
            let [keys, values] = [k, v].map(|x| x.load((batch, head / group, j, 0), [1, 1, n, d]).reshape([n, d]));
            let scores = ct::mma(queries, keys.transpose(), ct::zeros::<f32, 2>([m, n]));
            let visible = (j * n + ct::arange(0..n)).unsqueeze(0).lt(seen.unsqueeze(1));
            let scores = ct::select(visible, scores, f32::NEG_INFINITY);
            let new_max = max.max(scores.reduce_max(1) * scale);
            let weights = (scores * scale - new_max).exp2();
            let decay = (max - new_max).exp2();
            (ct::mma(weights.cast::<T>(), values, acc * decay), new_max, sum * decay + weights.sum(1))
        });
        logs.iter().for_each(|logs| logs.store((batch, head, tile), (max + sum.log2()).reshape([1, 1, m])));
        out.store((batch, head, tile, 0), (acc / sum).cast::<T>().reshape([1, 1, m, d]));
    });
}

fn main() -> ct::Result<()> {
    let ([batch, heads, seq, dim], tile) = ([1, 2, 200, 64], [64, 64, 64]);
    let number = |at: usize, way: f32| f16::from_f32((at as f32 * way).sin());
    let device = ct::Device::first()?;
    let array = |way| {
        device.from_fn([batch, heads, seq, dim], |[b, h, i, j]| number(((b * heads + h) * seq + i) * dim + j, way))
    };
    let (q, k, v) = (array(0.37)?, array(0.11)?, array(0.23)?);
    let scale = (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    for causal in [false, true] {
        let mut out = device.zeros([batch, heads, seq, dim])?;
        let form = Form { tile, group: 1, causal };
        let grid = [seq.div_ceil(tile[0]), heads, batch];
        ct::launch(attention::<f16>, grid, ((&q, &k, &v), (&mut out, NO_LOGS), scale, Constant(form)))?;

        let out = out.to_vec()?;
        let number = |at, way| number(at, way).to_f64();
        let of_row = |row: usize| {
            let (head, seen) = (row / seq * seq, if causal { row % seq + 1 } else { seq });
            let score =
                |key| (0..dim).map(|j| number(row * dim + j, 0.37) * number((head + key) * dim + j, 0.11)).sum::<f64>();
            let weights: Vec<f64> = (0..seen).map(|key| (score(key) / (dim as f64).sqrt()).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let value = |j| (0..seen).map(|key| weights[key] / sum * number((head + key) * dim + j, 0.23)).sum::<f64>();
            (0..dim).map(|j| (out[row * dim + j].to_f64() - value(j)).abs()).max_by(f64::total_cmp)
        };
        let error = (0..batch * heads * seq).filter_map(of_row).max_by(f64::total_cmp).unwrap_or(0.0);
        let what = if causal { "causal" } else { "full" };
        println!(
            "attention: f16 {what} {batch} x {heads} x {seq} x {dim}, {}, largest error {error:.1e}",
            device.name()
        );
        assert!(error <= 1e-3, "wrong results");
    }
    Ok(())
}

/// Without the logarithms.
pub const NO_LOGS: Option<&mut ct::DeviceArray<f32, 3>> = None;
