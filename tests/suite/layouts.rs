//! Tiles in layouts that a user chooses: drawn at random, for 32 to 512 threads, with replicas,
//! before and after every kind of operation. Results do not depend on them.

use anyhow::Result;
use cutlet as ct;
use cutlet::layout::{Layout, local, spatial};
use cutlet::prelude::*;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel};
use crate::test_sample::one_in;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("layouts/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(conversions: f64 f32 f16 bf16 u8 i16 i64 bool f8e4m3fn);
    each!(reductions: f32 i32 i64);
    each!(scans: f32 i16);
    each!(moves: f32 u8 i64);
    each!(gathers: f32 f16);
    suite.test("layouts/loops", loops);
    suite.test("layouts/branches", branches);
    suite.test("layouts/products/f16", products::<f16>);
    suite.test("layouts/products/tf32", products::<f32>);
    suite.test("layouts/memory", memory);
    suite.test("layouts/parts", parts);
    suite.test("layouts/in_modes", in_modes);
    suite.test("layouts/multistage_copies", multistage_copies);
}

/// Source of the layouts of a kernel: log2 of the threads, and a seed.
type Drawn = (u32, u64);

/// Checks kernels of several seeds, for 32 to 512 threads one after another.
fn each_draw(session: Session, mut check: impl FnMut(Drawn) -> Result<()>) -> Result<()> {
    // Tile IR leaves layouts to its compiler, and reports it: `tests/hints.rs`.
    if session.through_tile_ir() {
        return Ok(());
    }
    (0..10u64).step_by(one_in(2)).try_for_each(|number| check((5 + number as u32 / 2, number)))
}

/// A layout for a tile of this shape: the `nth` of a kernel.
fn drawn<const R: usize>(shape: [usize; R], (threads, number): Drawn, nth: u64) -> Layout {
    let mut random = SmallRng::seed_from_u64(number << 8 | nth);
    let bits = shape.iter().product::<usize>().ilog2();
    let mut bases: Vec<u32> = (0..bits).map(|bit| 1 << bit).collect();
    // Every third keeps runs of neighbours, for wide accesses.
    if number % 3 > 0 {
        bases.shuffle(&mut random);
    }
    let least = bits.saturating_sub(threads);
    let slots = random.random_range(least..=(least + 1).min(bits)) as usize;
    let mut spread = bases.split_off(slots);
    spread.resize(threads as usize, 0);
    if number % 2 > 0 {
        spread.shuffle(&mut random);
    }
    let warps = spread.split_off(5);
    Layout::new(shape.map(|extent| extent as i64), bases, spread, warps)
}

fn converted<T: ByteSized>(x: Array<T, 2>, y: ArrayMut<T, 2>, (shape, draw): ([usize; 2], Drawn)) {
    let tile = x.load((0, 0), shape).with_layout(drawn(shape, draw, 0));
    y.store((0, 0), tile.with_layout(drawn(shape, draw, 1)).reshape([shape[0] * shape[1]]).reshape(shape));
}

/// From one layout to another one, in and out of memory, with tiles that stick out.
fn conversions<T: ByteSized>(session: Session) -> Result<()> {
    each_draw(session, |draw| {
        for (shape, extents) in [([16, 32], [16, 32]), ([64, 8], [61, 7]), ([1, 64], [1, 33]), ([2, 4], [2, 4])] {
            let data = random::<T>(draw.1, extents[0] * extents[1], Spread::Any);
            let (x, mut y) = (session.array(&data, extents)?, session.unwritten::<T, 2>(extents)?);
            session.launch(converted::<T>, [1], (&x, &mut y, Constant((shape, draw))))?;
            session
                .check(&format!("{shape:?} {draw:?}"), &y, &|at| Want::SameBits(data[ravel(at, extents)].to_bits()))?;
        }
        Ok(())
    })
}

const ROWS: usize = 16;
const COLUMNS: usize = 64;
const SHAPE: [usize; 2] = [ROWS, COLUMNS];

