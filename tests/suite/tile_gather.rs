//! Elements of tiles by index tiles, and histograms: every element type and width of positions,
//! lines of one element and of more than the capacity of shared memory, positions outside, equal
//! ones, in loops and branches, with products.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::ByteSized;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};
use crate::integer::value;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("tile_gather/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(gather: f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 i8 i16 i32 i64 u8 u16 u32 u64 bool);
    each!(shapes: f64 f32 f16 u8);
    each!(widths: i8 i16 i32 i64 u8 u16 u32 u64);
    suite.test("tile_gather/long_lines", long_lines);
    suite.test("tile_gather/in_parts", in_parts);
    suite.test("tile_gather/three_axes", three_axes);
    suite.test("tile_gather/control_flow", control_flow);
    suite.test("tile_gather/uniform", uniform);
    suite.test("tile_gather/of_accumulators", of_accumulators);
    suite.test("tile_gather/of_operands", of_operands);
    each!(odd_extents: f32 bool);
    each!(histogram: i8 i16 i32 i64 u8 u16 u32 u64);
    suite.test("tile_gather/bins", bins);
    suite.test("tile_gather/histograms_in_a_loop", histograms_in_a_loop);
}

/// Positions in and around an axis, with equal ones and some far away.
fn positions<I: Int>(seed: u64, count: usize, extent: usize) -> Vec<I> {
    let mut all = random::<I>(seed, count, Spread::Between(-3.0, extent as f64 + 3.0));
    let far = random::<I>(seed + 1, count / 16, Spread::Any);
    all.iter_mut().skip(3).step_by(16).zip(far).for_each(|(at, far)| *at = far);
    if count > 8 {
        all[8] = all[7];
    }
    all
}

fn inside<I: Int>(position: I, extent: usize) -> usize {
    value(position).clamp(0, extent as i128 - 1) as usize
}

/// The element of a tile of this many columns at a position along an axis.
fn element<T: Element, I: Int>(data: &[T], [rows, columns]: [usize; 2], axis: usize, at: I, [i, j]: [usize; 2]) -> T {
    match axis {
        0 => data[inside(at, rows) * columns + j],
        _ => data[i * columns + inside(at, columns)],
    }
}

fn along<T: ByteSized, I: Int>(x: Array<T, 2>, at: Array<I, 2>, y: ArrayMut<T, 2>, form: ([usize; 2], usize, usize)) {
    let (shape, axis, count) = form;
    let mut result = shape;
    result[axis] = count;
    y.store((0, 0), x.load((0, 0), shape).gather(axis, at.load((0, 0), result)));
}

/// `count` elements of each line along an axis.
fn check<T: ByteSized, I: Int>(session: Session, shape: [usize; 2], axis: usize, count: usize) -> Result<()> {
    let data = random::<T>(7, shape[0] * shape[1], Spread::Any);
    let mut result = shape;
    result[axis] = count;
    let at = positions::<I>(8 + axis as u64, result[0] * result[1], shape[axis]);
    let (x, index) = (session.array(&data, shape)?, session.array(&at, result)?);
    let mut y = session.unwritten::<T, 2>(result)?;
    session.launch(along::<T, I>, [1], (&x, &index, &mut y, Constant((shape, axis, count))))?;
    session.check(&format!("{count} along axis {axis} of {shape:?}"), &y, &|[i, j]| {
        Want::SameBits(element(&data, shape, axis, at[i * result[1] + j], [i, j]).to_bits())
    })
}

/// Lines in one warp and across warps.
fn gather<T: ByteSized>(session: Session) -> Result<()> {
    check::<T, i32>(session, [8, 32], 1, 32)?;
    check::<T, i32>(session, [8, 128], 0, 32)?;
    check::<T, i32>(session, [4, 256], 1, 64)
}

/// From one element to more than a block of threads, as many, fewer and more results.
fn shapes<T: ByteSized>(session: Session) -> Result<()> {
    for (shape, count) in [
        ([1, 1], 1),
        ([1, 1], 64),
        ([2, 1], 8),
        ([1, 2], 2),
        ([1, 16], 16),
        ([1, 32], 1),
        ([4, 16], 128),
        ([64, 4], 4),
        ([64, 8], 2),
        ([16, 64], 16),
        ([2, 1024], 1024),
    ] {
        check::<T, i32>(session, shape, 1, count)?;
        check::<T, i32>(session, [shape[1], shape[0]], 0, count)?;
    }
    Ok(())
}

