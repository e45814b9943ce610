//! Loops and branches: bounds of all kinds, every kind of state, nesting, early exit; and functions
//! applied with `map`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel, unwritten};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("control/ranges", ranges);
    suite.test("control/ranges_of_loads", ranges_of_loads);
    suite.test("control/nested", nested);
    suite.test("control/while", collatz);
    suite.test("control/early_exit", early_exit);
    suite.test("control/branches", branches);
    suite.test("control/branch_in_loop", branch_in_loop);
    suite.test("control/state", state);
    suite.test("control/persistent", persistent);
    suite.test("control/map", maps);
    suite.test("control/captures", captures);
}

/// Bounds from the host, from the grid and from memory. Steps of 0, negative ones, and ones beyond
/// the last number. Empty and reversed ranges, loops with early exits.
fn ranges(session: Session) -> Result<()> {
    fn kernel(bounds: Array<i32, 1>, y: ArrayMut<i32, 2>) {
        let row = ct::bid(0);
        let [start, end, step] = [0, 1, 2].map(|i| bounds.load_scalar(row * 3 + i));
        let dynamic = ct::fold(ct::range(start, end).step(step), ct::scalar(1), |acc, i| acc * 3 + i);
        let from_host = ct::fold(0..7, ct::scalar(0), |acc, i| acc + i * i);
        let by_threes = ct::fold(ct::range(-4, 11).step(3), ct::scalar(0), |acc, i| acc * 2 + i);
        let empty = ct::fold(5..5, ct::scalar(-1), |acc, i| acc + i);
        let by_grid = ct::fold(..ct::num_blocks(0), ct::scalar(0), |acc, i| acc + i * (row + 1));
        let start_value = (ct::scalar(0), ct::scalar(1));
        let (turns, left) = ct::fold_while(ct::range(start, end).step(step), start_value, |(turns, acc), i| {
            (turns.lt(3), (turns + 1, acc * 3 + i))
        });
        let (_, far) = ct::fold_while(ct::range(start, i32::MAX).step(1 << 30), start_value, |(turns, acc), i| {
            (turns.lt(9), (turns + 1, acc * 3 + i))
        });
        let all = [dynamic, from_host, by_threes, empty, by_grid, turns, left, far];
        for (column, value) in all.into_iter().enumerate() {
            y.store_scalar((row, column), value);
        }
    }
    const MIN: i32 = i32::MIN;
    const MAX: i32 = i32::MAX;
    let bounds = [
        [[0, 5, 1], [-3, 8, 4], [7, 2, 1], [100, 101, 50], [0, 0, 1], [MAX - 3, MAX, 2]],
        [[0, 9, 0], [0, 9, -1], [0, 9, MIN], [9, 0, -1], [MIN, MIN, 0], [MIN, MAX, -1]],
        [
            [MIN, MAX, MAX],
            [MIN + 5, 9, MAX],
            [MAX - 1, MAX, 1],
            [MAX - 1, MAX, MAX],
            [-1, MAX, 1 << 30],
            [MIN, -1, MAX],
        ],
    ];
    let bounds = bounds.as_flattened().as_flattened();
    let rows = bounds.len() / 3;
    let device_bounds = session.array(bounds, [bounds.len()])?;
    let mut y = session.unwritten::<i32, 2>([rows, 8])?;
    session.launch(kernel, [rows], (&device_bounds, &mut y))?;
    let by = |start: i32, end: i32, step: i32| {
        let mut numbers = Vec::new();
        let mut i = i64::from(start);
        while (i < i64::from(end) && step > 0) || (i > i64::from(end) && step < 0) {
            numbers.push(i as i32);
            i += i64::from(step);
        }
        numbers
    };
    session.check("loops", &y, &|[row, column]| {
        let [start, end, step] = [0, 1, 2].map(|i| bounds[3 * row + i]);
        Want::exactly(match column {
            0 => by(start, end, step).iter().fold(1i32, |acc, &i| acc.wrapping_mul(3).wrapping_add(i)),
            1 => (0..7).map(|i| i * i).sum(),
            2 => by(-4, 11, 3).iter().fold(0, |acc, i| acc * 2 + i),
            3 => -1,
            5 => by(start, end, step).len().min(4) as i32,
            6 => by(start, end, step).iter().take(4).fold(1i32, |acc, &i| acc.wrapping_mul(3).wrapping_add(i)),
            7 => by(start, MAX, 1 << 30).iter().fold(1i32, |acc, &i| acc.wrapping_mul(3).wrapping_add(i)),
            _ => (0..rows as i32).sum::<i32>() * (row as i32 + 1),
        })
    })
}

