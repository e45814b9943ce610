//! The gradient of queries of attention, in one order: `cargo run --example attention_queries`.

use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

/// Constants of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Queries, keys, and dim of a tile.
    pub tile: [usize; 3],
    /// A query sees only the keys up to its own position.
    pub causal: bool,
    /// The gradients of weights are computed with the weights, which needs more registers, or after
    /// them.
    pub early: bool,
}

/// Queries, keys, values, and the gradient of the result: batch x heads x sequence x dim.
pub type Inputs<T> = (Array<T, 4>, Array<T, 4>, Array<T, 4>, Array<T, 4>);

/// The gradient of a tile of queries, over all keys that they see. Inputs for each query: log₂ of
/// its sum of exponentials, and the sum of its result times its gradient.
pub fn of_queries<T: MmaInput<T, f32>>(
    (q, k, v, dout): Inputs<T>,
    (logs, sums): (Array<f32, 3>, Array<f32, 3>),
    dq: ArrayMut<T, 4>,
    scale: Scalar<f32>,
    Form { tile: [m, n, d], causal, early }: Form,
) where
    f32: CastTo<T>,
{
    let (head, batch) = (ct::bid(1), ct::bid(2));
    // Tiles with the most keys first.
    let tile = if causal { q.num_tiles(2, [1, 1, m, d]) - 1 - ct::bid(0) } else { ct::bid(0) };
    let [q, dout] = [q, dout].map(|x| x.load((batch, head, tile, 0), [1, 1, m, d]).reshape([m, d]));
    let [logs, sums] = [logs, sums].map(|x| x.load((batch, head, tile), [1, 1, m]).reshape([m, 1]));
    let all = k.num_tiles(2, [1, 1, n, d]);
    let end = if causal { ((tile * m + (m + n - 1)) / n).min(all) } else { all };
    let query = ct::fold(..end, ct::zeros::<f32, 2>([m, d]), |query, j| {
        let [k, v] = [k, v].map(|x| x.load((batch, head, j, 0), [1, 1, n, d]).reshape([n, d]));
        let product = |a: Tile<T, 2>, b: Tile<T, 2>| ct::mma(a, b.transpose(), ct::zeros::<f32, 2>([m, n]));
        let (scores, slopes) = (product(q, k), early.then(|| product(dout, v)));
        let weights = scores.fma(scale, -logs).exp2_with(ct::FloatMode::new().flush_to_zero());
        let seen = || (tile * m + ct::arange(0..m)).unsqueeze(1).ge((j * n + ct::arange(0..n)).unsqueeze(0));
        let all = || if causal { (j * n + (n - 1)).le(tile * m) } else { ct::scalar(true) };
        let weights = ct::if_else(all(), || weights, || ct::select(seen(), weights, 0.0));
        let steps = weights * (slopes.unwrap_or_else(|| product(dout, v)) - sums);
        ct::mma(steps.cast::<T>(), k, query)
    });
    let query = query * (scale * std::f32::consts::LN_2);
    dq.store((batch, head, tile, 0), query.cast::<T>().reshape([1, 1, m, d]));
}

fn main() -> ct::Result<()> {
    let (heads, seq, dim) = (2, 150, 64);
    let shape = [1, heads, seq, dim];
    let number = |at: usize, way: f32| f16::from_f32((at as f32 * way).sin());
    let device = ct::Device::first()?;
    let array = |way| device.from_fn(shape, |[_, h, i, j]| number((h * seq + i) * dim + j, way));
    let (q, k, v, dout) = (array(0.37)?, array(0.11)?, array(0.23)?, array(0.19)?);
    let scale = (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    for (causal, early) in [(false, false), (true, true)] {
        let host = Host::new(causal, [heads, seq, dim], [0.37, 0.11, 0.23, 0.19], number);
        let rows = |x: &[f64]| device.array(&x.iter().map(|&x| x as f32).collect::<Vec<_>>(), [1, heads, seq]);
        let (logs, sums, mut dq) = (rows(&host.logs)?, rows(&host.sums)?, device.zeros(shape)?);
        let form = Form { tile: [64, 32, dim], causal, early };
        let arguments = ((&q, &k, &v, &dout), (&logs, &sums), &mut dq, scale, Constant(form));
        ct::launch(of_queries::<f16>, [seq.div_ceil(64), heads, 1], arguments)?;

        let error = |(got, want): (f16, &f64)| (got.to_f64() - want).abs();
        let error = dq.to_vec()?.into_iter().zip(&host.queries).map(error).max_by(f64::total_cmp).unwrap_or(0.0);
        let what = if causal { "causal" } else { "full" };
        println!(
            "attention_queries: f16 {what} 1 x {heads} x {seq} x {dim}, {}, largest error {error:.1e}",
            device.name()
        );
        assert!(error <= 5e-3, "wrong results");
    }
    Ok(())
}

/// Results of the forward pass, and the gradient, in f64.
struct Host {
    logs: Vec<f64>,
    sums: Vec<f64>,
    queries: Vec<f64>,
}

impl Host {
    fn new(causal: bool, [heads, seq, dim]: [usize; 3], ways: [f32; 4], number: impl Fn(usize, f32) -> f16) -> Host {
        let size = heads * seq * dim;
        let [q, k, v, dout] = ways.map(|way| (0..size).map(|at| number(at, way).to_f64()).collect::<Vec<_>>());
        let mut host = Host { logs: Vec::new(), sums: Vec::new(), queries: vec![0.0; size] };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (row, scale) = (|row: usize| row * dim..(row + 1) * dim, 1.0 / (dim as f64).sqrt());
        for i in 0..heads * seq {
            let seen = i / seq * seq..if causal { i + 1 } else { (i / seq + 1) * seq };
            let weights: Vec<f64> = seen.clone().map(|j| (dot(&q[row(i)], &k[row(j)]) * scale).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let slopes: Vec<f64> = seen.clone().map(|j| dot(&dout[row(i)], &v[row(j)])).collect();
            let level = dot(&weights, &slopes) / sum;
            host.logs.push(sum.log2());
            host.sums.push(level);
            for ((j, weight), slope) in seen.zip(&weights).zip(&slopes) {
                let step = weight / sum * (slope - level) * scale;
                (0..dim).for_each(|c| host.queries[i * dim + c] += step * k[j * dim + c]);
            }
        }
        host
    }
}