fn reduced<T: Number + Comparable>(
    x: Array<T, 2>,
    sums: ArrayMut<T, 2>,
    most: ArrayMut<T, 2>,
    at: ArrayMut<i32, 2>,
    draw: Drawn,
) {
    let x = x.load((0, 0), SHAPE).with_layout(drawn(SHAPE, draw, 0));
    let rows = x.sum(1).with_layout(drawn([ROWS, 1], draw, 1));
    sums.store((0, 0), rows + x.with_layout(drawn(SHAPE, draw, 2)).sum(1));
    let columns = (x + x).with_layout(drawn(SHAPE, draw, 3)).reduce_max(0);
    most.store((0, 0), columns.with_layout(drawn([1, COLUMNS], draw, 4)));
    at.store((0, 0), x.with_layout(drawn(SHAPE, draw, 5)).argmax(1).with_layout(drawn([ROWS, 1], draw, 6)));
}

/// Sums, largest elements and their places.
fn reductions<T: Number + Comparable>(session: Session) -> Result<()> {
    each_draw(session, |draw| {
        let data = random::<T>(draw.1, ROWS * COLUMNS, Spread::Whole(40));
        let (x, mut sums) = (session.array(&data, SHAPE)?, session.unwritten::<T, 2>([ROWS, 1])?);
        let (mut most, mut at) = (session.unwritten::<T, 2>([1, COLUMNS])?, session.unwritten::<i32, 2>([ROWS, 1])?);
        session.launch(reduced::<T>, [1], (&x, &mut sums, &mut most, &mut at, Constant(draw)))?;
        let value = |i: usize, j: usize| data[i * COLUMNS + j].to_f64();
        session.check(&format!("sums {draw:?}"), &sums, &|[i, _]| {
            Want::SumOf(2.0 * (0..COLUMNS).map(|j| value(i, j)).sum::<f64>())
        })?;
        session.check(&format!("most {draw:?}"), &most, &|[_, j]| {
            Want::SumOf(2.0 * (0..ROWS).map(|i| value(i, j)).fold(f64::NEG_INFINITY, f64::max))
        })?;
        session.check(&format!("places {draw:?}"), &at, &|[i, _]| {
            let most = (0..COLUMNS).map(|j| value(i, j)).fold(f64::NEG_INFINITY, f64::max);
            Want::exactly((0..COLUMNS).position(|j| value(i, j) == most).unwrap() as i32)
        })
    })
}

fn scanned<T: Number>(x: Array<T, 2>, along: ArrayMut<T, 2>, down: ArrayMut<T, 2>, draw: Drawn) {
    let x = x.load((0, 0), SHAPE).with_layout(drawn(SHAPE, draw, 0));
    along.store((0, 0), x.cumsum(1).with_layout(drawn(SHAPE, draw, 1)));
    down.store((0, 0), x.with_layout(drawn(SHAPE, draw, 2)).cumsum(0));
}

/// Sums so far along both axes.
fn scans<T: Number>(session: Session) -> Result<()> {
    each_draw(session, |draw| {
        let data = random::<T>(draw.1, ROWS * COLUMNS, Spread::Whole(20));
        let x = session.array(&data, SHAPE)?;
        let (mut along, mut down) = (session.unwritten::<T, 2>(SHAPE)?, session.unwritten::<T, 2>(SHAPE)?);
        session.launch(scanned::<T>, [1], (&x, &mut along, &mut down, Constant(draw)))?;
        let value = |i: usize, j: usize| data[i * COLUMNS + j].to_f64();
        session.check(&format!("along {draw:?}"), &along, &|[i, j]| Want::SumOf((0..=j).map(|j| value(i, j)).sum()))?;
        session.check(&format!("down {draw:?}"), &down, &|[i, j]| Want::SumOf((0..=i).map(|i| value(i, j)).sum()))
    })
}

