//! Persistent kernels with products that one warp group can compute: on sm_90a two consumer groups
//! alternate their iterations, which must not change results.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::expected::{Product, numbers, transposed};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("pingpong/tiles", tiles::<f16, f32>);
    suite.test("pingpong/narrow_results", tiles::<bf16, bf16>);
    suite.test("pingpong/bytes", tiles::<f8e4m3fn, f16>);
    suite.test("pingpong/last_store_wins", last_store_wins);
    suite.test("pingpong/in_order", in_order);
    suite.test("pingpong/epilogues", epilogues);
    suite.test("pingpong/pipelines", pipelines);
    suite.test("pingpong/requested", requested);
}

/// Constants of a kernel: the tile, and the order of the rows of tiles.
type Form = ([usize; 3], bool);

/// The product of `a` and the transposed `b`, and a number for each column.
fn product<T: MmaInput<T, f32>, O: Element>(
    (a, b, bias): (Array<T, 2>, Array<T, 2>, Array<f32, 1>),
    c: ArrayMut<O, 2>,
    tiles: Scalar<i32>,
    ([m, n, k], backwards): Form,
) where
    f32: CastTo<O>,
{
    let columns = c.num_tiles(1, [m, n]);
    ct::fold(ct::range(ct::bid(0), tiles).step(ct::num_blocks(0)), (), |(), index| {
        let index = if backwards { tiles - 1 - index } else { index };
        let (i, j) = (index / columns, index % columns);
        let sum = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |sum, step| {
            ct::mma(a.load((i, step), [m, k]), b.load((j, step), [n, k]).transpose(), sum)
        });
        c.store((i, j), (sum + bias.load(j, [n]).unsqueeze(0)).cast::<O>());
    });
}

fn warps() -> ct::Hints {
    ct::Hints::new().num_warps(4)
}

/// The product of whole numbers, m x n, with numbers for the columns.
fn sums<T: Element>(a: &[T], b: &[T], bias: &[f32], k: usize) -> Vec<f64> {
    let (m, n) = (a.len() / k, bias.len());
    let mut sums = cutlet_reference::product(&numbers(a), &transposed(&numbers(b), [n, k]), [m, n, k]);
    for (at, sum) in sums.iter_mut().enumerate() {
        *sum += f64::from(bias[at % n]);
    }
    sums
}

/// Tiles of several extents; blocks of which some make one tile more than others, one makes all,
/// and some make none.
fn tiles<T: MmaInput<T, f32>, O: Element>(session: Session) -> Result<()>
where
    f32: CastTo<O>,
{
    let [m, n] = [136, 208];
    // Long sums use each stage of a pipeline several times, which only a GPU does fast.
    let more = if session.device() == ct::Device::cpu() { 0 } else { 288 };
    for (k, tile, backwards) in [(112, [64, 128, 64], false), (80, [64, 192, 32], true), (144, [128, 64, 64], true)] {
        let k = k + more;
        let (a, b) = (random::<T>(1, m * k, Spread::Whole(2)), random::<T>(2, n * k, Spread::Whole(2)));
        let bias = random::<f32>(3, n, Spread::Whole(9));
        let arrays = (session.array(&a, [m, k])?, session.array(&b, [n, k])?, session.array(&bias, [n])?);
        let want = session.expected(|| sums(&a, &b, &bias, k));
        let all = m.div_ceil(tile[0]) * n.div_ceil(tile[1]);
        for (blocks, pairs) in [(1, false), (3, false), (2, true), (all + 1, true)] {
            let mut c = session.unwritten::<O, 2>([m, n])?;
            let hints = if pairs { warps().num_ctas(2) } else { warps() };
            let of = ((&arrays.0, &arrays.1, &arrays.2), &mut c, all as i32, Constant((tile, backwards)));
            session.launch_with(hints, product::<T, O>, [blocks], of)?;
            session.check(&format!("{tile:?}, {k} terms, {blocks} blocks, pairs: {pairs}"), &c, &|[i, j]| {
                Want::exactly(O::from_f64(want[i * n + j]))
            })?;
        }
    }
    Ok(())
}