fn widths<I: Int>(session: Session) -> Result<()> {
    check::<f32, I>(session, [4, 32], 1, 32)?;
    check::<i16, I>(session, [2, 512], 1, 512)
}

/// One line of all threads, and of more elements than a thread each.
fn long_lines(session: Session) -> Result<()> {
    // Tile IR has comparisons with each place instead, which take tileiras minutes.
    let length = if session.through_tile_ir() { 512 } else { 4096 };
    check::<f32, i32>(session, [1, length], 1, length)?;
    check::<u8, i64>(session, [1, 2 * length], 1, 512.min(length / 8))
}

/// A tile that shared memory does not hold: one part after another.
fn in_parts(session: Session) -> Result<()> {
    for axis in [0, 1] {
        check::<f32, i32>(session, [128, 256], axis, 32)?;
    }
    Ok(())
}

/// Along each axis of a tile that threads have in another order than its elements.
fn three_axes(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 3>, at: Array<i32, 3>, y: ArrayMut<f32, 3>, axis: usize) {
        let x = x.load((0, 0, 0), [8, 16, 4]).permute([2, 0, 1]);
        y.store((0, 0, 0), x.gather(axis, at.load((0, 0, 0), [4, 8, 16])));
    }
    let data = random::<f32>(1, 512, Spread::Any);
    let x = session.array(&data, [8, 16, 4])?;
    for axis in 0..3 {
        let extents = [4, 8, 16];
        let at = positions::<i32>(2, 512, extents[axis]);
        let index = session.array(&at, extents)?;
        let mut y = session.unwritten::<f32, 3>(extents)?;
        session.launch(kernel, [1], (&x, &index, &mut y, Constant(axis)))?;
        session.check(&format!("axis {axis}"), &y, &|place| {
            let [i, j, k] = place;
            let mut from = place;
            from[axis] = inside(at[(i * 8 + j) * 16 + k], extents[axis]);
            Want::SameBits(data[(from[1] * 16 + from[2]) * 4 + from[0]].to_bits().into())
        })?;
    }
    Ok(())
}

/// In a loop that carries the tile, in a branch, and by positions that one of them makes.
fn control_flow(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 2>, turns: Scalar<i32>) {
        let b = ct::bid(0);
        let x = x.load((b, 0), [4, 256]);
        let numbers = ct::indices([4, 256], 1);
        // Rotated by one place in each iteration; every other block by two.
        let turned = ct::fold(..turns, x, |all, turn| {
            let by = ct::if_else(((b + turn) & 1).eq(0), || numbers + 1, || all.gather(1, (numbers + 2) & 255) & 1);
            all.gather(1, by & 255)
        });
        y.store((b, 0), turned);
    }
    let data = random::<i32>(3, 8 * 256, Spread::Any);
    let x = session.array(&data, [8, 256])?;
    let mut y = session.unwritten::<i32, 2>([8, 256])?;
    session.launch(kernel, [2], (&x, &mut y, 3))?;
    let rows = |i: usize| {
        let mut row = data[256 * i..][..256].to_vec();
        for turn in 0..3 {
            let at = |j: usize| match (i / 4 + turn) % 2 {
                0 => (j + 1) & 255,
                _ => (row[(j + 2) & 255] & 1) as usize,
            };
            row = (0..256).map(|j| row[at(j)]).collect();
        }
        row
    };
    session.check("turned", &y, &|[i, j]| Want::exactly(rows(i)[j]))
}