fn moved<T: ByteSized>(x: Array<T, 2>, y: ArrayMut<T, 2>, z: ArrayMut<T, 2>, draw: Drawn) {
    let x = x.load((0, 0), SHAPE).with_layout(drawn(SHAPE, draw, 0));
    let turned = x.transpose().with_layout(drawn([COLUMNS, ROWS], draw, 1));
    let halves = turned.reshape([2, COLUMNS / 2, ROWS]).with_layout(drawn([2, COLUMNS / 2, ROWS], draw, 2));
    let back = halves.permute([1, 0, 2]).with_layout(drawn([COLUMNS / 2, 2, ROWS], draw, 3));
    y.store((0, 0), back.reshape([COLUMNS, ROWS]));
    let parts = [0, 1].map(|part| {
        let half = x.extract([0, part], [ROWS, COLUMNS / 2]);
        half.with_layout(drawn([ROWS, COLUMNS / 2], draw, 4 + part as u64))
    });
    let swapped = ct::cat([parts[1], parts[0]], 1).with_layout(drawn(SHAPE, draw, 6));
    z.store((0, 0), swapped.flip(0).with_layout(drawn(SHAPE, draw, 7)));
}

/// Tiles transposed, split, concatenated and flipped.
fn moves<T: ByteSized>(session: Session) -> Result<()> {
    each_draw(session, |draw| {
        let data = random::<T>(draw.1, ROWS * COLUMNS, Spread::Any);
        let x = session.array(&data, SHAPE)?;
        let (mut y, mut z) = (session.unwritten::<T, 2>([COLUMNS, ROWS])?, session.unwritten::<T, 2>(SHAPE)?);
        session.launch(moved::<T>, [1], (&x, &mut y, &mut z, Constant(draw)))?;
        let value = |i: usize, j: usize| Want::SameBits(data[i * COLUMNS + j].to_bits());
        // Rows of the transposed tile: the first one, the first one of the second half, the second
        // one, and so on.
        session.check(&format!("turned {draw:?}"), &y, &|[i, j]| value(j, i / 2 + i % 2 * (COLUMNS / 2)))?;
        session.check(&format!("swapped {draw:?}"), &z, &|[i, j]| value(ROWS - 1 - i, (j + COLUMNS / 2) % COLUMNS))
    })
}

fn looked_up<T: Number + ct::ops::Sorted>(
    x: Array<T, 2>,
    at: Array<i32, 2>,
    y: ArrayMut<T, 2>,
    z: ArrayMut<T, 2>,
    counts: ArrayMut<i32, 1>,
    draw: Drawn,
) {
    let x = x.load((0, 0), SHAPE).with_layout(drawn(SHAPE, draw, 0));
    let at = at.load((0, 0), SHAPE).with_layout(drawn(SHAPE, draw, 1));
    y.store((0, 0), x.gather(1, at).with_layout(drawn(SHAPE, draw, 2)));
    z.store((0, 0), x.with_layout(drawn(SHAPE, draw, 3)).sort(1).with_layout(drawn(SHAPE, draw, 4)));
    counts.store(0, at.histogram(64).with_layout(drawn([64], draw, 5)));
}

/// Elements by positions, sorted rows, counts.
fn gathers<T: Number + ct::ops::Sorted>(session: Session) -> Result<()> {
    each_draw(session, |draw| {
        let data = random::<T>(draw.1, ROWS * COLUMNS, Spread::Whole(99));
        let places = random::<i32>(draw.1 + 1, ROWS * COLUMNS, Spread::Between(0.0, 63.0));
        let (x, at) = (session.array(&data, SHAPE)?, session.array(&places, SHAPE)?);
        let (mut y, mut z) = (session.unwritten::<T, 2>(SHAPE)?, session.unwritten::<T, 2>(SHAPE)?);
        let mut counts = session.unwritten::<i32, 1>([64])?;
        session.launch(looked_up::<T>, [1], (&x, &at, &mut y, &mut z, &mut counts, Constant(draw)))?;
        session.check(&format!("by position {draw:?}"), &y, &|[i, j]| {
            Want::exactly(data[i * COLUMNS + places[i * COLUMNS + j] as usize])
        })?;
        let mut sorted: Vec<f64> = data.iter().map(|x| x.to_f64()).collect();
        sorted.chunks_mut(COLUMNS).for_each(|row| row.sort_by(f64::total_cmp));
        session.check(&format!("sorted {draw:?}"), &z, &|at| Want::SumOf(sorted[ravel(at, SHAPE)]))?;
        session.check(&format!("counts {draw:?}"), &counts, &|[n]| {
            Want::exactly(places.iter().filter(|&&place| place as usize == n).count() as i32)
        })
    })
}

