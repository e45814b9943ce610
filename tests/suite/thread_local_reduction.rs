//! Sums of rows that loops with products carry: on Hopper as thread-local partial sums.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::expected::{Product, numbers};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("thread_local_reduction/plain", plain::<128>);
    suite.test("thread_local_reduction/uneven", plain::<192>);
    suite.test("thread_local_reduction/two", two);
    suite.test("thread_local_reduction/softmax/scale", |session| softmax(session, 0.125));
    suite.test("thread_local_reduction/softmax/flat", |session| softmax(session, 0.015625));
}

const ROWS: usize = 128;
/// Terms of the products.
const DEPTH: usize = 64;
/// Tiles that the loops go past: of some none at all.
const COUNTS: [usize; 4] = [0, 1, 2, 5];

/// Sums of products in tiles of `COLUMNS` columns, at least 3.
fn plain<const COLUMNS: usize>(session: Session) -> Result<()> {
    fn kernel<const COLUMNS: usize>(
        (a, b): (Array<f16, 2>, Array<f16, 2>),
        y: ArrayMut<f32, 2>,
        counts: Array<i32, 1>,
    ) {
        let block = ct::bid(0);
        let a = a.load((block, 0), [ROWS, DEPTH]);
        let sum = ct::fold(..counts.load_scalar(block), ct::full([ROWS, 1], 3.0), |sum, j| {
            let b = b.load((0, j), [DEPTH, COLUMNS]);
            sum + ct::mma(a, b, ct::zeros::<f32, 2>([ROWS, COLUMNS])).sum(1)
        });
        y.store((block, 0), sum);
    }
    let columns = 5 * COLUMNS - 8;
    let (a, b) = operands(columns);
    let (device_a, device_b) = (session.array(&a, [COUNTS.len() * ROWS, DEPTH])?, session.array(&b, [DEPTH, columns])?);
    let counts = session.array(&COUNTS.map(|count| count as i32), [COUNTS.len()])?;
    let mut y = session.unwritten::<f32, 2>([COUNTS.len() * ROWS, 1])?;
    session.launch(kernel::<COLUMNS>, [COUNTS.len()], ((&device_a, &device_b), &mut y, &counts))?;
    let product = product(session, &a, &b, columns);
    session.check("sums", &y, &|[i, _]| {
        let seen = (COUNTS[i / ROWS] * COLUMNS).min(columns);
        Want::SumOf(3.0 + (0..seen).map(|j| product.at([i, j])).sum::<f64>())
    })
}

/// Two sums of one loop, one of them halved each time.
fn two(session: Session) -> Result<()> {
    fn kernel((a, b): (Array<f16, 2>, Array<f16, 2>), y: ArrayMut<f32, 2>, counts: Array<i32, 1>) {
        let block = ct::bid(0);
        let a = a.load((block, 0), [ROWS, DEPTH]);
        let start = (ct::zeros([ROWS, 1]), ct::full([ROWS, 1], -8.0));
        let (sum, faded) = ct::fold(..counts.load_scalar(block), start, |(sum, faded), j| {
            let b = b.load((0, j), [DEPTH, 128]);
            let scores = ct::mma(a, b, ct::zeros::<f32, 2>([ROWS, 128]));
            (scores.abs().sum(1) + sum, faded * 0.5 + scores.sum(1))
        });
        y.store((block, 0), ct::cat([sum, faded], 1));
    }
    let columns = 5 * 128;
    let (a, b) = operands(columns);
    let (device_a, device_b) = (session.array(&a, [COUNTS.len() * ROWS, DEPTH])?, session.array(&b, [DEPTH, columns])?);
    let counts = session.array(&COUNTS.map(|count| count as i32), [COUNTS.len()])?;
    let mut y = session.unwritten::<f32, 2>([COUNTS.len() * ROWS, 2])?;
    session.launch(kernel, [COUNTS.len()], ((&device_a, &device_b), &mut y, &counts))?;
    let product = product(session, &a, &b, columns);
    session.check("both", &y, &|[i, which]| {
        let tile = |j: usize| (128 * j..128 * (j + 1)).map(|j| product.at([i, j]));
        let whole = |sum: f64, j: usize| sum + tile(j).map(f64::abs).sum::<f64>();
        let halved = |sum: f64, j: usize| sum / 2.0 + tile(j).sum::<f64>();
        let tiles = 0..COUNTS[i / ROWS];
        Want::SumOf(if which == 0 { tiles.fold(0.0, whole) } else { tiles.fold(-8.0, halved) })
    })
}