/// Loads of a loop whose counter comes near the end of its type, where prefetches must not go past
/// it.
fn ranges_of_loads(session: Session) -> Result<()> {
    const WIDTH: usize = 512;
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>, start: Scalar<i32>, end: Scalar<i32>, step: Scalar<i32>) {
        let zero = ct::zeros::<f32, 2>([1, WIDTH]);
        let sum = ct::fold(ct::range(start, end).step(step), zero, |sum, i| {
            sum * 2.0 + x.load(((i - start) / step, 0), [1, WIDTH])
        });
        y.store([0, 0], sum);
    }
    let x: Vec<f32> = (0..16 * WIDTH).map(|i| (i * 7 % 31) as f32).collect();
    let device_x = session.array(&x, [16, WIDTH])?;
    for (start, end, step) in [(0, 9, 1), (i32::MAX - 5, i32::MAX, 2), (i32::MAX - 1, i32::MAX, i32::MAX), (4, 4, 1)] {
        let mut y = session.unwritten::<f32, 2>([1, WIDTH])?;
        session.launch(kernel, [1], (&device_x, &mut y, start, end, step))?;
        let rows = (i64::from(start)..i64::from(end)).step_by(step as usize).count();
        session.check(&format!("{start} to {end} by {step}"), &y, &|[_, j]| {
            Want::exactly((0..rows).fold(0f32, |sum, row| sum * 2.0 + x[row * WIDTH + j]))
        })?;
    }
    Ok(())
}

/// A loop in a loop over tiles, the inner bound given by the outer counter.
fn nested(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
        let tile = [1, 32];
        let row = ct::bid(0);
        let sum = ct::fold(..x.num_tiles(1, tile), ct::zeros(tile), |acc, j| {
            let x = x.load([row, j], tile);
            ct::fold(..j + 1, acc, |acc, _| acc + x)
        });
        y.store((row, 0), sum);
    }
    let shape = [6, 100];
    let data = random::<f32>(1, 600, Spread::Whole(9));
    let x = session.array(&data, shape)?;
    let mut y = session.unwritten::<f32, 2>([6, 32])?;
    session.launch(kernel, [6], (&x, &mut y))?;
    session.check("nested loops", &y, &|[i, j]| {
        let term = |tile: usize| {
            let column = 32 * tile + j;
            if column < 100 { data[ravel([i, column], shape)] * (tile + 1) as f32 } else { 0.0 }
        };
        Want::SumOf((0..4).map(term).sum::<f32>().into())
    })
}

/// A loop whose length only running it tells.
fn collatz(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 1>) {
        let start = ct::bid(0) + 1;
        let (_, steps) = ct::while_loop(
            (start, ct::scalar(0)),
            |(n, _)| n.ne(1),
            |(n, steps)| (ct::select((n & 1).eq(0), n / 2, n * 3 + 1), steps + 1),
        );
        y.store_scalar(ct::bid(0), steps);
    }
    let mut y = session.unwritten::<i32, 1>([60])?;
    session.launch(kernel, [60], (&mut y,))?;
    session.check("steps", &y, &|[i]| {
        let (mut n, mut steps) = (i + 1, 0);
        while n != 1 {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
        Want::exactly(steps)
    })
}