fn carried(x: Array<i32, 2>, y: ArrayMut<i32, 2>, draw: Drawn) {
    let tiles = x.num_tiles(0, SHAPE);
    let (sum, last) = ct::fold(ct::range(0, tiles), (ct::zeros(SHAPE), ct::ones(SHAPE)), |(sum, last), i| {
        let x = x.load((i, 0), SHAPE);
        let next = (sum + x.with_layout(drawn(SHAPE, draw, 0))).with_layout(drawn(SHAPE, draw, 1));
        (next + last.with_layout(drawn(SHAPE, draw, 2)), x.with_layout(drawn(SHAPE, draw, 3)))
    });
    y.store((0, 0), sum.with_layout(drawn(SHAPE, draw, 4)) - last);
}

/// Tiles that a loop carries from one layout to another.
fn loops(session: Session) -> Result<()> {
    each_draw(session, |draw| {
        let data = random::<i32>(draw.1, 3 * ROWS * COLUMNS, Spread::Whole(999));
        let (x, mut y) = (session.array(&data, [3 * ROWS, COLUMNS])?, session.unwritten::<i32, 2>(SHAPE)?);
        session.launch(carried, [1], (&x, &mut y, Constant(draw)))?;
        session.check(&format!("{draw:?}"), &y, &|at| {
            let value = |n: usize| data[n * ROWS * COLUMNS + ravel(at, SHAPE)];
            // All three and the previous value of each of them, without the last one.
            Want::exactly(2 * value(0) + 2 * value(1) + 1)
        })
    })
}

fn chosen(x: Array<f32, 2>, y: ArrayMut<f32, 2>, draw: Drawn) {
    let x = x.load((ct::bid(0), 0), SHAPE);
    let held = x.with_layout(drawn(SHAPE, draw, 0));
    let either = ct::if_else(ct::bid(0).eq(1), || held * 2.0, || x.with_layout(drawn(SHAPE, draw, 1)) + 3.0);
    let mask = either.gt(held).with_layout(drawn(SHAPE, draw, 2));
    y.store((ct::bid(0), 0), ct::select(mask, either, x).with_layout(drawn(SHAPE, draw, 3)));
}

/// Branches that leave a tile in different layouts; tiles of truth values.
fn branches(session: Session) -> Result<()> {
    each_draw(session, |draw| {
        let data = random::<f32>(draw.1, 2 * ROWS * COLUMNS, Spread::Whole(999));
        let shape = [2 * ROWS, COLUMNS];
        let (x, mut y) = (session.array(&data, shape)?, session.unwritten::<f32, 2>(shape)?);
        session.launch(chosen, [2], (&x, &mut y, Constant(draw)))?;
        session.check(&format!("{draw:?}"), &y, &|[i, j]| {
            let x = data[i * COLUMNS + j];
            Want::exactly(if i < ROWS { x + 3.0 } else { x.max(2.0 * x) })
        })
    })
}

/// Element types of products with sums in f32.
trait Factor: Number {
    fn product(a: Tile<Self, 2>, b: Tile<Self, 2>, acc: Tile<f32, 2>) -> Tile<f32, 2>;
}
impl Factor for f16 {
    fn product(a: Tile<f16, 2>, b: Tile<f16, 2>, acc: Tile<f32, 2>) -> Tile<f32, 2> {
        ct::mma(a, b, acc)
    }
}
impl Factor for f32 {
    fn product(a: Tile<f32, 2>, b: Tile<f32, 2>, acc: Tile<f32, 2>) -> Tile<f32, 2> {
        ct::mma(a.cast::<tf32>(), b.cast::<tf32>(), acc)
    }
}