/// Every iteration writes the same tile: the last write remains.
fn last_store_wins(session: Session) -> Result<()> {
    fn kernel((a, b): (Array<f16, 2>, Array<f16, 2>), c: ArrayMut<f32, 2>, steps: Scalar<i32>) {
        ct::fold(..steps, (), |(), index| {
            let sum = ct::fold(..a.num_tiles(1, [64, 32]), ct::zeros::<f32, 2>([64, 128]), |sum, step| {
                ct::mma(a.load((index, step), [64, 32]), b.load((0, step), [128, 32]).transpose(), sum)
            });
            c.store((ct::bid(0), 0), sum);
        });
    }
    let [m, n, k] = [64 * 9, 128, 96];
    let (a, b) = (random::<f16>(1, m * k, Spread::Whole(4)), random::<f16>(2, n * k, Spread::Whole(4)));
    let want = session.expected(|| sums(&a, &b, &vec![0.0; n], k));
    let (device_a, device_b) = (session.array(&a, [m, k])?, session.array(&b, [n, k])?);
    for steps in [1, 2, 5, 9] {
        let mut c = session.unwritten::<f32, 2>([128, n])?;
        session.launch_with(warps(), kernel, [2], ((&device_a, &device_b), &mut c, steps as i32))?;
        let last = (steps - 1) * 64;
        session.check(&format!("{steps} steps"), &c, &|[i, j]| Want::exactly(want[(last + i % 64) * n + j] as f32))?;
    }
    Ok(())
}

/// Iterations read elements in global memory that earlier ones have written.
fn in_order(session: Session) -> Result<()> {
    fn kernel(
        (a, b): (Array<f16, 2>, Array<f16, 2>),
        sums: ArrayMut<f32, 2>,
        log: ArrayMut<f32, 1>,
        steps: Scalar<i32>,
    ) {
        ct::fold(..steps, (), |(), index| {
            let sum = ct::fold(..a.num_tiles(1, [64, 64]), ct::zeros::<f32, 2>([64, 128]), |sum, step| {
                ct::mma(a.load((index, step), [64, 64]), b.load((0, step), [128, 64]).transpose(), sum)
            });
            let before = sums.load((0, 0), [64, 128]);
            // Not the same in another order.
            sums.store((0, 0), before * 0.5 + sum);
            log.store(index, before.sum(0).sum(1).reshape([1]));
        });
    }
    let [m, n, k, steps] = [64 * 7, 128, 192, 7];
    let (a, b) = (random::<f16>(1, m * k, Spread::Whole(2)), random::<f16>(2, n * k, Spread::Whole(2)));
    let products = session.expected(|| sums(&a, &b, &vec![0.0; n], k));
    let (device_a, device_b) = (session.array(&a, [m, k])?, session.array(&b, [n, k])?);
    let (mut c, mut log) = (session.array(&vec![0.0f32; 64 * n], [64, n])?, session.unwritten::<f32, 1>([steps])?);
    session.launch_with(warps(), kernel, [1], ((&device_a, &device_b), &mut c, &mut log, steps as i32))?;
    let (mut want, mut logged) = (vec![0.0; 64 * n], Vec::new());
    for step in 0..if session.compares() { steps } else { 0 } {
        logged.push(want.iter().sum::<f64>());
        want.iter_mut().enumerate().for_each(|(at, sum)| *sum = *sum * 0.5 + products[step * 64 * n + at]);
    }
    session.check("sums", &c, &|[i, j]| Want::exactly(want[i * n + j] as f32))?;
    session.check("sums before", &log, &|[step]| Want::Within { value: logged[step], error: 1e-2 })
}