/// Positions that no array holds: numbers, ranges, a scalar of run time; and a tile that is
/// nowhere, either.
fn uniform(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 2>, place: Scalar<i64>) {
        let x = x.load(0, [512]);
        let down = 511 - ct::arange(0..512);
        let all = [
            x.gather(0, down),
            x.gather(0, ct::full([512], 7)),
            x.gather(0, ct::full([512], place)),
            ct::arange_from::<f32>(64, 0.0, 1.0).gather(0, down),
        ];
        all.into_iter().enumerate().for_each(|(row, tile)| y.store((row, 0), tile.unsqueeze(0)));
    }
    let data = random::<f32>(4, 512, Spread::Any);
    let x = session.array(&data, [512])?;
    for place in [-1i64, 300, i64::MAX] {
        let mut y = session.unwritten::<f32, 2>([4, 512])?;
        session.launch(kernel, [1], (&x, &mut y, place))?;
        session.check(&format!("place {place}"), &y, &|[i, j]| {
            let element = match i {
                0 => data[511 - j],
                1 => data[7],
                2 => data[place.clamp(0, 511) as usize],
                _ => (511 - j).min(63) as f32,
            };
            Want::SameBits(element.to_bits().into())
        })?;
    }
    Ok(())
}

/// Small whole numbers, whose products are exact.
fn factors(session: Session, m: usize, n: usize, k: usize) -> Result<[(Vec<f16>, ct::DeviceArray<f16, 2>); 2]> {
    let (a, b) = (random::<f16>(5, m * k, Spread::Whole(4)), random::<f16>(6, k * n, Spread::Whole(4)));
    let (da, db) = (session.array(&a, [m, k])?, session.array(&b, [k, n])?);
    Ok([(a, da), (b, db)])
}

fn product(a: &[f16], b: &[f16], [n, k]: [usize; 2], i: usize, j: usize) -> f32 {
    (0..k).map(|p| a[i * k + p].to_f32() * b[p * n + j].to_f32()).sum()
}

/// Gathers of an accumulator, in a kernel with a producer.
fn of_accumulators(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, at: Array<i32, 2>, y: ArrayMut<f32, 2>, counts: ArrayMut<i32, 2>) {
        let (i, tile) = (ct::bid(0), [64, 64]);
        let sum = ct::fold(..a.num_tiles(1, tile), ct::zeros::<f32, 2>(tile), |sum, k| {
            ct::mma(a.load((i, k), tile), b.load((k, 0), tile), sum)
        });
        y.store((i, 0), sum.gather(1, at.load((i, 0), tile)).gather(0, at.load((i, 1), tile)));
        counts.store((i, 0), (sum.cast::<i32>() & 15).histogram(16).unsqueeze(0));
    }
    let [(a, da), (b, db)] = factors(session, 128, 64, 256)?;
    let at = positions::<i32>(9, 128 * 128, 64);
    let index = session.array(&at, [128, 128])?;
    let (mut y, mut counts) = (session.unwritten::<f32, 2>([128, 64])?, session.unwritten::<i32, 2>([2, 16])?);
    session.launch(kernel, [2], (&da, &db, &index, &mut y, &mut counts))?;
    if session.only_compiles() {
        return Ok(());
    }
    let sums: Vec<f32> = (0..128 * 64).map(|p| product(&a, &b, [64, 256], p / 64, p % 64)).collect();
    session.check("gathered", &y, &|[i, j]| {
        let row = i / 64 * 64 + inside(at[128 * i + 64 + j], 64);
        Want::exactly(sums[64 * row + inside(at[128 * row + j], 64)])
    })?;
    session.check("counted", &counts, &|[i, bin]| {
        let part = &sums[64 * 64 * i..][..64 * 64];
        Want::exactly(part.iter().filter(|&&x| x as i32 & 15 == bin as i32).count() as i32)
    })
}

/// Gathers of a factor, in each iteration of a loop over products.
fn of_operands(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, at: Array<u8, 2>, y: ArrayMut<f32, 2>) {
        let sum = ct::fold(..a.num_tiles(1, [64, 32]), ct::zeros::<f32, 2>([64, 64]), |sum, k| {
            let a = a.load((0, k), [64, 32]).gather(1, at.load((0, k), [64, 32]));
            ct::mma(a, b.load((k, 0), [32, 64]), sum)
        });
        y.store((0, 0), sum);
    }
    let [(a, da), (b, db)] = factors(session, 64, 64, 96)?;
    let at = positions::<u8>(10, 64 * 96, 32);
    let index = session.array(&at, [64, 96])?;
    let mut y = session.unwritten::<f32, 2>([64, 64])?;
    session.launch(kernel, [1], (&da, &db, &index, &mut y))?;
    if session.only_compiles() {
        return Ok(());
    }
    let moved: Vec<f16> = (0..64 * 96).map(|p| a[p / 32 * 32 + inside(at[p], 32)]).collect();
    session.check("product", &y, &|[i, j]| Want::exactly(product(&moved, &b, [64, 96], i, j)))
}