/// The denominators of a softmax, and their weights times a matrix.
fn softmax(session: Session, scale: f32) -> Result<()> {
    fn kernel(
        (a, b, v): (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>),
        (y, sums): (ArrayMut<f32, 2>, ArrayMut<f32, 2>),
        scale: Scalar<f32>,
    ) {
        let block = ct::bid(0);
        let a = a.load((block, 0), [ROWS, DEPTH]);
        let start = (ct::zeros([ROWS, DEPTH]), ct::full([ROWS, 1], f32::NEG_INFINITY), ct::zeros([ROWS, 1]));
        let (acc, _, sum) = ct::fold(..b.num_tiles(1, [DEPTH, 128]), start, |(acc, max, sum), j| {
            let (b, v) = (b.load((0, j), [DEPTH, 128]), v.load((j, 0), [128, DEPTH]));
            let scores = ct::mma(a, b, ct::zeros::<f32, 2>([ROWS, 128]));
            let above = max.max(scores.reduce_max(1));
            let fade = ((max - above) * scale.max(0.0)).exp2();
            let weights = ((scores - above) * scale).exp2();
            (ct::mma(weights.cast::<f16>(), v, acc * fade), above, sum * fade + weights.sum(1))
        });
        y.store((block, 0), acc / sum);
        sums.store((block, 0), sum);
    }
    let (rows, columns) = (2 * ROWS, 4 * 128);
    let (a, b) = operands(columns);
    let v = random::<f16>(7, columns * DEPTH, Spread::Whole(2));
    let (device_a, device_b) =
        (session.array(&a[..rows * DEPTH], [rows, DEPTH])?, session.array(&b, [DEPTH, columns])?);
    let device_v = session.array(&v, [columns, DEPTH])?;
    let (mut y, mut sums) = (session.unwritten::<f32, 2>([rows, DEPTH])?, session.unwritten::<f32, 2>([rows, 1])?);
    session.launch(kernel, [2], ((&device_a, &device_b, &device_v), (&mut y, &mut sums), scale))?;
    let (product, v) = (product(session, &a, &b, columns), numbers(&v));
    let weights = |i: usize| {
        let most = (0..columns).map(|j| product.at([i, j])).fold(f64::NEG_INFINITY, f64::max);
        (0..columns).map(|j| ((product.at([i, j]) - most) * f64::from(scale)).exp2()).collect::<Vec<f64>>()
    };
    let weights: Vec<Vec<f64>> = session.expected(|| (0..rows).map(weights).collect());
    let totals: Vec<f64> = weights.iter().map(|weights| weights.iter().sum()).collect();
    let values =
        Product::new(session, [rows, DEPTH, columns], |i, j| weights[i][j] / totals[i], |j, l| v[j * DEPTH + l]);
    session.check("sums", &sums, &|[i, _]| Want::Within { value: totals[i], error: 1e-5 * totals[i] })?;
    session.check("products", &y, &|at| Want::Within { value: values.at(at), error: 4e-3 })
}

/// Matrices of small whole numbers, so that sums are exact.
fn operands(columns: usize) -> (Vec<f16>, Vec<f16>) {
    let a = random::<f16>(5, COUNTS.len() * ROWS * DEPTH, Spread::Whole(2));
    (a, random::<f16>(6, DEPTH * columns, Spread::Whole(2)))
}

fn product(session: Session, a: &[f16], b: &[f16], columns: usize) -> Product {
    session.expected(|| Product::of(&numbers(a), &numbers(b), [COUNTS.len() * ROWS, columns, DEPTH]))
}