fn early_exit(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<i32, 1>) {
        let row = ct::bid(0);
        let tiles = x.num_tiles(1, [1, 16]);
        let found = ct::fold_while(..tiles, tiles, |found, j| {
            let hit = x.load([row, j], [1, 16]).gt(0.5).any(..).item();
            (!hit, hit.select(j, found))
        });
        y.store_scalar(row, found);
    }
    let shape = [20, 90];
    let mut data = vec![0f32; 1800];
    for row in 0..19 {
        data[ravel([row, row * 4 + 3], shape)] = 1.0;
    }
    let x = session.array(&data, shape)?;
    let mut y = session.unwritten::<i32, 1>([20])?;
    session.launch(kernel, [20], (&x, &mut y))?;
    let first = |row: usize| if row < 19 { (row * 4 + 3) / 16 } else { 6 };
    session.check("first tile", &y, &|[row]| Want::exactly(first(row) as i32))
}

/// Conditions from the grid, from memory, from the host; branches that only store.
fn branches(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, flags: Array<bool, 1>, y: ArrayMut<f32, 2>, z: ArrayMut<f32, 2>) {
        let (row, tile) = (ct::bid(0), [1, 64]);
        let x = x.load((row, 0), tile);
        let flag = flags.load_scalar(row);
        let (a, b) = ct::if_else(
            flag,
            || (x * 2.0, ct::if_else((row % 3).eq(0), || x + 1.0, || x - 1.0)),
            || (-x, ct::if_else(true, || x, || unreachable!("decided while tracing"))),
        );
        y.store((row, 0), a + b);
        ct::if_then(x.sum(..).gt(0.0), || z.store((row, 0), x));
    }
    let shape = [17, 64];
    let data = random::<f32>(2, 17 * 64, Spread::Whole(5));
    let flags = random::<bool>(3, 17, Spread::Any);
    let (x, device_flags) = (session.array(&data, shape)?, session.array(&flags, [17])?);
    let (mut y, mut z) = (session.unwritten::<f32, 2>(shape)?, session.unwritten::<f32, 2>(shape)?);
    session.launch(kernel, [17], (&x, &device_flags, &mut y, &mut z))?;
    session.check("branches with values", &y, &|[row, column]| {
        let x = data[ravel([row, column], shape)];
        let shifted = if row % 3 == 0 { x + 1.0 } else { x - 1.0 };
        Want::SumOf(f64::from(if flags[row] { x * 2.0 + shifted } else { -x + x }))
    })?;
    session.check("branches that store", &z, &|[row, column]| {
        let positive = data[row * 64..(row + 1) * 64].iter().sum::<f32>() > 0.0;
        Want::exactly(if positive { data[ravel([row, column], shape)] } else { unwritten() })
    })
}

fn branch_in_loop(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
        let tiles = x.num_tiles(0, [32]);
        let (even, odd) = ct::fold(..tiles, (ct::zeros([32]), ct::zeros([32])), |(even, odd), i| {
            let tile = x.load(i, [32]);
            ct::if_else((i % 2).eq(0), || (even + tile, odd), || (even, odd + tile * 2))
        });
        y.store(0, even - odd);
    }
    let data = random::<i32>(4, 32 * 9 + 5, Spread::Whole(100));
    let x = session.array(&data, [data.len()])?;
    let mut y = session.unwritten::<i32, 1>([32])?;
    session.launch(kernel, [1], (&x, &mut y))?;
    session.check("sums", &y, &|[j]| {
        let term = |tile: usize| {
            let element = data.get(32 * tile + j).copied().unwrap_or(0);
            if tile.is_multiple_of(2) { element } else { -2 * element }
        };
        Want::exactly((0..10).map(term).sum::<i32>())
    })
}

