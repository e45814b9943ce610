//! Products of tiles whose extents are sums of two or three powers of two.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("extents/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(products: f16 f32);
    each!(wide_products: f16 bf16 f8e4m3fn);
    suite.test("extents/uneven_bytes", uneven_bytes);
    suite.test("extents/bytes_at_eights", bytes_at_eights);
    each!(transposed_parts: f16 tf32);
    suite.test("extents/moved_sums", moved_sums);
    suite.test("extents/second_stages", second_stages);
    suite.test("extents/batches", batches);
}

/// The product of two matrices; `turned`: the right one has its rows along the terms, and its tiles
/// are transposed.
fn product<T: MmaInput<T, f32>>(
    a: Array<T, 2>,
    b: Array<T, 2>,
    y: ArrayMut<f32, 2>,
    ([m, n, k], turned): ([usize; 3], bool),
) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let sum = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |sum, step| {
        let right = if turned { b.load((j, step), [n, k]).transpose() } else { b.load((step, j), [k, n]) };
        ct::mma(a.load((i, step), [m, k]), right, sum)
    });
    y.store((i, j), sum);
}

/// Whole numbers for matrices of m x k and n x k elements, and the product of the first and the
/// second one transposed.
fn factors<T: Element>([m, n, k]: [usize; 3]) -> ([Vec<T>; 2], Vec<f32>) {
    let data = [random::<T>(1, m * k, Spread::Whole(4)), random::<T>(2, n * k, Spread::Whole(4))];
    let numbers = data.each_ref().map(|list| list.iter().map(|x| x.to_f64()).collect::<Vec<f64>>());
    let sum = |i: usize, j: usize| (0..k).map(|p| numbers[0][i * k + p] * numbers[1][j * k + p]).sum::<f64>() as f32;
    (data, (0..m * n).map(|at| sum(at / n, at % n)).collect())
}

/// Products whose extents are cut along each axis, in a loop.
fn products<T: MmaInput<T, f32>>(session: Session) -> Result<()> {
    let [m, n, k] = [70, 130, 60];
    let (data, want) = factors::<T>([m, n, k]);
    let (a, b) = (session.array(&data[0], [m, k])?, session.array(&data[1], [n, k])?);
    for tile in [[48, 96, 32], [64, 192, 48], [80, 40, 64]] {
        let mut y = session.unwritten::<f32, 2>([m, n])?;
        let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
        session.launch(product::<T>, grid, (&a, &b, &mut y, Constant((tile, true))))?;
        session.check(&format!("{tile:?}"), &y, &|[i, j]| Want::exactly(want[i * n + j]))?;
    }
    Ok(())
}

/// Products of arrays that TMA knows, of which each one is as wide as an instruction may be, in
/// both orders.
fn wide_products<T: MmaInput<T, f32>>(session: Session) -> Result<()> {
    let [m, n, k] = [208, 208, 112];
    let (data, want) = factors::<T>([m, n, k]);
    let (a, b) = (session.array(&data[0], [m, k])?, session.array(&data[1], [n, k])?);
    let rows: Vec<T> = (0..n * k).map(|at| data[1][at % n * k + at / n]).collect();
    let rows = session.array(&rows, [k, n])?;
    for tile in [[128, 192, 64], [192, 96, 32], [64, 176, 96]] {
        let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
        for by_columns in [false, true] {
            let mut y = session.unwritten::<f32, 2>([m, n])?;
            let b = if by_columns { b.transpose()? } else { rows.view() };
            session.launch(product::<T>, grid, (&a, b, &mut y, Constant((tile, false))))?;
            session
                .check(&format!("{tile:?}, by columns: {by_columns}"), &y, &|[i, j]| Want::exactly(want[i * n + j]))?;
        }
    }
    Ok(())
}

/// Bytes that are negated on their way to a product whose terms are cut into pieces: the pieces may
/// go to the tensor cores in different ways, with different threads for the rows of the sum.
fn uneven_bytes(session: Session) -> Result<()> {
    fn kernel(a: Array<i8, 2>, b: Array<i8, 2>, y: ArrayMut<i32, 2>, [m, n, k]: [usize; 3]) {
        let j = ct::bid(0);
        let sum = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<i32, 2>([m, n]), |sum, step| {
            ct::mma(-a.load((0, step), [m, k]), b.load((step, j), [k, n]), sum)
        });
        y.store((0, j), sum + sum.reduce_max(1));
    }
    let [m, n] = [40, 200];
    for k in [40, 136, 400] {
        let data = [random::<i8>(1, m * k, Spread::Whole(4)), random::<i8>(2, n * k, Spread::Whole(4))];
        let (a, b) = (session.array(&data[0], [m, k])?, session.array(&data[1], [n, k])?);
        let term = |i: usize, j: usize, p: usize| -i32::from(data[0][i * k + p]) * i32::from(data[1][j * k + p]);
        let sums: Vec<i32> = (0..m * n).map(|at| (0..k).map(|p| term(at / n, at % n, p)).sum()).collect();
        for tile in [[128, 96, 192], [64, 96, 160], [128, 64, 96]] {
            // tileiras takes long, and of each kernel all that is to be seen there is that it takes
            // it.
            if session.through_tile_ir() && session.only_compiles() && (k, tile) != (40, [128, 64, 96]) {
                continue;
            }
            let mut y = session.unwritten::<i32, 2>([m, n])?;
            session.launch(kernel, [n.div_ceil(tile[1])], (&a, b.transpose()?, &mut y, Constant(tile)))?;
            session.check(&format!("{k}, {tile:?}"), &y, &|[i, j]| {
                // Columns beyond the array are sums of nothing.
                let first = j / tile[1] * tile[1];
                let inside = &sums[i * n + first..i * n + (first + tile[1]).min(n)];
                let most = inside.iter().copied().chain((first + tile[1] > n).then_some(0)).max().unwrap_or(0);
                Want::exactly(sums[i * n + j] + most)
            })?;
        }
    }
    Ok(())
}

