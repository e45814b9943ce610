//! Concatenation, splits, repetition, transposition, and tiles from host tables and functions of
//! the index.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::ByteSized;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::elementwise::Named;
use crate::harness::{Session, Suite, Want, ravel};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("cat_split/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(moves: f64 f16 i8 u32 bool);
    each!(elements: f64 f32 f16 f8e5m2 i64 bool);
    suite.test("cat_split/run_time_blocks", run_time_blocks);
    suite.test("cat_split/of_other_layouts", of_other_layouts);
    suite.test("cat_split/created", created);
}

type Move<T> = fn(Tile<T, 2>, Tile<T, 2>) -> Tile<T, 2>;
/// Source of an element of the result: the number of the tile, and the index in it.
type Origin = fn([usize; 2]) -> (usize, [usize; 2]);

fn kernel<T: Element>(
    x: Array<T, 2>,
    y: Array<T, 2>,
    z: ArrayMut<T, 2>,
    (operation, tile): (Named<Move<T>>, [usize; 2]),
) {
    z.store([0, 0], (operation.op)(x.load([0, 0], tile), y.load([0, 0], tile)));
}

fn check<T: Element>(
    session: Session,
    name: &'static str,
    op: Move<T>,
    tile: [usize; 2],
    result: [usize; 2],
    origin: Origin,
) -> Result<()> {
    let data = [1, 2].map(|seed| random::<T>(seed, tile.iter().product(), Spread::Any));
    let (x, y) = (session.array(&data[0], tile)?, session.array(&data[1], tile)?);
    let mut z = session.unwritten::<T, 2>(result)?;
    session.launch(kernel::<T>, [1], (&x, &y, &mut z, Constant((Named { name, op }, tile))))?;
    session.check(name, &z, &|at| {
        let (number, from) = origin(at);
        Want::SameBits(data[number][ravel(from, tile)].to_bits())
    })
}

fn moves<T: Element>(session: Session) -> Result<()> {
    check::<T>(session, "cat columns", |x, y| ct::cat([x, y], 1), [32, 64], [32, 128], |[i, j]| (j / 64, [i, j % 64]))?;
    check::<T>(session, "cat rows", |x, y| ct::cat([x, y], 0), [16, 8], [32, 8], |[i, j]| (i / 16, [i % 16, j]))?;
    // The second of four pieces is longer than the first.
    let uneven: Move<T> = |x, y| {
        let [a, b] = y.split(1);
        ct::cat([a, x, b], 1)
    };
    check::<T>(session, "cat of three", uneven, [8, 64], [8, 128], |[i, j]| match j {
        0..32 => (1, [i, j]),
        32..96 => (0, [i, j - 32]),
        _ => (1, [i, j - 64]),
    })?;
    check::<T>(session, "cat of vectors", |x, y| ct::cat([y, x], 1), [1, 1], [1, 2], |[_, j]| (1 - j, [0, 0]))?;
    let halves: Move<T> = |x, _| {
        let [a, b] = x.split(1);
        ct::cat([b, a], 1)
    };
    for tile in [[64, 64], [1, 512], [128, 2]] {
        let origin: Origin = match tile[1] {
            64 => |[i, j]| (0, [i, j ^ 32]),
            512 => |[i, j]| (0, [i, j ^ 256]),
            _ => |[i, j]| (0, [i, j ^ 1]),
        };
        check::<T>(session, "exchanged halves", halves, tile, tile, origin)?;
    }
    let quarter: Move<T> = |x, _| x.extract([2, 1], [8, 16]);
    check::<T>(session, "extract", quarter, [32, 32], [8, 16], |[i, j]| (0, [i + 16, j + 16]))?;
    check::<T>(session, "extract a row", |x, _| x.extract([37, 0], [1, 64]), [64, 64], [1, 64], |[_, j]| (0, [37, j]))?;
    check::<T>(
        session,
        "extract a column",
        |x, _| x.extract([0, 9], [64, 1]),
        [64, 16],
        [64, 1],
        |[i, _]| (0, [i, 9]),
    )?;
    let inserted: Move<T> = |x, y| x.insert([1, 3], y.extract([0, 0], [16, 8]));
    check::<T>(session, "insert", inserted, [32, 32], [32, 32], |[i, j]| {
        if i >= 16 && j >= 24 { (1, [i - 16, j - 24]) } else { (0, [i, j]) }
    })?;
    let stacked: Move<T> = |x, y| {
        let all = ct::stack([x, y, x, y], 1);
        let [_, second, third, _] = all.unstack(1);
        ct::cat([second, third], 0)
    };
    check::<T>(session, "stack", stacked, [8, 32], [16, 32], |[i, j]| (usize::from(i < 8), [i % 8, j]))?;
    check::<T>(session, "flip columns", |x, _| x.flip(1), [4, 256], [4, 256], |[i, j]| (0, [i, 255 - j]))?;
    check::<T>(session, "flip both", |x, _| x.flip(..), [32, 16], [32, 16], |[i, j]| (0, [31 - i, 15 - j]))?;
    check::<T>(session, "repeat", |x, _| x.repeat([2, 4]), [8, 16], [16, 64], |[i, j]| (0, [i % 8, j % 16]))?;
    let interleaved: Move<T> = |x, y| x.repeat_interleave(0, 2).interleave(y.repeat_interleave(0, 2), 1);
    check::<T>(session, "interleave", interleaved, [16, 32], [32, 64], |[i, j]| (j % 2, [i / 2, j / 2]))
}