fn multiplied<T: Factor>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<f32, 2>, draw: Drawn) {
    let [left, right, result] = [[64, 32], [32, 64], [64, 64]];
    let start = ct::zeros(result).with_layout(drawn(result, draw, 0));
    let acc = ct::fold(..a.num_tiles(1, left), start, |acc, k| {
        let a = a.load((0, k), left).with_layout(drawn(left, draw, 1));
        T::product(a, b.load((k, 0), right).with_layout(drawn(right, draw, 2)), acc)
    });
    c.store((0, 0), (acc.with_layout(drawn(result, draw, 3)) + 1.0).with_layout(drawn(result, draw, 4)));
}

/// Operands and sums of matrix products.
fn products<T: Factor>(session: Session) -> Result<()> {
    each_draw(session, |draw| {
        let (a, b) =
            (random::<T>(draw.1, 64 * 96, Spread::Whole(3)), random::<T>(draw.1 + 1, 96 * 64, Spread::Whole(3)));
        let (x, y) = (session.array(&a, [64, 96])?, session.array(&b, [96, 64])?);
        let mut z = session.unwritten::<f32, 2>([64, 64])?;
        session.launch(multiplied::<T>, [1], (&x, &y, &mut z, Constant(draw)))?;
        session.check(&format!("{draw:?}"), &z, &|[i, j]| {
            Want::SumOf(1.0 + (0..96).map(|k| a[i * 96 + k].to_f64() * b[k * 64 + j].to_f64()).sum::<f64>())
        })
    })
}

fn through_memory(x: Array<f32, 2>, at: Array<i32, 1>, y: ArrayMut<f32, 2>, counts: ArrayMut<i32, 1>, draw: Drawn) {
    let own = ct::scratch::<f32, 2>(SHAPE);
    own.store((0, 0), x.load((0, 0), SHAPE).with_layout(drawn(SHAPE, draw, 0)));
    let turned = own.transpose().load((0, 0), [COLUMNS, ROWS]).with_layout(drawn([COLUMNS, ROWS], draw, 1));
    // Rows that a list names, of the array and of the block's own memory.
    let rows = at.load(0, [ROWS]).with_layout(drawn([ROWS], draw, 2));
    let listed = x.gather((rows.unsqueeze(1), ct::arange(0..COLUMNS).unsqueeze(0)));
    let both = listed.with_layout(drawn(SHAPE, draw, 3)) + turned.transpose();
    y.scatter((rows.unsqueeze(1), ct::arange(0..COLUMNS).unsqueeze(0)), both.with_layout(drawn(SHAPE, draw, 4)));
    counts.atomic_add(rows, ct::ones::<i32, 1>([ROWS]).with_layout(drawn([ROWS], draw, 5)));
}

/// Shared memory, elements by lists of places, atomics: replicas do everything once.
fn memory(session: Session) -> Result<()> {
    each_draw(session, |draw| {
        let data = random::<f32>(draw.1, ROWS * COLUMNS, Spread::Whole(99));
        let rows: Vec<i32> = (0..ROWS as i32).map(|i| (i * 5 + 3) % ROWS as i32).collect();
        let (x, at) = (session.array(&data, SHAPE)?, session.array(&rows, [ROWS])?);
        let mut y = session.unwritten::<f32, 2>(SHAPE)?;
        let mut counts = session.array(&[7; ROWS], [ROWS])?;
        session.launch(through_memory, [1], (&x, &at, &mut y, &mut counts, Constant(draw)))?;
        session.check(&format!("listed {draw:?}"), &y, &|[row, j]| {
            let i = rows.iter().position(|&at| at as usize == row).unwrap();
            Want::exactly(data[row * COLUMNS + j] + data[i * COLUMNS + j])
        })?;
        session.check(&format!("counts {draw:?}"), &counts, &|_| Want::exactly(8))
    })
}