/// Extents that are no powers of two, of the tile and of the positions.
fn odd_extents<T: ByteSized>(session: Session) -> Result<()> {
    for (shape, count) in [([6, 40], 40), ([3, 7], 12), ([2, 96], 64), ([4, 32], 24)] {
        check::<T, i32>(session, shape, 1, count)?;
        check::<T, i32>(session, [shape[1], shape[0]], 0, count)?;
    }
    Ok(())
}

fn count<I: Int>(x: Array<I, 2>, y: ArrayMut<i32, 2>, form: ([usize; 2], usize)) {
    let (i, (shape, bins)) = (ct::bid(0), form);
    y.store((i, 0), x.load((i, 0), shape).histogram(bins).unsqueeze(0));
}

fn check_counts<I: Int>(session: Session, shape: [usize; 2], bins: usize) -> Result<()> {
    let each = shape[0] * shape[1];
    let mut data = random::<I>(10, 2 * each, Spread::Between(-2.0, bins as f64 + 2.0));
    data.iter_mut().step_by(5).zip(random::<I>(11, each, Spread::Any)).for_each(|(x, any)| *x = any);
    // Many that are equal.
    let often = data[0];
    data.iter_mut().step_by(3).for_each(|x| *x = often);
    let x = session.array(&data, [2 * shape[0], shape[1]])?;
    let mut y = session.unwritten::<i32, 2>([2, bins])?;
    session.launch(count::<I>, [2], (&x, &mut y, Constant((shape, bins))))?;
    let mut counts = vec![0; 2 * bins];
    data.iter().enumerate().for_each(|(at, &x)| {
        if (0..bins as i128).contains(&value(x)) {
            counts[at / each * bins + value(x) as usize] += 1;
        }
    });
    session.check(&format!("{bins} of {shape:?}"), &y, &|[i, bin]| Want::exactly(counts[bins * i + bin]))
}

fn histogram<I: Int>(session: Session) -> Result<()> {
    check_counts::<I>(session, [16, 64], 32)?;
    check_counts::<I>(session, [1, 8], 128)
}

/// From one number to more than shared memory holds, of one element and of many, and of odd
/// extents.
fn bins(session: Session) -> Result<()> {
    for (shape, bins) in
        [([1, 1], 1), ([1, 1], 2), ([2, 4096], 1), ([32, 32], 2), ([4, 256], 1024), ([1, 8], 65536), ([3, 20], 48)]
    {
        check_counts::<i32>(session, shape, bins)?;
    }
    Ok(())
}

fn histograms_in_a_loop(session: Session) -> Result<()> {
    fn kernel(x: Array<u8, 2>, y: ArrayMut<i32, 1>) {
        let none = ct::zeros::<i32, 1>([16]);
        let all = ct::fold(..x.extent(0), none, |all, row| {
            let x = x.load((row, 0), [1, 256]);
            let part = ct::if_else((row & 1).eq(0), || (x & 15).histogram(16), || (x >> 4).histogram(16));
            all + part * (row + 1)
        });
        y.store(0, all);
    }
    let data = random::<u8>(12, 5 * 256, Spread::Any);
    let x = session.array(&data, [5, 256])?;
    let mut y = session.unwritten::<i32, 1>([16])?;
    session.launch(kernel, [1], (&x, &mut y))?;
    session.check("weighted", &y, &|[bin]| {
        let number = |(at, x): (usize, &u8)| if at / 256 % 2 == 0 { x & 15 } else { x >> 4 };
        let weights = data.iter().enumerate().filter(|&(at, x)| number((at, x)) as usize == bin);
        Want::exactly(weights.map(|(at, _)| at as i32 / 256 + 1).sum::<i32>())
    })
}