/// Products of bytes whose terms begin at multiples of 8 of them, where TMA has no boxes.
fn bytes_at_eights(session: Session) -> Result<()> {
    fn kernel(a: Array<i8, 2>, b: Array<i8, 2>, y: ArrayMut<i32, 2>, [m, n, k]: [usize; 3]) {
        let sum = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<i32, 2>([m, n]), |sum, step| {
            ct::mma(a.load((ct::bid(0), step), [m, k]), b.load((ct::bid(1), step), [n, k]).transpose(), sum)
        });
        y.store((ct::bid(0), ct::bid(1)), sum);
    }
    let [m, n, k] = [128, 64, 160];
    let data = [random::<i8>(1, m * k, Spread::Any), random::<i8>(2, n * k, Spread::Any)];
    let (a, b) = (session.array(&data[0], [m, k])?, session.array(&data[1], [n, k])?);
    for tile in [[128, 64, 40], [64, 32, 24], [64, 64, 48]] {
        let mut y = session.unwritten::<i32, 2>([m, n])?;
        session.launch(kernel, [m / tile[0], n / tile[1]], (&a, &b, &mut y, Constant(tile)))?;
        session.check(&format!("{tile:?}"), &y, &|[i, j]| {
            let term = |p: usize| i32::from(data[0][i * k + p]) * i32::from(data[1][j * k + p]);
            Want::exactly((0..k).map(term).sum::<i32>())
        })?;
    }
    Ok(())
}

/// Products of bytes of which a piece needs the sum in other threads than the previous piece: the
/// sum is converted through shared memory, which also has operands.
fn moved_sums(session: Session) -> Result<()> {
    fn kernel(a: Array<i8, 2>, b: Array<i8, 2>, y: ArrayMut<i32, 2>, [m, n, k]: [usize; 3]) {
        let sum = ct::fold(..a.num_tiles(0, [k, m]), ct::zeros::<i32, 2>([m, n]), |sum, step| {
            let (left, right) = (a.load((step, ct::bid(0)), [k, m]), b.load((step, ct::bid(1)), [k, n]));
            let twice = ct::mma(left.transpose(), right, sum);
            ct::mma(left.transpose(), right, twice)
        });
        y.store((ct::bid(0), ct::bid(1)), sum);
    }
    let [m, n, k] = [256, 48, 224];
    let data = [random::<i8>(1, k * m, Spread::Whole(4)), random::<i8>(2, k * n, Spread::Whole(4))];
    let (a, b) = (session.array(&data[0], [k, m])?, session.array(&data[1], [k, n])?);
    for tile in [[256, 32, 112], [128, 48, 80]] {
        let mut y = session.unwritten::<i32, 2>([m, n])?;
        session.launch(kernel, [m / tile[0], n.div_ceil(tile[1])], (&a, &b, &mut y, Constant(tile)))?;
        session.check(&format!("{tile:?}"), &y, &|[i, j]| {
            let term = |p: usize| i32::from(data[0][p * m + i]) * i32::from(data[1][p * n + j]);
            Want::exactly(2 * (0..k).map(term).sum::<i32>())
        })?;
    }
    Ok(())
}

/// A product that is cut into one of many rows and one of few, which is computed transposed: they
/// want the same right operand in different forms.
fn transposed_parts<T: MmaInput<T, f32>>(session: Session) -> Result<()>
where
    f32: CastTo<T>,
{
    fn kernel<T: MmaInput<T, f32>>(a: Array<f32, 2>, b: Array<f32, 2>, y: ArrayMut<f32, 2>, [m, n, k]: [usize; 3])
    where
        f32: CastTo<T>,
    {
        let sum = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |sum, step| {
            let (left, right) = (a.load((ct::bid(0), step), [m, k]), b.load((step, ct::bid(1)), [k, n]));
            ct::mma((-left).cast::<T>(), right.cast::<T>(), sum)
        });
        y.store((ct::bid(0), ct::bid(1)), sum);
    }
    let [m, n, k] = [192, 160, 24];
    let (data, want) = factors::<f32>([m, n, k]);
    let a = session.array(&data[0], [m, k])?;
    let rows: Vec<f32> = (0..n * k).map(|at| data[1][at % n * k + at / n]).collect();
    let b = session.array(&rows, [k, n])?;
    for (warps, tile) in [(16, [192, 128, 8]), (16, [192, 128, 16]), (8, [96, 128, 16])] {
        let mut y = session.unwritten::<f32, 2>([m, n])?;
        let hints = ct::Hints::new().num_warps(warps);
        let grid = [m / tile[0], n.div_ceil(tile[1])];
        session.launch_with(hints, kernel::<T>, grid, (&a, &b, &mut y, Constant(tile)))?;
        session.check(&format!("{warps} warps, {tile:?}"), &y, &|[i, j]| Want::exactly(0.0 - want[i * n + j]))?;
    }
    Ok(())
}