/// Epilogues with barriers of a consumer group: sums of rows and columns, and a transposed result.
fn epilogues(session: Session) -> Result<()> {
    fn kernel(
        (a, b): (Array<f16, 2>, Array<f16, 2>),
        turned: ArrayMut<f32, 2>,
        (rows, columns): (ArrayMut<f32, 1>, ArrayMut<f32, 2>),
        tiles: Scalar<i32>,
    ) {
        ct::fold(ct::range(ct::bid(0), tiles).step(ct::num_blocks(0)), (), |(), index| {
            let sum = ct::fold(..a.num_tiles(1, [64, 64]), ct::zeros::<f32, 2>([64, 128]), |sum, step| {
                ct::mma(a.load((index, step), [64, 64]), b.load((0, step), [128, 64]).transpose(), sum)
            });
            rows.store(index, sum.reduce_max(1).reshape([64]));
            columns.store((index, 0), sum.sum(0).reshape([1, 128]));
            turned.store((0, index), sum.transpose());
        });
    }
    let (tiles, n, k) = (7, 128, 192);
    let m = 64 * tiles;
    let (a, b) = (random::<f16>(1, m * k, Spread::Whole(2)), random::<f16>(2, n * k, Spread::Whole(2)));
    let want = session.expected(|| sums(&a, &b, &vec![0.0; n], k));
    let (device_a, device_b) = (session.array(&a, [m, k])?, session.array(&b, [n, k])?);
    for blocks in [1, 2] {
        let mut turned = session.unwritten::<f32, 2>([n, m])?;
        let (mut rows, mut columns) = (session.unwritten::<f32, 1>([m])?, session.unwritten::<f32, 2>([tiles, n])?);
        let results = (&mut rows, &mut columns);
        session.launch_with(warps(), kernel, [blocks], ((&device_a, &device_b), &mut turned, results, tiles as i32))?;
        session.check(&format!("{blocks} blocks"), &turned, &|[j, i]| Want::exactly(want[i * n + j] as f32))?;
        session.check(&format!("{blocks} blocks, rows"), &rows, &|[i]| {
            Want::exactly(want[i * n..(i + 1) * n].iter().fold(f64::MIN, |most, &x| most.max(x)) as f32)
        })?;
        session.check(&format!("{blocks} blocks, columns"), &columns, &|[tile, j]| {
            Want::SumOf((0..64).map(|i| want[(tile * 64 + i) * n + j]).sum())
        })?;
    }
    Ok(())
}

/// Tiles of the iteration itself, and two loops within it, go through rings of their own; the first
/// loop may have nothing to do.
fn pipelines(session: Session) -> Result<()> {
    fn kernel(
        (q, a, b): (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>),
        c: ArrayMut<f32, 2>,
        (tiles, some): (Scalar<i32>, Scalar<i32>),
    ) {
        let product = |q: Tile<f16, 2>, x: Array<f16, 2>, count: Scalar<i32>, sum| {
            ct::fold(..count, sum, |sum, step| ct::mma(q, x.load((step, 0), [128, 64]).transpose(), sum))
        };
        ct::fold(ct::range(ct::bid(0), tiles).step(ct::num_blocks(0)), (), |(), index| {
            let q = q.load((index, 0), [64, 64]);
            let sum = product(q, a, some, ct::zeros::<f32, 2>([64, 128]));
            c.store((index, 0), product(q, b, b.num_tiles(0, [128, 64]), sum));
        });
    }
    let (tiles, steps, n) = (7, 3, 128);
    let q = random::<f16>(1, 64 * tiles * 64, Spread::Whole(2));
    let [a, b] = [2, 3].map(|seed| random::<f16>(seed, steps * n * 64, Spread::Whole(2)));
    let arrays = (
        session.array(&q, [64 * tiles, 64])?,
        session.array(&a, [steps * n, 64])?,
        session.array(&b, [steps * n, 64])?,
    );
    let of = |x: &[f16], count: usize| -> Vec<f64> {
        let each = sums(&q, x, &vec![0.0; steps * n], 64);
        let sum = |i: usize, j: usize| (0..count).map(|step| each[i * steps * n + step * n + j]).sum();
        (0..64 * tiles * n).map(|at| sum(at / n, at % n)).collect()
    };
    for some in [0, 1, 3] {
        let mut c = session.unwritten::<f32, 2>([64 * tiles, n])?;
        let inputs = (&arrays.0, &arrays.1, &arrays.2);
        session.launch_with(warps(), kernel, [2], (inputs, &mut c, (tiles as i32, some as i32)))?;
        let (first, second) = session.expected(|| (of(&a, some), of(&b, steps)));
        session.check(&format!("{some} of {steps}"), &c, &|[i, j]| {
            Want::exactly((first[i * n + j] + second[i * n + j]) as f32)
        })?;
    }
    Ok(())
}