fn of_parts(x: Array<i32, 3>, y: ArrayMut<i32, 3>, draw: Drawn) {
    // Tiles of odd extents together with tiles that have layouts.
    let (whole, odd) = ([4, 8, 16], [4, 3, 16]);
    let tile = x.load((0, 0, 0), whole).with_layout(drawn(whole, draw, 0));
    let rest = x.load((0, 0, 0), odd).sum(1).with_layout(drawn([4, 1, 16], draw, 1));
    let column = tile.sum(2).with_layout(drawn([4, 8, 1], draw, 2));
    y.store((0, 0, 0), (tile + rest).with_layout(drawn(whole, draw, 3)) - column);
}

/// Three axes, broadcast tiles, and split tiles.
fn parts(session: Session) -> Result<()> {
    let shape = [4, 8, 16];
    each_draw(session, |draw| {
        let data = random::<i32>(draw.1, 4 * 8 * 16, Spread::Whole(99));
        let (x, mut y) = (session.array(&data, shape)?, session.unwritten::<i32, 3>(shape)?);
        session.launch(of_parts, [1], (&x, &mut y, Constant(draw)))?;
        session.check(&format!("{draw:?}"), &y, &|[i, j, k]| {
            let at = |j: usize, k: usize| data[ravel([i, j, k], shape)];
            let (rest, column): (i32, i32) = ((0..3).map(|j| at(j, k)).sum(), (0..16).map(|k| at(j, k)).sum());
            Want::exactly(at(j, k) + rest - column)
        })
    })
}

fn modes(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let fragment = local([2, 1]) * spatial([8, 4]) * local([1, 2]);
    let x = x.load((0, 0), [64, 64]).with_layout(local([1, 8]) * spatial([4, 1]) * fragment);
    let rows = (x.with_layout(spatial([64, 1]) * local([1, 32]) * spatial([1, 2])) - 1.0).sum(1);
    let columns = x.with_layout((local([64, 1]) * spatial([1, 64])).replicate(2)).sum(0);
    y.store((0, 0), x * rows + columns);
}

/// Layouts as people write them: a fragment of tensor cores, rows in a thread, columns in a thread.
fn in_modes(session: Session) -> Result<()> {
    if session.through_tile_ir() {
        return Ok(());
    }
    let data = random::<f32>(1, 64 * 64, Spread::Whole(9));
    let (x, mut y) = (session.array(&data, [64, 64])?, session.unwritten::<f32, 2>([64, 64])?);
    session.launch(modes, [1], (&x, &mut y))?;
    session.check("y", &y, &|[i, j]| {
        let row: f32 = (0..64).map(|j| data[i * 64 + j] - 1.0).sum();
        let column: f32 = (0..64).map(|i| data[i * 64 + j]).sum();
        Want::exactly(data[i * 64 + j] * row + column)
    })
}

fn summed(x: Array<f32, 2>, y: ArrayMut<f32, 2>, draw: Drawn) {
    let tiles = ct::range(0, x.num_tiles(0, SHAPE)).num_stages(1 + draw.1 as u32 % 4);
    let layout = drawn(SHAPE, draw, 0);
    let sum = ct::fold(tiles, ct::zeros(SHAPE), |sum, i| sum + x.load((i, 0), SHAPE).with_layout(&layout));
    y.store((0, 0), sum);
}

/// Multistage copies of tiles to shared memory, in the layout in which the threads read them.
fn multistage_copies(session: Session) -> Result<()> {
    each_draw(session, |draw| {
        let data = random::<f32>(draw.1, 7 * ROWS * COLUMNS, Spread::Whole(99));
        let (x, mut y) = (session.array(&data, [7 * ROWS, COLUMNS])?, session.unwritten::<f32, 2>(SHAPE)?);
        session.launch(summed, [1], (&x, &mut y, Constant(draw)))?;
        session.check(&format!("{draw:?}"), &y, &|at| {
            Want::exactly((0..7).map(|n| data[n * ROWS * COLUMNS + ravel(at, SHAPE)]).sum::<f32>())
        })
    })
}