/// State of tuples, arrays, vectors and structs, with values of several types and shapes that
/// change places.
fn state(session: Session) -> Result<()> {
    #[derive(Clone, Copy)]
    struct Pair {
        tile: Tile<f32, 2>,
        count: Scalar<i64>,
    }
    ct::impl_loop_state!(Pair { tile, count });
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>, z: ArrayMut<i64, 1>) {
        let x = x.load([0, 0], [8, 16]);
        let pair = Pair { tile: x, count: ct::scalar(1i64) };
        let init = (pair, [x.sum(1), x.reduce_max(1)], vec![ct::scalar(true), ct::scalar(false)]);
        let (pair, [sum, max], flags) = ct::fold(..3usize, init, |(pair, [a, b], flags), i| {
            let next = Pair { tile: pair.tile + a, count: pair.count * 5 + i.cast::<i64>() };
            (next, [b, a], vec![flags[1], flags[0]])
        });
        y.store([0, 0], pair.tile + sum * 2.0 - max);
        z.store_scalar(0, pair.count);
        z.store_scalar(1, flags[0].select(ct::scalar(10i64), 20));
    }
    let data = random::<f32>(5, 128, Spread::Whole(9));
    let x = session.array(&data, [8, 16])?;
    let (mut y, mut z) = (session.unwritten::<f32, 2>([8, 16])?, session.unwritten::<i64, 1>([2])?);
    session.launch(kernel, [1], (&x, &mut y, &mut z))?;
    session.check("tiles", &y, &|[i, j]| {
        let row = &data[16 * i..16 * (i + 1)];
        let (sum, max) = (row.iter().sum::<f32>(), row.iter().copied().fold(f32::MIN, f32::max));
        // Three turns add sum, max, sum, and exchange the two an odd number of times.
        Want::SumOf((row[j] + sum + max + sum + max * 2.0 - sum).into())
    })?;
    session.check("scalars", &z, &|[i]| Want::exactly([(5 * 5 + 1) * 5 + 2, 20i64][i]))
}

/// A fixed number of blocks shares all tiles.
fn persistent(session: Session) -> Result<()> {
    fn kernel(x: Array<f16, 2>, y: ArrayMut<f16, 2>) {
        let tile = [16, 16];
        let columns = x.num_tiles(1, tile);
        let all = x.num_tiles(0, tile) * columns;
        ct::fold(ct::range(ct::bid(0), all).step(ct::num_blocks(0)), (), |(), i| {
            let at = [i / columns, i % columns];
            y.store(at, x.load(at, tile) * 2.0);
        });
    }
    let shape = [70, 123];
    let data = random::<f16>(6, 70 * 123, Spread::Moderate);
    let x = session.array(&data, shape)?;
    let mut y = session.unwritten::<f16, 2>(shape)?;
    session.launch(kernel, [7], (&x, &mut y))?;
    session.check("all tiles", &y, &|at| Want::nearest(data[ravel(at, shape)].to_f64() * 2.0))
}

fn maps(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 2>, z: ArrayMut<bool, 2>) {
        let x = x.load([0, 0], [16, 32]);
        let clipped = x.map(|x| (x * x).min(1000) - x.lt(0).select(ct::scalar(1), 0));
        y.store([0, 0], clipped);
        z.store([0, 0], x.zip_map(clipped, |x, clipped| (x + clipped).gt(100)));
    }
    let shape = [16, 32];
    let data = random::<i32>(7, 512, Spread::Whole(60));
    let x = session.array(&data, shape)?;
    let (mut y, mut z) = (session.unwritten::<i32, 2>(shape)?, session.unwritten::<bool, 2>(shape)?);
    session.launch(kernel, [1], (&x, &mut y, &mut z))?;
    let clipped = |x: i32| (x * x).min(1000) - i32::from(x < 0);
    session.check("map", &y, &|at| Want::exactly(clipped(data[ravel(at, shape)])))?;
    session.check("zip_map", &z, &|at| {
        let x = data[ravel(at, shape)];
        Want::exactly(x + clipped(x) > 100)
    })
}

/// A closure with captures is never confused with an earlier one of the same type.
fn captures(session: Session) -> Result<()> {
    for factor in [2, 3, 5] {
        let scale = move |y: ArrayMut<i32, 1>| y.store(ct::bid(0), ct::arange(0..16) * factor);
        let mut y = session.unwritten::<i32, 1>([16])?;
        session.launch(scale, [1], (&mut y,))?;
        session.check("captured factor", &y, &|[i]| Want::exactly(i as i32 * factor))?;
    }
    Ok(())
}
