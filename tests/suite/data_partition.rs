//! Tiles whose rows three groups of warps have a third of each, and kernels in which they cannot.
//! All numbers are small and whole, so that every sum is exact.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::chained::{number, sum};
use crate::expected::{Product, matrix};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("data_partition/scores", scores);
    suite.test("data_partition/epilogue", epilogue);
    suite.test("data_partition/stacked", stacked);
    suite.test("data_partition/rejected", rejected);
}

fn half(x: i32) -> f16 {
    f16::from_f32(x as f32)
}

const TWELVE: ct::Hints = ct::Hints::new().num_warps(12);

/// Dependent products with a limit of keys for each row; each block computes one tile after
/// another.
fn scores(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, y: ArrayMut<f32, 2>, ([m, n, d], causal): ([usize; 3], bool)) {
        let keys = b.extent(0);
        ct::fold(ct::range(ct::bid(0), y.num_tiles(0, [m, d])).step(ct::num_blocks(0)), (), |(), i| {
            let left = a.load((i, 0), [m, d]);
            let rows = i * m + ct::arange(0..m);
            let some = if causal { ((i * m + m).min(keys) + (n - 1)) / n } else { (keys + (n - 1)) / n };
            let acc = ct::fold(..some, ct::zeros::<f32, 2>([m, d]), |acc, j| {
                let tile = b.load((j, 0), [n, d]);
                let scores = ct::mma(left, tile.transpose(), ct::zeros::<f32, 2>([m, n]));
                let columns = (j * n + ct::arange(0..n)).unsqueeze(0);
                let seen = if causal { columns.le(rows.unsqueeze(1)) } else { columns.lt(ct::full([m, 1], keys)) };
                let scores = ct::select(seen, scores, 0.0);
                ct::mma(scores.cast::<f16>(), tile, acc * 0.5)
            });
            y.store((i, 0), acc);
        });
    }
    for ([rows, keys, m, n, d], causal, hints) in [
        ([500, 200, 192, 64, 64], false, ct::Hints::new()),
        ([500, 500, 192, 64, 64], true, TWELVE),
        ([150, 150, 192, 48, 64], true, ct::Hints::new()),
        ([193, 90, 192, 32, 128], false, TWELVE),
        ([800, 130, 384, 64, 64], false, ct::Hints::new().num_warps(24)),
    ] {
        let (a, b) = (|i: usize, l: usize| number(i * d + l, 1), |j: usize, l: usize| number(j * d + l, 2));
        let device_a = session.device().from_fn([rows, d], |[i, l]| half(a(i, l)))?;
        let device_b = session.device().from_fn([keys, d], |[j, l]| half(b(j, l)))?;
        let mut y = session.unwritten::<f32, 2>([rows, d])?;
        let arguments = (&device_a, &device_b, &mut y, ct::Constant(([m, n, d], causal)));
        session.launch_with(hints, kernel, [2], arguments)?;
        let b = matrix([keys, d], |j, l| f64::from(b(j, l)));
        let scores = Product::new(session, [rows, keys, d], |i, l| f64::from(a(i, l)), |l, j| b[j * d + l]);
        // The addend of each tile of keys is halved by each later tile.
        let score = |i: usize, j: usize| {
            let end = if causal { (i / m * m + m).min(keys) } else { keys };
            let (tiles, seen) = (end.div_ceil(n), if causal { (i + 1).min(keys) } else { keys });
            if j < seen { scores.at([i, j]) * 0.5f64.powi((tiles - 1 - j / n) as i32) } else { 0.0 }
        };
        let sums = Product::new(session, [rows, d, keys], score, |j, c| b[j * d + c]);
        session.check("sums", &y, &|at| Want::exactly(sums.at(at) as f32))?;
    }
    Ok(())
}

/// A product with rows of other arrays in its epilogue: stored directly, transposed, and row by
/// row.
fn epilogue(session: Session) -> Result<()> {
    fn kernel(
        (a, b, bias): (Array<f16, 2>, Array<f16, 2>, Array<f32, 1>),
        (y, turned, most): (ArrayMut<f32, 2>, Option<ArrayMut<f32, 2>>, ArrayMut<f32, 2>),
        [m, n, k]: [usize; 3],
    ) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let acc = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros([m, n]), |acc, l| {
            ct::mma(a.load((i, l), [m, k]), b.load((l, j), [k, n]), acc)
        });
        let row = (i * m + ct::arange(0..m)).cast::<f32>() + bias.load(i, [m]);
        let out = acc + row.unsqueeze(1);
        y.store((i, j), out);
        most.store((i, j), out.reduce_max(1).reshape([m, 1]));
        turned.iter().for_each(|turned| turned.store((j, i), out.transpose()));
    }
    for ([rows, columns, terms, m, n, k], warps, turns) in [
        ([500, 150, 200, 192, 64, 64], 12, false),
        ([192, 64, 70, 192, 64, 32], 12, true),
        ([200, 100, 64, 192, 96, 64], 12, false),
        ([700, 130, 100, 384, 128, 64], 24, false),
    ] {
        let (a, b) = (|i: usize, l: usize| number(i * terms + l, 3), |l: usize, j: usize| number(l * columns + j, 4));
        let bias = |i: usize| number(i, 5) * 3;
        let device_a = session.device().from_fn([rows, terms], |[i, l]| half(a(i, l)))?;
        let device_b = session.device().from_fn([terms, columns], |[l, j]| half(b(l, j)))?;
        let device_bias = session.device().from_fn([rows], |[i]| bias(i) as f32)?;
        let [mut y, mut turned] =
            [session.unwritten::<f32, 2>([rows, columns])?, session.unwritten::<f32, 2>([columns, rows])?];
        let tiles = columns.div_ceil(n);
        let mut most = session.unwritten::<f32, 2>([rows, tiles])?;
        let grid = [rows.div_ceil(m), tiles];
        let arguments = (
            (&device_a, &device_b, &device_bias),
            (&mut y, turns.then_some(&mut turned), &mut most),
            ct::Constant([m, n, k]),
        );
        session.launch_with(ct::Hints::new().num_warps(warps), kernel, grid, arguments)?;
        let sides = [rows, columns, terms];
        let product = Product::new(session, sides, |i, l| f64::from(a(i, l)), |l, j| f64::from(b(l, j)));
        let want = |i: usize, j: usize| match j < columns {
            true => product.at([i, j]) + i as f64 + f64::from(bias(i)),
            // Outside of the second array there are zeros.
            false => i as f64 + f64::from(bias(i)),
        };
        session.check("sums", &y, &|[i, j]| Want::exactly(want(i, j) as f32))?;
        session.check("largest", &most, &|[i, tile]| {
            let all = (tile * n..(tile + 1) * n).map(|j| want(i, j)).fold(f64::NEG_INFINITY, f64::max);
            Want::exactly(all as f32)
        })?;
        if turns {
            session.check("turned", &turned, &|[j, i]| Want::exactly(want(i, j) as f32))?;
        }
    }
    Ok(())
}

