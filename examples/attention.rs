//! Attention, forward: `cargo run --release --example attention`.

use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

/// What the code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Queries that a block takes at a time, and keys, and numbers of each of them.
    pub tile: [usize; 3],
    /// Heads of queries that share a head of keys and values.
    pub group: usize,
    /// A query sees only the keys up to its own position.
    pub causal: bool,
}

/// softmax(Q Kᵀ / √dim) V for arrays of batch x heads x sequence x dim. Each block takes the tiles of queries of its share, each past
/// all keys that it sees. `logs`, if wanted, gets for each query log₂ of the sum of its exponentials. `shares`: where the share of each
/// block begins, the last one ends; then for each tile 2¹⁶ times its head, of those of all sequences, and its place there. `scale` is
/// log₂ e / √dim, as exponentials are powers of two; that it is not negative (`max`) says that sums fade by at most one, so threads keep parts.
pub fn attention<T: MmaInput<T, f32>>(
    (q, k, v): (Array<T, 4>, Array<T, 4>, Array<T, 4>),
    (out, logs): (ArrayMut<T, 4>, Option<ArrayMut<f32, 3>>),
    (shares, scale): (Array<i32, 1>, Scalar<f32>),
    Form { tile: [m, n, d], group, causal }: Form,
) where
    f32: CastTo<T>,
{
    let (heads, keys) = (q.extent(1), k.extent(2));
    let flush = ct::FloatMode::new().flush_to_zero();
    let share = [ct::bid(0), ct::bid(0) + 1].map(|block| shares.load_scalar(block));
    ct::fold(share[0]..share[1], (), |(), at| {
        let (head, tile) = (shares.load_scalar(at) >> 16 & 0x7fff, shares.load_scalar(at) & 0xffff);
        let (batch, head) = (head / heads, head % heads);
        let q = q.load((batch, head, tile, 0), [1, 1, m, d]).reshape([m, d]);
        // How many keys each row sees; how many tiles every row sees all of, and how many some row sees any of.
        let (first, last) = (tile * m, (tile * m + m).min(keys));
        let (seen, full, some) = match causal {
            true => (first + ct::arange_from(m, 1, 1), (first + 1) / n, (last + (n - 1)) / n),
            false => (ct::full([m], keys), keys / n, (keys + (n - 1)) / n),
        };
        let start = (ct::zeros([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
        let (acc, max, sum) = ct::fold(..some, start, |(acc, max, sum), j| {
            let [k, v] = [k, v].map(|x| x.load((batch, head / group, j, 0), [1, 1, n, d]).reshape([n, d]));
            let scores = ct::mma(q, k.transpose(), ct::zeros::<f32, 2>([m, n]));
            let sees = || (j * n + ct::arange(0..n)).unsqueeze(0).lt(seen.unsqueeze(1));
            let scores = ct::if_else(j.lt(full), || scores, || ct::select(sees(), scores, f32::NEG_INFINITY));
            let above = max.max(scores.reduce_max(1));
            let weights = scores.fma(scale, -above * scale).exp2_with(flush);
            let fade = ((max - above) * scale.max(0.0)).exp2_with(flush);
            (ct::mma(weights.cast::<T>(), v, acc * fade), above, sum * fade + weights.sum(1))
        });
        logs.iter().for_each(|to| to.store((batch, head, tile), max.fma(scale, sum.log2()).reshape([1, 1, m])));
        let part = ct::ones([m, 1]).div_with(sum, flush.approx());
        out.store((batch, head, tile, 0), (acc * part).cast::<T>().reshape([1, 1, m, d]));
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
        // Each block takes one tile: the first number says where its share begins, the next where it ends.
        let tiles = seq.div_ceil(tile[0]);
        let blocks = batch * heads * tiles;
        let starts = (0..=blocks).map(|block| blocks + 1 + block);
        let of_blocks = (0..blocks).map(|block| ((block / tiles) << 16) + block % tiles);
        let shares: Vec<i32> = starts.chain(of_blocks).map(|x| x as i32).collect();
        let shares = device.array(&shares, [shares.len()])?;
        ct::launch(attention::<f16>, blocks, ((&q, &k, &v), (&mut out, NO_LOGS), (&shares, scale), Constant(form)))?;

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