/// Two groups, one, or the default; with more than products in the loop along k, and small
/// accumulators.
fn requested(session: Session) -> Result<()> {
    fn kernel(
        (a, b): (Array<f16, 2>, Array<f16, 2>),
        c: ArrayMut<f32, 2>,
        (tile, teams, stages): ([usize; 3], Option<u32>, Option<u32>),
    ) {
        let [m, n, k] = tile;
        let all = ct::range(ct::bid(0), c.num_tiles(0, [m, n])).step(ct::num_blocks(0));
        let all = teams.into_iter().fold(all, |all, teams| all.pingpong(teams == 2));
        ct::fold(all, (), |(), i| {
            let steps = stages.into_iter().fold(ct::range(0, a.num_tiles(1, [m, k])), |range, n| range.num_stages(n));
            let start = (ct::zeros::<f32, 2>([m, n]), ct::zeros::<f32, 2>([m, 1]));
            let (sum, most) = ct::fold(steps, start, |(sum, most), step| {
                let sum = ct::mma(a.load((i, step), [m, k]), b.load((step, 0), [k, n]), sum * 0.5);
                (sum, most.max(sum.reduce_max(1)))
            });
            c.store((i, 0), sum + most);
        });
    }
    let [m, n, k] = [64 * 7, 64, 192];
    let (a, b) = (random::<f16>(1, m * k, Spread::Whole(2)), random::<f16>(2, k * n, Spread::Whole(2)));
    let (device_a, device_b) = (session.array(&a, [m, k])?, session.array(&b, [k, n])?);
    let (numbers_a, numbers_b) = (numbers(&a), numbers(&b));
    for tile in [[64, 64, 64], [64, 64, 32], [64, 64, 16]] {
        let part = |l: usize| {
            Product::new(session, [m, n, tile[2]], |i, t| numbers_a[i * k + l + t], |t, j| numbers_b[(l + t) * n + j])
        };
        let parts: Vec<Product> = (0..k).step_by(tile[2]).map(part).collect();
        let mut want = vec![0.0f64; m * n];
        for (i, want) in want.chunks_mut(n).enumerate().take(if session.compares() { m } else { 0 }) {
            let mut most = 0.0f64;
            for part in &parts {
                want.iter_mut().enumerate().for_each(|(j, sum)| *sum = *sum * 0.5 + part.at([i, j]));
                most = want.iter().copied().fold(most, f64::max);
            }
            want.iter_mut().for_each(|sum| *sum += most);
        }
        // Tile IR leaves roles to its compiler.
        let teams = if session.through_tile_ir() { [None; 3] } else { [None, Some(1), Some(2)] };
        for (teams, blocks, stages) in
            [(teams[0], 2, None), (teams[1], 3, Some(2)), (teams[2], 1, None), (teams[2], 3, Some(3))]
        {
            let mut c = session.unwritten::<f32, 2>([m, n])?;
            let of = ((&device_a, &device_b), &mut c, Constant((tile, teams, stages)));
            session.launch_with(warps(), kernel, [blocks], of)?;
            let what = format!("{tile:?}, teams: {teams:?}, {blocks} blocks, stages: {stages:?}");
            session.check(&what, &c, &|[i, j]| Want::exactly(want[i * n + j] as f32))?;
        }
    }
    Ok(())
}
