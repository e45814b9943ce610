//! Gradients of attention: `cargo run --example attention_backward`.

use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

/// Queries, keys and dim of a tile; whether a query sees only keys up to its own position.
pub type Form = ([usize; 3], bool);
/// Queries, keys, values, and the gradient of the result: batch x heads x sequence x dim.
pub type Inputs<T> = (Array<T, 4>, Array<T, 4>, Array<T, 4>, Array<T, 4>);

/// Row sums of the product of two arrays. The sums of gradients of queries begin at zero.
pub fn row_sums<T: Element + CastTo<f32>>(
    (a, b): (Array<T, 4>, Array<T, 4>),
    (sums, dq): (ArrayMut<f32, 3>, Option<ArrayMut<f32, 4>>),
    [rows, dim]: [usize; 2],
) {
    let (i, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let [a, b] = [a, b].map(|x| x.load((batch, head, i, 0), [1, 1, rows, dim]).cast::<f32>());
    sums.store((batch, head, i), (a * b).sum(3).reshape([1, 1, rows]));
    dq.iter().for_each(|dq| dq.store((batch, head, i, 0), ct::zeros([1, 1, rows, dim])));
}

/// Gradients of a tile of keys and values, over all queries that see them. Of each query: log₂ of
/// its sum of exponentials, and the sum of its result times its gradient. Transposed scores are
/// left operands without a conversion. Adds to `dq`, if present, without scale.
pub fn of_keys<T: MmaInput<T, f32>>(
    (q, k, v, dout): Inputs<T>,
    (logs, sums): (Array<f32, 3>, Array<f32, 3>),
    (dk, dv, dq): (ArrayMut<T, 4>, ArrayMut<T, 4>, Option<ArrayMut<f32, 4>>),
    scale: Scalar<f32>,
    ([m, n, d], causal): Form,
) where
    f32: CastTo<T>,
{
    let (tile, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let [k, v] = [k, v].map(|x| x.load((batch, head, tile, 0), [1, 1, n, d]).reshape([n, d]));
    let (first, end) = (if causal { tile * n / m } else { ct::scalar(0) }, q.num_tiles(2, [1, 1, m, d]));
    let zeros = [0, 1].map(|_| ct::zeros::<f32, 2>([n, d]));
    let [key, value] = ct::fold(first..end, zeros, |[key, value], i| {
        let [q, dout] = [q, dout].map(|x| x.load((batch, head, i, 0), [1, 1, m, d]).reshape([m, d]));
        let [logs, sums] = [logs, sums].map(|x| x.load((batch, head, i), [1, 1, m]).reshape([1, m]));
        let product = |a: Tile<T, 2>, b: Tile<T, 2>| ct::mma(a, b.transpose(), ct::zeros::<f32, 2>([n, m]));
        let (scores, steps) = (product(k, q), product(v, dout));
        let weights = scores.fma(scale, -logs).exp2_with(ct::FloatMode::new().flush_to_zero());
        let seen = || (i * m + ct::arange(0..m)).unsqueeze(0).ge((tile * n + ct::arange(0..n)).unsqueeze(1));
        let all = || if causal { (tile * n + (n - 1)).le(i * m) } else { ct::scalar(true) };
        let weights = ct::if_else(all(), || weights, || ct::select(seen(), weights, 0.0));
        let value = ct::mma(weights.cast::<T>(), dout, value);
        let steps = (weights * (steps - sums)).cast::<T>();
        let query = dq.map(|dq| (dq, ct::mma(steps.transpose(), k, ct::zeros::<f32, 2>([m, d]))));
        let key = ct::mma(steps, q, key);
        query.iter().for_each(|(dq, x)| dq.atomic_store_add((batch, head, i, 0), x.reshape([1, 1, m, d])));
        [key, value]
    });
    let store = |to: ArrayMut<T, 4>, x: Tile<f32, 2>| to.store((batch, head, tile, 0), x.cast().reshape([1, 1, n, d]));
    [(dk, key * (scale * std::f32::consts::LN_2)), (dv, value)].into_iter().for_each(|(to, x)| store(to, x));
}

fn main() -> ct::Result<()> {
    let (heads, seq, dim) = (2, 150, 64);
    let shape = [1, heads, seq, dim];
    let number = |at: usize, way: f32| f16::from_f32((at as f32 * way).sin());
    let device = ct::Device::first()?;
    let array = |way| device.from_fn(shape, |[_, h, i, j]| number((h * seq + i) * dim + j, way));
    let (q, k, v, dout) = (array(0.37)?, array(0.11)?, array(0.23)?, array(0.19)?);
    let scale = (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    for causal in [false, true] {
        let host = Host::new(causal, [heads, seq, dim], [0.37, 0.11, 0.23, 0.19], number);
        let out = device.array(&host.out.iter().map(|&x| f16::from_f64(x)).collect::<Vec<_>>(), shape)?;
        let logs = device.array(&host.logs.iter().map(|&x| x as f32).collect::<Vec<_>>(), [1, heads, seq])?;
        let (mut sums, mut dq) = (device.zeros([1, heads, seq])?, device.zeros::<f32, 4>(shape)?);
        let (mut dk, mut dv) = (device.zeros(shape)?, device.zeros(shape)?);
        let grid = |rows: usize| [seq.div_ceil(rows), heads, 1];
        ct::launch(row_sums::<f16>, grid(32), ((&dout, &out), (&mut sums, Some(&mut dq)), Constant([32, dim])))?;
        let (form, results) = (Constant(([32, 64, dim], causal)), (&mut dk, &mut dv, Some(&mut dq)));
        ct::launch(of_keys::<f16>, grid(64), ((&q, &k, &v, &dout), (&logs, &sums), results, scale, form))?;

        let dq = dq.expr().map_with(scale * std::f32::consts::LN_2, |x, scale| x * scale).to_array()?;
        let wide = |x: Vec<f16>| x.into_iter().map(|x| x.to_f64()).collect::<Vec<_>>();
        let got = [dq.to_vec()?.into_iter().map(f64::from).collect(), wide(dk.to_vec()?), wide(dv.to_vec()?)];
        let error = |(got, want): (&Vec<f64>, &Vec<f64>)| {
            got.iter().zip(want).map(|(got, want)| (got - want).abs()).max_by(f64::total_cmp)
        };
        let error = got.iter().zip(&host.gradients).filter_map(error).max_by(f64::total_cmp).unwrap_or(0.0);
        let what = if causal { "causal" } else { "full" };
        println!(
            "attention_backward: f16 {what} 1 x {heads} x {seq} x {dim}, {}, largest error {error:.1e}",
            device.name()
        );
        assert!(error <= 5e-3, "wrong results");
    }
    Ok(())
}

/// Results of the forward pass and gradients in f64.
struct Host {
    out: Vec<f64>,
    logs: Vec<f64>,
    gradients: [Vec<f64>; 3],
}

impl Host {
    fn new(causal: bool, [heads, seq, dim]: [usize; 3], ways: [f32; 4], number: impl Fn(usize, f32) -> f16) -> Host {
        let size = heads * seq * dim;
        let [q, k, v, dout] = ways.map(|way| (0..size).map(|at| number(at, way).to_f64()).collect::<Vec<_>>());
        let zeros = || vec![0.0; size];
        let mut host = Host { out: zeros(), logs: Vec::new(), gradients: [zeros(), zeros(), zeros()] };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let row = |row: usize| row * dim..(row + 1) * dim;
        for i in 0..heads * seq {
            let seen = i / seq * seq..if causal { i + 1 } else { (i / seq + 1) * seq };
            let scale = 1.0 / (dim as f64).sqrt();
            let weights: Vec<f64> = seen.clone().map(|j| (dot(&q[row(i)], &k[row(j)]) * scale).exp()).collect();
            let sum: f64 = weights.iter().sum();
            host.logs.push(sum.log2());
            for (j, weight) in seen.clone().zip(&weights) {
                (0..dim).for_each(|c| host.out[i * dim + c] += weight / sum * v[j * dim + c]);
            }
            let level = dot(&dout[row(i)], &host.out[row(i)]);
            for (j, weight) in seen.zip(&weights) {
                let weight = weight / sum;
                let step = weight * (dot(&dout[row(i)], &v[row(j)]) - level) * scale;
                for c in 0..dim {
                    host.gradients[0][i * dim + c] += step * k[j * dim + c];
                    host.gradients[1][j * dim + c] += step * q[i * dim + c];
                    host.gradients[2][j * dim + c] += weight * dout[i * dim + c];
                }
            }
        }
        host
    }
}