/// Single elements at run-time places, also outside of the tile; each block takes another one.
fn elements<T: ByteSized>(session: Session) -> Result<()> {
    fn kernel<T: ByteSized>(x: Array<T, 2>, at: Array<i32, 1>, y: ArrayMut<T, 1>, z: ArrayMut<T, 2>, tile: [usize; 2]) {
        let block = ct::bid(0);
        let [row, column] = [0, 1].map(|n| at.load_scalar(block * 2 + n));
        let x = x.load([0, 0], tile);
        y.store(block, x.get((row, column)).to_tile());
        z.store((block, 0), x.set([row, column], x.get([0, 0])));
    }
    for tile in [[8, 32], [1, 1024], [64, 1]] {
        let count = tile[0] * tile[1];
        let data = random::<T>(3, count, Spread::Any);
        let places = [[0, 0], [5, 7], [63, 1023], [-1, 3], [2, 1 << 20], [i32::MIN, i32::MAX]];
        let x = session.array(&data, tile)?;
        let at = session.array(&places.concat(), [12])?;
        let (mut y, mut z) = (session.unwritten::<T, 1>([6])?, session.unwritten::<T, 2>([6 * tile[0], tile[1]])?);
        session.launch(kernel::<T>, [6], (&x, &at, &mut y, &mut z, Constant(tile)))?;
        let place = |block: usize| {
            let clamped = |axis: usize| places[block][axis].clamp(0, tile[axis] as i32 - 1) as usize;
            ravel([clamped(0), clamped(1)], tile)
        };
        session.check("get", &y, &|[block]| Want::SameBits(data[place(block)].to_bits()))?;
        session.check("set", &z, &|[i, j]| {
            let (block, own) = (i / tile[0], ravel([i % tile[0], j], tile));
            Want::SameBits(data[if own == place(block) { 0 } else { own }].to_bits())
        })?;
    }
    Ok(())
}

/// Blocks of all places, by run-time numbers: of registers, of lanes, of warps.
fn run_time_blocks(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 2>, z: ArrayMut<i32, 2>, (tile, part): ([usize; 2], [usize; 2])) {
        let block = ct::bid(0);
        let columns = (tile[1] / part[1]) as i32;
        let place = (block / columns, block % columns);
        let x = x.load([0, 0], tile);
        let piece = x.extract(place, part);
        y.store((block, 0), piece);
        z.store((block, 0), x.insert(place, -piece));
    }
    for (tile, part) in [([16, 64], [4, 16]), ([64, 64], [32, 8]), ([1, 2048], [1, 256]), ([128, 4], [16, 1])] {
        let blocks = [tile[0] / part[0], tile[1] / part[1]];
        let count = blocks[0] * blocks[1];
        let data: Vec<i32> = (1..=(tile[0] * tile[1]) as i32).collect();
        let x = session.array(&data, tile)?;
        let mut y = session.unwritten::<i32, 2>([count * part[0], part[1]])?;
        let mut z = session.unwritten::<i32, 2>([count * tile[0], tile[1]])?;
        session.launch(kernel, [count], (&x, &mut y, &mut z, Constant((tile, part))))?;
        let first = |block: usize| [block / blocks[1] * part[0], block % blocks[1] * part[1]];
        session.check(&format!("{part:?} of {tile:?}"), &y, &|[i, j]| {
            let [row, column] = first(i / part[0]);
            Want::exactly(data[ravel([row + i % part[0], column + j], tile)])
        })?;
        session.check(&format!("{part:?} into {tile:?}"), &z, &|[i, j]| {
            let [row, column] = first(i / tile[0]);
            let own = [i % tile[0], j];
            let inside = (row..row + part[0]).contains(&own[0]) && (column..column + part[1]).contains(&own[1]);
            let value = data[ravel(own, tile)];
            Want::exactly(if inside { -value } else { value })
        })?;
    }
    Ok(())
}