/// Products of a batch, with indices of 64 bits.
fn stacked(session: Session) -> Result<()> {
    fn kernel(a: Array<bf16, 3>, b: Array<bf16, 3>, y: ArrayMut<f32, 3>, [m, n, k]: [usize; 3]) {
        let (batch, i) = (ct::bid(1), ct::bid(0).cast::<i64>());
        let acc = ct::fold(..a.num_tiles(2, [1, m, k]), ct::zeros([1, m, n]), |acc, l| {
            let left = a.load((batch.cast::<i64>(), i, l.cast::<i64>()), [1, m, k]);
            ct::mma(left, b.load((batch, l, 0), [1, k, n]), acc)
        });
        y.store((batch.cast::<i64>(), i, ct::scalar(0i64)), acc);
    }
    let [batch, rows, columns, terms] = [3, 400, 64, 150];
    let a = |h: usize, i: usize, l: usize| number((h * rows + i) * terms + l, 6);
    let b = |h: usize, l: usize, j: usize| number((h * terms + l) * columns + j, 7);
    let single = |x: i32| bf16::from_f32(x as f32);
    let device_a = session.device().from_fn([batch, rows, terms], |[h, i, l]| single(a(h, i, l)))?;
    let device_b = session.device().from_fn([batch, terms, columns], |[h, l, j]| single(b(h, l, j)))?;
    let mut y = session.unwritten::<f32, 3>([batch, rows, columns])?;
    let arguments = (&device_a, &device_b, &mut y, ct::Constant([192, 64, 64]));
    session.launch_with(TWELVE, kernel, [rows.div_ceil(192), batch], arguments)?;
    let of_batch = |h: usize| {
        let sides = [rows, columns, terms];
        Product::new(session, sides, |i, l| f64::from(a(h, i, l)), |l, j| f64::from(b(h, l, j)))
    };
    let products: Vec<Product> = (0..batch).map(of_batch).collect();
    session.check("sums", &y, &|[h, i, j]| Want::exactly(products[h].at([i, j]) as f32))
}

/// Kernels without data partitions: a sum over rows, an array that is read and stored, a store that
/// all partitions would repeat.
fn rejected(session: Session) -> Result<()> {
    fn kernel(
        (a, b): (Array<f16, 2>, Array<f16, 2>),
        (y, total, count): (ArrayMut<f32, 2>, ArrayMut<f32, 2>, ArrayMut<f32, 1>),
        [m, n, k]: [usize; 3],
    ) {
        let i = ct::bid(0);
        let acc = ct::fold(..a.num_tiles(1, [m, k]), y.load((i, 0), [m, n]), |acc, l| {
            ct::mma(a.load((i, l), [m, k]), b.load((l, 0), [k, n]), acc)
        });
        y.store((i, 0), acc);
        total.store((i, 0), acc.sum(0).reshape([1, n]));
        count.store(i, ct::full([1], m as f32));
    }
    let ([rows, terms], [m, n, k]) = ([500, 150], [192, 64, 64]);
    let (a, b) = (|i: usize, l: usize| number(i * terms + l, 8), |l: usize, j: usize| number(l * n + j, 9));
    let device_a = session.device().from_fn([rows, terms], |[i, l]| half(a(i, l)))?;
    let device_b = session.device().from_fn([terms, n], |[l, j]| half(b(l, j)))?;
    let mut y = session.device().from_fn([rows, n], |[i, j]| (i * n + j) as f32 % 8.0)?;
    let tiles = rows.div_ceil(m);
    let (mut total, mut count) = (session.unwritten::<f32, 2>([tiles, n])?, session.unwritten::<f32, 1>([tiles])?);
    let arguments = ((&device_a, &device_b), (&mut y, &mut total, &mut count), ct::Constant([m, n, k]));
    session.launch_with(TWELVE, kernel, [tiles], arguments)?;
    let product = Product::new(session, [rows, n, terms], |i, l| f64::from(a(i, l)), |l, j| f64::from(b(l, j)));
    let want = |i: usize, j: usize| match i < rows {
        true => ((i * n + j) % 8) as f64 + product.at([i, j]),
        false => 0.0,
    };
    session.check("sums", &y, &|[i, j]| Want::exactly(want(i, j) as f32))?;
    session.check("totals", &total, &|[tile, j]| Want::exactly(sum(m, |i| want(tile * m + i, j)) as f32))?;
    session.check("counts", &count, &|[_]| Want::exactly(m as f32))
}