/// Two dependent products. In addition to the shared tile, two stages of the other tiles fit only
/// if the staging buffer of the result is halved. A block with several tiles of rows needs two
/// stages of the others, and the next rows are loaded during its work.
fn second_stages(session: Session) -> Result<()> {
    type Arrays = (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>);
    fn rows((q, k, v): Arrays, y: ArrayMut<f32, 2>, i: Scalar<i32>, tile: usize) {
        let q = q.load((i, 0), [128, 128]);
        let sum = ct::fold(..k.num_tiles(0, [tile, 128]), ct::zeros::<f32, 2>([128, 128]), |sum, j| {
            let [k, v] = [k, v].map(|x| x.load((j, 0), [tile, 128]));
            let scores = ct::mma(q, k.transpose(), ct::zeros::<f32, 2>([128, tile]));
            ct::mma((scores * 0.25).cast::<f16>(), v, sum)
        });
        y.store((i, 0), sum);
    }
    fn kernel(arrays: Arrays, y: ArrayMut<f32, 2>) {
        rows(arrays, y, ct::bid(0), 176);
    }
    fn in_turn(arrays: Arrays, y: ArrayMut<f32, 2>) {
        let every = ct::range(ct::bid(0), arrays.0.num_tiles(0, [128, 128])).step(ct::num_blocks(0));
        ct::fold(every, (), |(), i| rows(arrays, y, i, 128));
    }
    let [rows, keys, dim] = [256, 500, 128];
    let (data, scores) = factors::<f16>([rows, keys, dim]);
    let values = random::<f16>(3, keys * dim, Spread::Whole(4));
    let (q, k) = (session.array(&data[0], [rows, dim])?, session.array(&data[1], [keys, dim])?);
    let (v, mut y) = (session.array(&values, [keys, dim])?, session.unwritten::<f32, 2>([rows, dim])?);
    let want = |[i, j]: [usize; 2]| {
        let term = |key: usize| f64::from(scores[i * keys + key]) * 0.25 * values[key * dim + j].to_f64();
        Want::exactly((0..keys).map(term).sum::<f64>() as f32)
    };
    session.launch(kernel, [rows / 128], ((&q, &k, &v), &mut y))?;
    session.check("sums", &y, &want)?;
    let mut z = session.unwritten::<f32, 2>([rows, dim])?;
    session.launch(in_turn, [1], ((&q, &k, &v), &mut z))?;
    session.check("sums in turn", &z, &want)?;
    if let Session::Assemble(ct::Target::SM_90A, _) = session {
        let stages =
            |line: &str| line.strip_prefix("pipeline ")?.split_once(": ")?.1.split_once(' ')?.0.parse::<u32>().ok();
        let text = ct::inspect(in_turn, ((&q, &k, &v), &mut z)).target(ct::Target::SM_90A).schedule()?;
        ensure!(text.lines().filter_map(stages).eq([2, 2, 2]), "stages of rows in turn: {text}");
        let text = ct::inspect(kernel, ((&q, &k, &v), &mut y)).target(ct::Target::SM_90A).schedule()?;
        let stages: Vec<u32> = text.lines().filter_map(stages).collect();
        ensure!(stages == [1, 2, 2] && text.contains("tma_store"), "{stages:?} stages: {text}");
        ensure!(text.contains("pending 1"), "no product runs on beside what follows the other one: {text}");
    }
    Ok(())
}

/// Products of bytes in batches.
fn batches(session: Session) -> Result<()> {
    fn kernel(a: Array<i8, 3>, b: Array<u8, 3>, y: ArrayMut<i32, 3>) {
        let (a, b) = (a.load([0, 0, 0], [3, 24, 96]), b.load([0, 0, 0], [1, 96, 40]));
        y.store([0, 0, 0], ct::matmul(a, b));
    }
    let (left, right) = (random::<i8>(1, 3 * 24 * 96, Spread::Any), random::<u8>(2, 96 * 40, Spread::Any));
    let (a, b) = (session.array(&left, [3, 24, 96])?, session.array(&right, [1, 96, 40])?);
    let mut y = session.unwritten::<i32, 3>([3, 24, 40])?;
    session.launch(kernel, [1], (&a, &b, &mut y))?;
    session.check("products", &y, &|[batch, i, j]| {
        let row = &left[(batch * 24 + i) * 96..][..96];
        Want::exactly(row.iter().enumerate().map(|(p, &x)| i32::from(x) * i32::from(right[p * 40 + j])).sum::<i32>())
    })
}
