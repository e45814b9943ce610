//! Small tests for planted faults: products, attention and sums with the tolerances of the suite,
//! at extents whose interpretation takes milliseconds.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::MmaInput;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Want};

/// Error of a product of fractions, as a fraction of the sum of magnitudes.
const PRODUCT_TOLERANCE: f64 = 1e-5;
/// Absolute error of attention of numbers from -1 to 1.
const ATTENTION_TOLERANCE: f64 = 2e-3;
/// Unit in the last place of f32 below 1.
const UNIT: f64 = 1.0 / (1 << 23) as f64;

/// Rows, columns and terms of a product.
const EXTENTS: [usize; 3] = [24, 20, 40];
/// Tile of a product.
const TILE: [usize; 3] = [16, 16, 16];

fn multiplied<T: MmaInput<T, f32>>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<f32, 2>, [m, n, k]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let acc = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |acc, l| {
        ct::mma(a.load((i, l), [m, k]), b.load((l, j), [k, n]), acc)
    });
    c.store((i, j), acc);
}

/// The product of two matrices.
pub fn product<T: MmaInput<T, f32>>(session: Session, spread: Spread) -> Result<()> {
    let [m, n, k] = EXTENTS;
    let (a, b) = (random::<T>(1, m * k, spread), random::<T>(2, k * n, spread));
    let (device_a, device_b) = (session.array(&a, [m, k])?, session.array(&b, [k, n])?);
    let mut c = session.unwritten::<f32, 2>([m, n])?;
    let grid = [m.div_ceil(TILE[0]), n.div_ceil(TILE[1])];
    session.launch(multiplied::<T>, grid, (&device_a, &device_b, &mut c, Constant(TILE)))?;
    session.check("product", &c, &|[i, j]| {
        let terms = (0..k).map(|l| a[i * k + l].to_f64() * b[l * n + j].to_f64());
        match spread {
            Spread::Whole(_) => Want::SumOf(terms.sum()),
            _ => {
                let magnitude: f64 = terms.clone().map(f64::abs).sum();
                Want::Within { value: terms.sum(), error: magnitude * PRODUCT_TOLERANCE }
            }
        }
    })
}

/// A product of f32 as three products of bf16: of both leading parts, and of each with the
/// remainder of the other one.
pub fn remainders(session: Session) -> Result<()> {
    fn kernel(a: Array<f32, 2>, b: Array<f32, 2>, c: ArrayMut<f32, 2>, [m, n, k]: [usize; 3]) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let parts = |x: Tile<f32, 2>| {
            let first = x.cast::<bf16>();
            (first, (x - first.cast::<f32>()).cast::<bf16>())
        };
        let acc = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |acc, l| {
            let ((a, small_a), (b, small_b)) = (parts(a.load((i, l), [m, k])), parts(b.load((l, j), [k, n])));
            ct::mma(a, b, ct::mma(a, small_b, ct::mma(small_a, b, acc)))
        });
        c.store((i, j), acc);
    }
    let [m, n, k] = EXTENTS;
    let [a, b] = [(1, m * k), (2, k * n)].map(|(seed, count)| random::<f32>(seed, count, Spread::Moderate));
    let (device_a, device_b) = (session.array(&a, [m, k])?, session.array(&b, [k, n])?);
    let mut c = session.unwritten::<f32, 2>([m, n])?;
    let grid = [m.div_ceil(TILE[0]), n.div_ceil(TILE[1])];
    session.launch(kernel, grid, (&device_a, &device_b, &mut c, Constant(TILE)))?;
    session.check("product of parts", &c, &|[i, j]| {
        let terms = (0..k).map(|l| f64::from(a[i * k + l]) * f64::from(b[l * n + j]));
        let magnitude: f64 = terms.clone().map(f64::abs).sum();
        // The product of both remainders is left out.
        Want::Within { value: terms.sum(), error: magnitude * (PRODUCT_TOLERANCE + 2f64.powi(-16)) }
    })
}