/// Pieces of transposed tiles, products, sums and ranges, also in a loop.
fn of_other_layouts(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>, z: ArrayMut<f32, 2>, sums: ArrayMut<f32, 1>) {
        let x = x.load([0, 0], [64, 32]);
        let [a, b] = x.transpose().split(0);
        y.store([0, 0], ct::cat([b, a], 1));
        let [left, right] = ct::matmul(x, x.transpose()).split(1);
        z.store([0, 0], left - right);
        let columns = x.sum(0).reshape([32]);
        let halves = ct::fold(0..4, columns, |sum, i| sum.insert(i, sum.extract(3 - i, [8]) * 2.0));
        sums.store(0, ct::cat([halves, ct::arange_from(32, 0.0, 1.0)], 0));
    }
    let data: Vec<f32> = random(4, 64 * 32, Spread::Whole(2));
    let x = session.array(&data, [64, 32])?;
    let [mut y, mut z] = [session.unwritten([16, 128])?, session.unwritten([64, 32])?];
    let mut sums = session.unwritten([64])?;
    session.launch(kernel, [1], (&x, &mut y, &mut z, &mut sums))?;
    session.check("halves of a transposed tile", &y, &|[i, j]| {
        let row = if j < 64 { i + 16 } else { i };
        Want::exactly(data[(j % 64) * 32 + row])
    })?;
    let dot = |a: usize, b: usize| (0..32).map(|k| f64::from(data[a * 32 + k] * data[b * 32 + k])).sum::<f64>();
    session.check("halves of a product", &z, &|[i, j]| Want::SumOf(dot(i, j) - dot(i, j + 32)))?;
    let mut want: Vec<f32> = (0..32).map(|j| (0..64).map(|i| data[i * 32 + j]).sum()).collect();
    for i in 0..4 {
        let taken: Vec<f32> = want[(3 - i) * 8..][..8].iter().map(|x| x * 2.0).collect();
        want[i * 8..][..8].copy_from_slice(&taken);
    }
    want.extend((0..32).map(|i| i as f32));
    session.check("pieces of a vector", &sums, &|[i]| Want::SumOf(f64::from(want[i])))
}

fn created(session: Session) -> Result<()> {
    fn kernel(a: ArrayMut<i16, 2>, b: ArrayMut<f32, 1>, c: ArrayMut<i32, 3>) {
        a.store([0, 0], ct::astile([[1, -2, 3, -4], [5, -6, 7, -8]]));
        let table: Vec<f32> = (0..64).map(|i| (i * i) as f32).collect();
        b.store(0, ct::from_slice([64], &table));
        c.store([0, 0, 0], ct::from_fn([4, 8, 16], |[i, j, k]| i.ge(2).select(100 * i + 10 * j - k, j.min(k))));
    }
    let (mut a, mut b) = (session.unwritten([2, 4])?, session.unwritten([64])?);
    let mut c = session.unwritten([4, 8, 16])?;
    session.launch(kernel, [1], (&mut a, &mut b, &mut c))?;
    session.check("astile", &a, &|[i, j]| {
        let number = (4 * i + j + 1) as i16;
        Want::exactly(if number % 2 == 0 { -number } else { number })
    })?;
    session.check("from_slice", &b, &|[i]| Want::exactly((i * i) as f32))?;
    session.check("from_fn", &c, &|[i, j, k]| {
        Want::exactly(if i >= 2 { (100 * i + 10 * j) as i32 - k as i32 } else { j.min(k) as i32 })
    })
}
