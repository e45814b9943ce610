//! Gradients of attention: `cargo run --release --example attention_backward`.

use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

/// What the code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Queries, keys, and numbers of each of them.
    pub tile: [usize; 3],
    /// A query sees only the keys up to its own position.
    pub causal: bool,
    /// Gradients of weights are made beside the weights, which takes more registers, or after them.
    pub early: bool,
}

/// Of batch x heads x sequence x dim: queries, keys, values, and the gradient of the result.
pub type Inputs<T> = (Array<T, 4>, Array<T, 4>, Array<T, 4>, Array<T, 4>);
/// For each query log₂ of the sum of its exponentials, and its result times the gradient of that.
pub type OfRows = (Array<f32, 3>, Array<f32, 3>);

/// Sums of the products of two arrays in each row. What gradients of queries are added up in, if they are, begins with zeros.
pub fn row_sums<T: Element + CastTo<f32>>(
    (a, b): (Array<T, 4>, Array<T, 4>),
    (sums, dq): (ArrayMut<f32, 3>, Option<ArrayMut<f32, 4>>),
    [rows, dim]: [usize; 2],
) {
    let (i, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let [a, b] = [a, b].map(|x| x.load((batch, head, i, 0), [1, 1, rows, dim]).cast::<f32>());
    sums.store((batch, head, i), (a * b).sum(3).reshape([1, 1, rows]));
    if let Some(dq) = dq {
        dq.store((batch, head, i, 0), ct::zeros([1, 1, rows, dim]));
    }
}

/// Weights of scores; `seen`, if it is not all: whether all are seen, or which.
fn weights(x: Tile<f32, 2>, seen: Option<(Scalar<bool>, impl Fn() -> Tile<bool, 2>)>) -> Tile<f32, 2> {
    let weights = x.exp2_with(ct::FloatMode::new().flush_to_zero());
    match seen {
        Some((all, which)) => ct::if_else(all, || weights, || ct::select(which(), weights, 0.0)),
        None => weights,
    }
}

/// The gradients of a tile of keys and of their values, past all queries that see them. Scores are transposed: so they are left operands
/// of the sums where they were made. `dq`, if it is there, is added to, without the scale.
pub fn of_keys<T: MmaInput<T, f32>>(
    (q, k, v, dout): Inputs<T>,
    (logs, sums): OfRows,
    (dk, dv, dq): (ArrayMut<T, 4>, ArrayMut<T, 4>, Option<ArrayMut<f32, 4>>),
    scale: Scalar<f32>,
    Form { tile: [m, n, d], causal, early }: Form,
) where
    f32: CastTo<T>,
{
    let (tile, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let [k, v] = [k, v].map(|x| x.load((batch, head, tile, 0), [1, 1, n, d]).reshape([n, d]));
    let (first, end) = (if causal { tile * n / m } else { ct::scalar(0) }, q.num_tiles(2, [1, 1, m, d]));
    let zeros = [0, 1].map(|_| ct::zeros::<f32, 2>([n, d]));
    let [key, value] = ct::for_each(first..end, zeros, |i, [key, value]| {
        let [q, dout] = [q, dout].map(|x| x.load((batch, head, i, 0), [1, 1, m, d]).reshape([m, d]));
        let [logs, sums] = [logs, sums].map(|x| x.load((batch, head, i), [1, 1, m]).reshape([1, m]));
        let product = |a: Tile<T, 2>, b: Tile<T, 2>| ct::mma(a, b.transpose(), ct::zeros::<f32, 2>([n, m]));
        let (scores, slopes) = (product(k, q), early.then(|| product(v, dout)));
        let [queries, keys] = [i * m + ct::arange(m, 0, 1), tile * n + ct::arange(n, 0, 1)];
        let seen = causal.then(|| ((tile * n + (n - 1)).le(i * m), move || queries.unsqueeze(0).ge(keys.unsqueeze(1))));
        let weights = weights(scores.fma(scale, -logs), seen);
        let value = ct::mma(weights.cast::<T>(), dout, value);
        let steps = (weights * (slopes.unwrap_or_else(|| product(v, dout)) - sums)).cast::<T>();
        let key = ct::mma(steps, q, key);
        if let Some(dq) = dq {
            let query = ct::mma(steps.transpose(), k, ct::zeros::<f32, 2>([m, d]));
            dq.atomic_store_add((batch, head, i, 0), query.reshape([1, 1, m, d]));
        }
        [key, value]
    });
    let key = key * (scale * std::f32::consts::LN_2);
    let store =
        |to: ArrayMut<T, 4>, x: Tile<f32, 2>| to.store((batch, head, tile, 0), x.cast::<T>().reshape([1, 1, n, d]));
    store(dk, key);
    store(dv, value);
}

/// The gradient of a tile of queries, past all keys that they see.
pub fn of_queries<T: MmaInput<T, f32>>(
    (q, k, v, dout): Inputs<T>,
    (logs, sums): OfRows,
    dq: ArrayMut<T, 4>,
    scale: Scalar<f32>,
    Form { tile: [m, n, d], causal, early }: Form,
) where
    f32: CastTo<T>,
{
    let (head, batch) = (ct::bid(1), ct::bid(2));
    // The longest first.
    let tile = if causal { q.num_tiles(2, [1, 1, m, d]) - 1 - ct::bid(0) } else { ct::bid(0) };
    let [q, dout] = [q, dout].map(|x| x.load((batch, head, tile, 0), [1, 1, m, d]).reshape([m, d]));
    let [logs, sums] = [logs, sums].map(|x| x.load((batch, head, tile), [1, 1, m]).reshape([m, 1]));
    let all = k.num_tiles(2, [1, 1, n, d]);
    let end = if causal { ((tile * m + (m + n - 1)) / n).min(all) } else { all };
    let query = ct::for_each(..end, ct::zeros::<f32, 2>([m, d]), |j, query| {
        let [k, v] = [k, v].map(|x| x.load((batch, head, j, 0), [1, 1, n, d]).reshape([n, d]));
        let product = |a: Tile<T, 2>, b: Tile<T, 2>| ct::mma(a, b.transpose(), ct::zeros::<f32, 2>([m, n]));
        let (scores, slopes) = (product(q, k), early.then(|| product(dout, v)));
        let [queries, keys] = [tile * m + ct::arange(m, 0, 1), j * n + ct::arange(n, 0, 1)];
        let seen = causal.then(|| ((j * n + (n - 1)).le(tile * m), move || queries.unsqueeze(1).ge(keys.unsqueeze(0))));
        let weights = weights(scores.fma(scale, -logs), seen);
        let steps = weights * (slopes.unwrap_or_else(|| product(dout, v)) - sums);
        ct::mma(steps.cast::<T>(), k, query)
    });
    let query = query * (scale * std::f32::consts::LN_2);
    dq.store((batch, head, tile, 0), query.cast::<T>().reshape([1, 1, m, d]));
}

/// What gradients of queries were added up to.
pub fn added<T: Element>(sums: Array<f32, 4>, dq: ArrayMut<T, 4>, scale: Scalar<f32>, [rows, dim]: [usize; 2])
where
    f32: CastTo<T>,
{
    let at = (ct::bid(2), ct::bid(1), ct::bid(0), 0);
    dq.store(at, (sums.load(at, [1, 1, rows, dim]) * (scale * std::f32::consts::LN_2)).cast::<T>());
}

fn main() -> ct::Result<()> {
    let (heads, seq, dim) = (2, 150, 64);
    let shape = [1, heads, seq, dim];
    let number = |at: usize, way: f32| f16::from_f32((at as f32 * way).sin());
    let device = ct::Device::first()?;
    let array = |way| device.from_fn(shape, |[_, h, i, j]| number((h * seq + i) * dim + j, way));
    let (q, k, v, dout) = (array(0.37)?, array(0.11)?, array(0.23)?, array(0.19)?);
    let scale = (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    for (causal, at_once) in [(false, false), (true, false), (true, true)] {
        let host = Host::new(causal, [heads, seq, dim], [0.37, 0.11, 0.23, 0.19], number);
        let out = device.array(&host.out.iter().map(|&x| f16::from_f64(x)).collect::<Vec<_>>(), shape)?;
        let logs = device.array(&host.logs.iter().map(|&x| x as f32).collect::<Vec<_>>(), [1, heads, seq])?;
        let (mut sums, mut all) = (device.zeros([1, heads, seq])?, device.zeros::<f32, 4>(shape)?);
        let (mut dq, mut dk, mut dv) = (device.zeros(shape)?, device.zeros(shape)?, device.zeros(shape)?);
        let form = |tile| Constant(Form { tile, causal, early: false });
        let (rows, keys, queries) = (Constant([32, dim]), [32, 64, dim], [64, 32, dim]);
        let grid = |rows: usize| [seq.div_ceil(rows), heads, 1];
        ct::launch(row_sums::<f16>, grid(32), ((&dout, &out), (&mut sums, at_once.then_some(&mut all)), rows))?;
        let (inputs, of_rows) = ((&q, &k, &v, &dout), (&logs, &sums));
        let results = (&mut dk, &mut dv, at_once.then_some(&mut all));
        ct::launch(of_keys::<f16>, grid(keys[1]), (inputs, of_rows, results, scale, form(keys)))?;
        match at_once {
            true => ct::launch(added::<f16>, grid(32), (&all, &mut dq, scale, rows))?,
            false => ct::launch(of_queries::<f16>, grid(queries[0]), (inputs, of_rows, &mut dq, scale, form(queries)))?,
        }
        let (mut error, got) = (0.0f64, [dq.to_vec()?, dk.to_vec()?, dv.to_vec()?]);
        for (got, want) in got.iter().zip(&host.gradients) {
            got.iter().zip(want).for_each(|(got, want)| error = error.max((got.to_f64() - want).abs()));
        }
        let what = if causal { "causal" } else { "full" };
        let how = if at_once { "at once" } else { "one after another" };
        println!(
            "attention_backward: f16 {what} 1 x {heads} x {seq} x {dim}, {how}, {}, largest error {error:.1e}",
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