/// Attention with the online softmax (Milakov and Gimelshein, 2018), by tiles of keys; `causal`:
/// keys up to the row.
pub fn attention(session: Session, causal: bool) -> Result<()> {
    type Inputs = (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>);
    fn kernel((q, k, v): Inputs, y: ArrayMut<f32, 2>, ([m, n, d], causal): ([usize; 3], bool)) {
        let block = ct::bid(0);
        let queries = q.load((block, 0), [m, d]);
        let row = (block * m + ct::arange(0..m)).unsqueeze(1);
        let start = (ct::zeros::<f32, 2>([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros::<f32, 2>([m, 1]));
        let (sum, _, weight) = ct::fold(..k.num_tiles(0, [n, d]), start, |(sum, most, weight), step| {
            let scores = ct::matmul(queries, k.load((step, 0), [n, d]).transpose()) * 0.25;
            let key = (ct::arange(0..n) + step * n).unsqueeze(0);
            let inside = key.lt(k.extent(0)).broadcast_to([m, n]);
            let inside = if causal { inside & key.le(row) } else { inside };
            let scores = inside.select(scores, f32::NEG_INFINITY);
            let next = most.max(scores.reduce_max(1));
            let (weights, keep) = ((scores - next).exp(), (most - next).exp());
            let sum = ct::mma(weights.cast::<f16>(), v.load((step, 0), [n, d]), sum * keep);
            (sum, next, weight * keep + weights.sum(1))
        });
        y.store((block, 0), sum / weight);
    }
    let [queries, keys, d] = [20, 28, 16];
    let [q, k, v] = [(1, queries), (2, keys), (3, keys)].map(|(seed, rows)| {
        let numbers = random::<f32>(seed, rows * d, Spread::Whole(8));
        numbers.iter().map(|x| f16::from_f32(x / 8.0)).collect::<Vec<f16>>()
    });
    let arrays = [(&q, queries), (&k, keys), (&v, keys)].map(|(list, rows)| session.array(list, [rows, d]));
    let [q_array, k_array, v_array] = arrays;
    let mut y = session.unwritten::<f32, 2>([queries, d])?;
    let args = ((&q_array?, &k_array?, &v_array?), &mut y, Constant(([16, 16, d], causal)));
    session.launch(kernel, [queries.div_ceil(16)], args)?;
    let number = |list: &[f16], row: usize, l: usize| list[row * d + l].to_f64();
    let want = |i: usize, j: usize| {
        let seen = 0..if causal { i + 1 } else { keys };
        let score = |key: usize| (0..d).map(|l| number(&q, i, l) * number(&k, key, l)).sum::<f64>() * 0.25;
        let weights: Vec<f64> = seen.map(|key| score(key).exp()).collect();
        let sum: f64 = weights.iter().enumerate().map(|(key, weight)| weight * number(&v, key, j)).sum();
        sum / weights.iter().sum::<f64>()
    };
    session.check("attention", &y, &|[i, j]| Want::Within { value: want(i, j), error: ATTENTION_TOLERANCE })
}

/// Sums of rows by tiles.
pub fn sums(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 1>, [m, n]: [usize; 2]) {
        let block = ct::bid(0);
        let sum = ct::fold(..x.num_tiles(1, [m, n]), ct::zeros::<f32, 1>([m]), |sum, i| {
            sum + x.load((block, i), [m, n]).sum(1).reshape([m])
        });
        y.store(block, sum);
    }
    let [rows, columns] = [12, 300];
    let x = random::<f32>(1, rows * columns, Spread::Moderate);
    let (array, mut y) = (session.array(&x, [rows, columns])?, session.unwritten::<f32, 1>([rows])?);
    session.launch(kernel, [rows.div_ceil(8)], (&array, &mut y, Constant([8, 128])))?;
    session.check("sums", &y, &|[i]| {
        let row = x[i * columns..][..columns].iter().map(|&x| f64::from(x));
        let magnitude: f64 = row.clone().map(f64::abs).sum();
        Want::Within { value: row.sum(), error: magnitude * UNIT * (columns as f64).sqrt() }
    })
}
