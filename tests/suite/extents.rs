//! Tiles whose extents are sums of two or three powers of two: in memory, arithmetic, reductions,
//! scans, shape operations, loops and branches. Their products are in `extents_product`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::random::Philox;
use cutlet::{AtomicOptions, GatherOptions, ScanOptions, ScatterOptions};

use crate::data::{Spread, random};
use crate::elementwise::Named;
use crate::harness::{Session, Suite, Want, ravel};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("extents/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(copies: f64 f16 bool);
    each!(moves: f32 u8);
    suite.test("extents/positions", positions);
    suite.test("extents/stepped", stepped);
    suite.test("extents/far", far);
    suite.test("extents/listed", listed);
    suite.test("extents/reductions", reductions);
    suite.test("extents/in_order", in_order);
    suite.test("extents/scans", scans);
    suite.test("extents/blocks", blocks);
    suite.test("extents/control", control);
    suite.test("extents/streamed", streamed);
    suite.test("extents/atomics", atomics);
    suite.test("extents/narrow", narrow);
    suite.test("extents/attention", attention);
}

const SHAPE: [usize; 2] = [101, 333];

/// Loads with padding and stores across the edges of arrays, also where rows are columns.
fn copies<T: Element>(session: Session) -> Result<()> {
    fn kernel<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, tile: [usize; 2]) {
        let at = (ct::bid(0), ct::bid(1));
        y.store(at, x.load(at, tile));
    }
    let data = random::<T>(1, SHAPE.iter().product(), Spread::Any);
    let mut x = session.array(&data, SHAPE)?;
    let turned_data = random::<T>(2, SHAPE.iter().product(), Spread::Any);
    let turned = session.array(&turned_data, [SHAPE[1], SHAPE[0]])?;
    for tile in [[6, 96], [48, 7], [1, 352], [24, 160], [3, 64]] {
        let grid = [0, 1].map(|d| SHAPE[d].div_ceil(tile[d]));
        let mut y = session.unwritten::<T, 2>(SHAPE)?;
        session.launch(kernel::<T>, grid, (&x, &mut y, Constant(tile)))?;
        session.check(&format!("{tile:?}"), &y, &|at| Want::SameBits(data[ravel(at, SHAPE)].to_bits()))?;
    }
    let tile = [20, 48];
    let grid = [0, 1].map(|d| SHAPE[d].div_ceil(tile[d]));
    let columns = turned.transpose()?;
    session.launch(kernel::<T>, grid, (&columns, &mut x, Constant(tile)))?;
    session.check("columns", &x, &|[i, j]| Want::SameBits(turned_data[j * SHAPE[0] + i].to_bits()))
}

type Move<T> = fn(Tile<T, 2>, Tile<T, 2>) -> Tile<T, 2>;
type Origin = fn([usize; 2]) -> (usize, [usize; 2]);

fn moved<T: Element>(
    x: Array<T, 2>,
    y: Array<T, 2>,
    z: ArrayMut<T, 2>,
    (operation, tile): (Named<Move<T>>, [usize; 2]),
) {
    z.store([0, 0], (operation.op)(x.load([0, 0], tile), y.load([0, 0], tile)));
}

/// Operations that move elements.
fn moves<T: Element>(session: Session) -> Result<()> {
    let check = |name: &'static str, op: Move<T>, tile: [usize; 2], result: [usize; 2], origin: Origin| -> Result<()> {
        let data = [1, 2].map(|seed| random::<T>(seed, tile.iter().product(), Spread::Any));
        let (x, y) = (session.array(&data[0], tile)?, session.array(&data[1], tile)?);
        let mut z = session.unwritten::<T, 2>(result)?;
        session.launch(moved::<T>, [1], (&x, &y, &mut z, Constant((Named { name, op }, tile))))?;
        session.check(name, &z, &|at| {
            let (number, from) = origin(at);
            Want::SameBits(data[number][ravel(from, tile)].to_bits())
        })
    };
    check("turned", |x, _| x.permute([1, 0]), [24, 96], [96, 24], |[i, j]| (0, [j, i]))?;
    check(
        "rows of 96 as three of 32",
        |x, _| x.reshape([24, 32]),
        [8, 96],
        [24, 32],
        |[i, j]| (0, [i / 3, i % 3 * 32 + j]),
    )?;
    check(
        "rows of 32 as a third",
        |x, _| x.reshape([8, 96]),
        [24, 32],
        [8, 96],
        |[i, j]| (0, [i * 3 + j / 32, j % 32]),
    )?;
    check("two rows of 48", |x, _| x.reshape([8, 96]), [16, 48], [8, 96], |[i, j]| (0, [i * 2 + j / 48, j % 48]))?;
    check(
        "rows of 20 of rows of 12",
        |x, _| x.reshape([6, 20]),
        [10, 12],
        [6, 20],
        |[i, j]| (0, [(20 * i + j) / 12, (20 * i + j) % 12]),
    )?;
    check(
        "through three axes",
        |x, _| x.reshape([4, 6, 40]).permute([1, 0, 2]).reshape([24, 40]),
        [24, 40],
        [24, 40],
        |[i, j]| (0, [i % 4 * 6 + i / 4, j]),
    )?;
    check("stretched", |x, _| x.broadcast_to([12, 80]), [1, 80], [12, 80], |[_, j]| (0, [0, j]))?;
    check(
        "one of 64 and 32",
        |x, y| ct::cat([x, y.extract([0, 0], [8, 32])], 1),
        [8, 64],
        [8, 96],
        |[i, j]| {
            if j < 64 { (0, [i, j]) } else { (1, [i, j - 64]) }
        },
    )?;
    check(
        "one of 32 and 64",
        |x, y| ct::cat([x.extract([0, 1], [8, 32]), y], 1),
        [8, 64],
        [8, 96],
        |[i, j]| {
            if j < 32 { (0, [i, j + 32]) } else { (1, [i, j - 32]) }
        },
    )?;
    check("odd ones", |x, y| ct::cat([x, y], 0), [3, 20], [6, 20], |[i, j]| (i / 3, [i % 3, j]))?;
    check("flipped", |x, _| x.flip(..), [12, 96], [12, 96], |[i, j]| (0, [11 - i, 95 - j]))?;
    check("repeated", |x, _| x.repeat([3, 2]), [8, 20], [24, 40], |[i, j]| (0, [i % 8, j % 20]))?;
    // Element by element, rows and columns together would be too many pieces.
    check("repeated twice", |x, _| x.repeat([4, 2]), [12, 7], [48, 14], |[i, j]| (0, [i % 12, j % 7]))?;
    check("each repeated", |x, _| x.repeat_interleave(1, 3), [8, 24], [8, 72], |[i, j]| (0, [i, j / 3]))?;
    check(
        "stacked",
        |x, y| ct::stack([x, y, x], 1).reshape([36, 24]),
        [12, 24],
        [36, 24],
        |[i, j]| (usize::from(i % 3 == 1), [i / 3, j]),
    )?;
    check(
        "split",
        |x, _| {
            let [a, b, c] = x.split(1);
            ct::cat([c, a, b], 1)
        },
        [4, 96],
        [4, 96],
        |[i, j]| (0, [i, (j + 64) % 96]),
    )?;
    check("interleaved", |x, y| x.interleave(y, 1), [6, 48], [6, 96], |[i, j]| (j % 2, [i, j / 2]))
}

/// Functions of the index, host tables and random numbers.
fn positions(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 2>) {
        let (i, j) = (ct::indices([12, 160], 0), ct::indices([12, 160], 1));
        let table: Vec<i32> = (0..160).map(|n| n * n % 97).collect();
        let row = ct::from_slice([1, 160], &table);
        let noise = Philox::new(7u64, 3u64).bits((0, 0), [12, 160]).cast::<i32>() & 0xff;
        y.store([0, 0], i * 1000 + j + row + ct::arange_from(160, 5, 3).unsqueeze(0) + noise);
        y.store([1, 0], ct::full([12, 160], 7).flip(0).set([11, 159], 8).set([0, 3], 9));
    }
    let mut y = session.unwritten::<i32, 2>([24, 160])?;
    session.launch(kernel, [1], (&mut y,))?;
    let noise = {
        // The same numbers in tiles of powers of two.
        fn bits(y: ArrayMut<i32, 2>) {
            y.store((0, ct::bid(0)), Philox::new(7u64, 3u64).bits((0, ct::bid(0)), [16, 32]).cast::<i32>() & 0xff);
        }
        let mut y = ct::Device::cpu().zeros::<i32, 2>([16, 160])?;
        ct::launch(bits, 5, (&mut y,))?;
        y.to_vec()?
    };
    session.check("numbers", &y, &|[i, j]| {
        Want::exactly(match i {
            0..12 => {
                let number = i * 1000 + j + j * j % 97 + 5 + 3 * j;
                number as i32 + noise[i * 160 + j]
            }
            _ => match [i - 12, j] {
                [11, 159] => 8,
                [0, 3] => 9,
                _ => 7,
            },
        })
    })
}

/// Tiles at element offsets, overlapping ones, and how many there are.
fn stepped(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>, counts: ArrayMut<i32, 1>, offset: Scalar<i32>) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let views = x.tiled([12, 48]).step([5, 40]);
        let all = views.load((i, j)) + x.load((ct::at(i * 5 + offset), ct::at(j * 40 - offset)), [12, 48]);
        y.store((i, j), all);
        counts.store_scalar(0, views.num_tiles(0));
        counts.store_scalar(1, views.num_tiles(1));
        counts.store_scalar(2, x.num_tiles(1, [12, 48]));
        counts.store_scalar(3, y.num_tiles(0, [3, 48]));
    }
    let shape = [37, 203];
    let data = random::<f32>(1, shape[0] * shape[1], Spread::Whole(100));
    let x = session.array(&data, shape)?;
    let out = [8 * 12, 6 * 48];
    let mut y = session.unwritten::<f32, 2>(out)?;
    let mut counts = session.unwritten::<i32, 1>([4])?;
    session.launch(kernel, [8, 6], (&x, &mut y, &mut counts, 3))?;
    session.check("tiles", &y, &|[i, j]| {
        let element = |row: i64, column: i64| match (usize::try_from(row), usize::try_from(column)) {
            (Ok(row), Ok(column)) if row < shape[0] && column < shape[1] => data[row * shape[1] + column],
            _ => 0.0,
        };
        let [row, column] = [i / 12 * 5 + i % 12, j / 48 * 40 + j % 48].map(|n| n as i64);
        Want::exactly(element(row, column) + element(row + 3, column - 3))
    })?;
    session.check("counts", &counts, &|[i]| Want::exactly([8, 6, 5, 32][i]))
}

/// Indices far outside, whose boxes must stay outside.
fn far(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, at: Array<i32, 1>, wide: Array<i64, 1>, y: ArrayMut<i32, 2>, z: ArrayMut<i32, 1>) {
        let row = ct::bid(0);
        y.store((row, 0), x.load(at.load_scalar(row), [112]).unsqueeze(0));
        y.store((row, 1), x.load(wide.load_scalar(row), [112]).unsqueeze(0));
        z.store(at.load_scalar(row), ct::full([112], 5));
        z.store(wide.load_scalar(row), ct::full([112], 5));
    }
    let near = [0, 1, 2, -1, i32::MAX, i32::MIN, i32::MAX / 7, i32::MAX / 7 + 1, i32::MIN / 7, 1 << 30, -(1 << 28)];
    let wide = near.map(|n| match n {
        i32::MAX => i64::MAX,
        i32::MIN => i64::MIN,
        n if n.abs() > 1 << 20 => i64::from(n) << 32,
        n => n.into(),
    });
    let data: Vec<i32> = (1..=200).collect();
    let x = session.array(&data, [200])?;
    let (at, wider) = (session.array(&near, [near.len()])?, session.array(&wide, [near.len()])?);
    let mut y = session.unwritten::<i32, 2>([near.len(), 224])?;
    let mut z = session.unwritten::<i32, 1>([112])?;
    session.launch(kernel, [near.len()], (&x, &at, &wider, &mut y, &mut z))?;
    session.check("loads", &y, &|[row, j]| {
        let index = if j < 112 { near[row].into() } else { i128::from(wide[row]) };
        let position = index * 112 + (j % 112) as i128;
        Want::exactly(if (0..200).contains(&position) { position as i32 + 1 } else { 0 })
    })?;
    session.check("stores", &z, &|_| Want::exactly(5))
}

/// Gather and scatter, by pointers and by views with one listed axis; masks.
fn listed(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, at: Array<i32, 1>, y: ArrayMut<f32, 2>, z: ArrayMut<f32, 2>) {
        let rows = at.load(0, [24]);
        y.store([0, 0], x.gather((rows.unsqueeze(1), ct::arange(0..48).unsqueeze(0))));
        let columns = ct::arange(0..48).unsqueeze(0) + (rows.unsqueeze(1) & 3);
        let mask = (columns & 1).eq(0);
        let options = GatherOptions::new().mask(mask).padding(-1.0);
        y.store([1, 0], x.gather_with((rows.unsqueeze(1), columns), options));
        y.store([2, 0], x.load((ct::at(rows), 0), [24, 48]));
        z.scatter_with((ct::indices([24, 48], 0), columns), ct::full([24, 48], 2.0), ScatterOptions::new().mask(mask));
    }
    let shape = [57, 60];
    let data = random::<f32>(1, shape[0] * shape[1], Spread::Whole(1000));
    let at: Vec<i32> = random::<i32>(2, 24, Spread::Whole(70)).into_iter().map(|n| n - 5).collect();
    let (x, rows) = (session.array(&data, shape)?, session.array(&at, [24])?);
    let mut y = session.unwritten::<f32, 2>([72, 48])?;
    let mut z = session.array(&vec![0.0; 24 * 60], [24, 60])?;
    session.launch(kernel, [1], (&x, &rows, &mut y, &mut z))?;
    let element = |row: i32, column: usize| match usize::try_from(row) {
        Ok(row) if row < shape[0] && column < shape[1] => data[row * shape[1] + column],
        _ => 0.0,
    };
    session.check("gathered", &y, &|[i, j]| {
        let row = at[i % 24];
        let column = j + (row & 3) as usize;
        Want::exactly(match i / 24 {
            1 if column % 2 == 1 => -1.0,
            1 => match element(row, column) {
                _ if !(0..57).contains(&row) => -1.0,
                inside => inside,
            },
            _ => element(row, j),
        })
    })?;
    session.check("scattered", &z, &|[i, j]| {
        let first = (at[i] & 3) as usize;
        Want::exactly(if j % 2 == 0 && (first..first + 48).contains(&j) { 2.0f32 } else { 0.0 })
    })
}

/// Reductions along each axis and over all.
fn reductions(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, rows: ArrayMut<i32, 2>, columns: ArrayMut<i32, 2>, all: ArrayMut<i32, 1>) {
        let x = x.load([0, 0], [28, 96]);
        let both = [x.sum(1), x.reduce_max(1), x.reduce_min(1), x.argmax(1), x.argmin(1), x.gt(0).count(1)];
        rows.store([0, 0], ct::cat([ct::cat(both, 1), x.reduce_xor(1), x.reduce_or(1)], 1));
        columns.store([0, 0], ct::cat([x.sum(0), x.reduce_max(0), x.argmin(0), x.ne(3).count(0)], 0));
        let whole = [x.sum(..), x.argmax(..), x.gt(90).any(..).select(1, 0), x.gt(-101).all(..).select(1, 0)];
        for (place, value) in whole.into_iter().enumerate() {
            all.store_scalar(place, value.get([0, 0]));
        }
    }
    let data = random::<i32>(3, 28 * 96, Spread::Whole(100));
    let x = session.array(&data, [28, 96])?;
    let mut rows = session.unwritten::<i32, 2>([28, 8])?;
    let mut columns = session.unwritten::<i32, 2>([4, 96])?;
    let mut all = session.unwritten::<i32, 1>([4])?;
    session.launch(kernel, [1], (&x, &mut rows, &mut columns, &mut all))?;
    let first = |v: &[i32], best: i32| v.iter().position(|&x| x == best).expect("an element") as i32;
    let max = |v: &[i32]| *v.iter().max().expect("elements");
    let min = |v: &[i32]| *v.iter().min().expect("elements");
    session.check("rows", &rows, &|[i, j]| {
        let v = &data[i * 96..][..96];
        Want::exactly(match j {
            0 => v.iter().sum(),
            1 => max(v),
            2 => min(v),
            3 => first(v, max(v)),
            4 => first(v, min(v)),
            5 => v.iter().filter(|&&x| x > 0).count() as i32,
            6 => v.iter().fold(0, |a, b| a ^ b),
            _ => v.iter().fold(0, |a, b| a | b),
        })
    })?;
    session.check("columns", &columns, &|[i, j]| {
        let v: Vec<i32> = data.iter().copied().skip(j).step_by(96).collect();
        Want::exactly(match i {
            0 => v.iter().sum(),
            1 => max(&v),
            2 => first(&v, min(&v)),
            _ => v.iter().filter(|&&x| x != 3).count() as i32,
        })
    })?;
    session.check("all", &all, &|[i]| {
        Want::exactly(match i {
            0 => data.iter().sum(),
            1 => first(&data, max(&data)),
            2 => i32::from(max(&data) > 90),
            _ => 1,
        })
    })
}

/// Reductions by functions that do not commute, of several tiles at once, with captured numbers.
fn in_order(session: Session) -> Result<()> {
    fn kernel(a: Array<i32, 2>, b: Array<i32, 2>, y: ArrayMut<i32, 2>, extra: Scalar<i32>) {
        let maps = (a.load([0, 0], [6, 112]), b.load([0, 0], [6, 112]));
        // Composition of x -> a x + b, the first one innermost.
        let then = |(a1, b1): (Scalar<i32>, Scalar<i32>), (a2, b2)| (a1 * a2, a2 * b1 + b2);
        let (scale, shift) = ct::reduce(maps, 1, (1, 0), then);
        let (_, along) = ct::scan(maps, 1, (1, 0), then);
        let shifted = maps.0.reduce(1, i32::MIN, |x, y| (x + extra).max(y + extra) - extra);
        y.store([0, 0], ct::cat([scale, shift, shifted, along.extract([0, 55], [6, 2]).reduce_max(1)], 1));
    }
    let data = [1, 2].map(|seed| random::<i32>(seed, 6 * 112, Spread::Whole(9)));
    let (a, b) = (session.array(&data[0], [6, 112])?, session.array(&data[1], [6, 112])?);
    let mut y = session.unwritten::<i32, 2>([6, 4])?;
    session.launch(kernel, [1], (&a, &b, &mut y, 40))?;
    session.check("rows", &y, &|[i, j]| {
        let row = i * 112..(i + 1) * 112;
        let pairs: Vec<(i32, i32)> = row.clone().map(|n| (data[0][n], data[1][n])).collect();
        let through = |count: usize| {
            pairs[..count]
                .iter()
                .fold((1i32, 0i32), |(a1, b1), &(a2, b2)| (a1.wrapping_mul(a2), a2.wrapping_mul(b1).wrapping_add(b2)))
        };
        Want::exactly(match j {
            0 => through(112).0,
            1 => through(112).1,
            2 => *data[0][row].iter().max().expect("elements"),
            _ => through(111).1.max(through(112).1),
        })
    })
}

/// Scans in both directions, along both axes, inclusive and not.
fn scans(session: Session) -> Result<()> {
    fn kernel(x: Array<i64, 2>, y: ArrayMut<i64, 2>) {
        let x = x.load([0, 0], [12, 72]);
        let reverse = ScanOptions::new().reverse();
        let all = [
            x.cumsum(1),
            x.cumsum_with(1, reverse),
            x.cummax(0),
            x.cumsum_with(0, ScanOptions::new().exclusive()),
            x.cumsum_with(1, reverse.exclusive()),
        ];
        for (number, tile) in all.into_iter().enumerate() {
            y.store((number, 0), tile);
        }
    }
    let data = random::<i64>(1, 12 * 72, Spread::Whole(1000));
    let x = session.array(&data, [12, 72])?;
    let mut y = session.unwritten::<i64, 2>([60, 72])?;
    session.launch(kernel, [1], (&x, &mut y))?;
    session.check("scans", &y, &|[i, j]| {
        let (number, row) = (i / 12, i % 12);
        let v = &data[row * 72..][..72];
        let above = |end: usize| (0..end).map(|k| data[k * 72 + j]).collect::<Vec<_>>();
        Want::exactly(match number {
            0 => v[..=j].iter().sum::<i64>(),
            1 => v[j..].iter().sum(),
            2 => above(row + 1).into_iter().max().expect("elements"),
            3 => above(row).into_iter().sum(),
            _ => v[j + 1..].iter().sum(),
        })
    })
}

/// Blocks at indices of run time and of the host, in and out.
fn blocks(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, at: Array<i32, 1>, y: ArrayMut<i32, 2>) {
        let x = x.load([0, 0], [24, 96]);
        let [i, j] = [0, 1].map(|n| at.load_scalar(ct::bid(0) * 2 + n));
        let store = |number: usize, tile: Tile<i32, 2>| y.store((ct::bid(0) * 5 + number, 0), tile);
        let block = x.extract((i, j), [8, 32]);
        store(0, ct::zeros([24, 96]).insert((i, j), block + 1));
        let odd = x.extract((j, i), [8, 48]);
        store(1, ct::cat([odd, odd], 1).repeat([3, 1]));
        store(2, x.insert([1, 0], ct::full([12, 48], -7)).insert([0, 2], ct::full([24, 32], 3)));
        store(3, x.set((i * 8, j * 32), x.get((j, i * 31))));
        store(4, ct::full([24, 96], 1).insert((j, 1), x.extract((0, i), [6, 32]).flip(1)));
    }
    let places = [[0, 0], [1, 2], [2, 1], [0, 2], [2, 0]];
    let data = random::<i32>(4, 24 * 96, Spread::Any);
    let x = session.array(&data, [24, 96])?;
    let at = session.array(places.as_flattened(), [10])?;
    let mut y = session.unwritten::<i32, 2>([5 * 5 * 24, 96])?;
    session.launch(kernel, [5], (&x, &at, &mut y))?;
    session.check("blocks", &y, &|[row, j]| {
        let (turn, i) = (row / 24, row % 24);
        let [a, b] = places[turn / 5].map(|n| n as usize);
        let x = |i: usize, j: usize| data[i * 96 + j];
        // Numbers beyond the last block mean the last one.
        Want::exactly(match turn % 5 {
            0 if i / 8 == a && j / 32 == b => x(i, j).wrapping_add(1),
            0 => 0,
            1 => x(b * 8 + i % 8, a.min(1) * 48 + j % 48),
            2 if j >= 64 => 3,
            2 if i >= 12 && j < 48 => -7,
            2 => x(i, j),
            3 if [i, j] == [a * 8, b * 32] => x(b, a * 31),
            3 => x(i, j),
            _ if i / 6 == b && j / 32 == 1 => x(i % 6, a * 32 + 31 - j % 32),
            _ => 1,
        })
    })
}

/// Tiles that loops carry and branches return, also with other values, and loops that end early.
fn control(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
        let shape = [12, 40];
        let row = ct::bid(0);
        let state = (ct::zeros::<f32, 2>(shape), ct::scalar(0), ct::zeros::<f32, 2>([8, 8]));
        let (sum, count, small) = ct::fold(..x.num_tiles(1, shape), state, |(sum, count, small), k| {
            let tile = x.load((row, k), shape);
            let (sum, small) = ct::if_else(
                (k & 1).eq(0),
                || (sum + tile, small),
                || (sum - tile * 2.0, small + tile.extract([0, 0], [4, 8]).repeat([2, 1])),
            );
            (sum, count + 1, small)
        });
        let (halved, _) = ct::while_loop(
            (sum, ct::scalar(0)),
            |(tile, turn)| tile.reduce_max(..).get([0, 0]).gt(8.0) & turn.lt(20),
            |(tile, turn)| (tile * 0.5, turn + 1),
        );
        let first = ct::fold_with_control(..10, sum, |tile, k, flow| {
            flow.break_if(k.eq(3), tile + 1.0);
            flow.continue_if(k.eq(1), tile * 3.0);
            tile - 1.0
        });
        y.store((row * 3, 0), halved);
        y.store((row * 3 + 1, 0), first);
        y.store((row * 3 + 2, 0), ct::full(shape, small.sum(..).get([0, 0])) + count.cast::<f32>());
    }
    let [rows, columns] = [30, 170];
    let data = random::<f32>(5, rows * columns, Spread::Whole(20));
    let x = session.array(&data, [rows, columns])?;
    let mut y = session.unwritten::<f32, 2>([3 * 36, 40])?;
    session.launch(kernel, [3], (&x, &mut y))?;
    let element = |i: usize, j: usize| if i < rows && j < columns { data[i * columns + j] } else { 0.0 };
    let sum = |block: usize, i: usize, j: usize| {
        (0..5).map(|k| element(block * 12 + i, k * 40 + j) * if k % 2 == 0 { 1.0 } else { -2.0 }).sum::<f32>()
    };
    session.check("tiles", &y, &|[row, j]| {
        let (block, number, i) = (row / 36, row / 12 % 3, row % 12);
        let own = sum(block, i, j);
        Want::exactly(match number {
            0 => {
                let all = (0..12).flat_map(|i| (0..40).map(move |j| (i, j)));
                let mut most = all.map(|(i, j)| sum(block, i, j)).fold(f32::MIN, f32::max);
                let mut value = own;
                while most > 8.0 {
                    (most, value) = (most * 0.5, value * 0.5);
                }
                value
            }
            1 => (own - 1.0) * 3.0 - 1.0 + 1.0,
            _ => {
                let tile = |k: usize| (0..4).flat_map(move |i| (0..8).map(move |j| (i, k * 40 + j)));
                let small: f32 = [1, 3].into_iter().flat_map(tile).map(|(i, j)| element(block * 12 + i, j) * 2.0).sum();
                small + 5.0
            }
        })
    })
}

/// Parts of tiles that a loop reads and writes: non-adjacent boxes with multistage copies.
fn streamed(session: Session) -> Result<()> {
    fn kernel(x: Array<f16, 3>, y: ArrayMut<f16, 3>, shape: [usize; 3]) {
        let (group, image) = (ct::bid(0), ct::bid(1));
        let load = |j: Scalar<i32>| x.load((image, group, j), shape).cast::<f32>();
        let start = ct::zeros::<f32, 3>(shape);
        let sum = ct::fold(..x.num_tiles(2, shape), start, |sum, j| sum + load(j)).sum(..);
        ct::fold(..x.num_tiles(2, shape), (), |(), j| {
            y.store((image, group, j), (load(j) + sum).cast::<f16>());
        });
    }
    for ([images, channels, pixels], shape) in
        [([2, 30, 1024], [1, 10, 256]), ([1, 25, 1000], [1, 10, 512]), ([3, 12, 768], [1, 6, 192])]
    {
        let data = random::<f16>(9, images * channels * pixels, Spread::Whole(1));
        let x = session.array(&data, [images, channels, pixels])?;
        let mut y = session.unwritten::<f16, 3>([images, channels, pixels])?;
        session.launch(kernel, [channels.div_ceil(shape[1]), images], (&x, &mut y, Constant(shape)))?;
        let element = |image: usize, c: usize, p: usize| data[(image * channels + c) * pixels + p].to_f32();
        let sum = |image: usize, group: usize| -> f32 {
            let of = group * shape[1]..channels.min((group + 1) * shape[1]);
            of.flat_map(|c| (0..pixels).map(move |p| (c, p))).map(|(c, p)| element(image, c, p)).sum()
        };
        let sums: Vec<f32> = (0..images * channels.div_ceil(shape[1]))
            .map(|at| sum(at / channels.div_ceil(shape[1]), at % channels.div_ceil(shape[1])))
            .collect();
        session.check("elements", &y, &|[image, c, p]| {
            let total = sums[image * channels.div_ceil(shape[1]) + c / shape[1]];
            Want::exactly(f16::from_f32(element(image, c, p) + total))
        })?;
    }
    Ok(())
}

/// Sums in memory, by views and by index tiles, with and without results.
fn atomics(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, sums: ArrayMut<i32, 2>, bins: ArrayMut<i32, 1>, seen: ArrayMut<i32, 2>) {
        let row = ct::bid(0);
        let tile = x.load((row, 0), [6, 80]);
        sums.atomic_add((ct::span(0, 6), ct::span(0, 80)), tile);
        sums.tiled([6, 80]).atomic_store_add((0, 0), tile);
        bins.atomic_add(tile & 15, 1);
        let columns = ct::arange(0..80).unsqueeze(0);
        let rows = ct::arange(0..6).unsqueeze(1) + row * 6;
        let some = AtomicOptions::new().mask((columns % 3).eq(0));
        let before = seen.atomic_add_with((rows, columns), tile, some);
        seen.scatter((rows + 30, columns), (columns % 3).eq(0).broadcast_to([6, 80]).select(before, -1));
    }
    let data = random::<i32>(6, 30 * 80, Spread::Whole(500));
    let x = session.array(&data, [30, 80])?;
    let mut sums = session.array(&vec![0; 6 * 80], [6, 80])?;
    let mut bins = session.array(&[0; 16], [16])?;
    let start: Vec<i32> = (0..60 * 80).collect();
    let mut seen = session.array(&start, [60, 80])?;
    session.launch(kernel, [5], (&x, &mut sums, &mut bins, &mut seen))?;
    session
        .check("sums", &sums, &|[i, j]| Want::exactly((0..5).map(|b| 2 * data[(b * 6 + i) * 80 + j]).sum::<i32>()))?;
    session.check("bins", &bins, &|[bin]| {
        Want::exactly(data.iter().filter(|&&x| (x & 15) as usize == bin).count() as i32)
    })?;
    session.check("before", &seen, &|[i, j]| {
        let third = j % 3 == 0;
        Want::exactly(match i {
            0..30 if third => start[i * 80 + j] + data[i * 80 + j],
            0..30 => start[i * 80 + j],
            _ if third => start[(i - 30) * 80 + j],
            _ => -1,
        })
    })
}

/// Conversions to narrow types and their bytes.
fn narrow(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>, bytes: ArrayMut<u8, 1>) {
        let x = x.load(0, [96]);
        y.store(0, x.cast::<f16>().cast::<f32>());
        y.store(1, x.cast::<f8e4m3fn>().cast::<f32>());
        bytes.store(0, x.cast::<f16>().pack_to_bytes());
        y.store(2, x.cast::<f16>().pack_to_bytes().unpack_from_bytes::<f16>().cast::<f32>());
    }
    let data = random::<f32>(7, 96, Spread::Whole(8));
    let x = session.array(&data, [96])?;
    let mut y = session.unwritten::<f32, 1>([288])?;
    let mut bytes = session.unwritten::<u8, 1>([192])?;
    session.launch(kernel, [1], (&x, &mut y, &mut bytes))?;
    session.check("numbers", &y, &|[i]| Want::exactly(data[i % 96]))?;
    session.check("bytes", &bytes, &|[i]| Want::exactly(f16::from_f32(data[i / 2]).to_bits().to_le_bytes()[i % 2]))
}

/// Attention over heads of 80 and 96 elements.
fn attention(session: Session) -> Result<()> {
    fn kernel(q: Array<f16, 2>, k: Array<f16, 2>, v: Array<f16, 2>, y: ArrayMut<f32, 2>, [m, n, d]: [usize; 3]) {
        let row = ct::bid(0);
        let queries = q.load((row, 0), [m, d]);
        let start = (ct::zeros::<f32, 2>([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros::<f32, 2>([m, 1]));
        let (sum, _, weight) = ct::fold(..k.num_tiles(0, [n, d]), start, |(sum, most, weight), step| {
            let scores = ct::matmul(queries, k.load((step, 0), [n, d]).permute([1, 0])) * 0.125;
            let inside = (ct::indices([1, n], 1) + step * n).lt(k.extent(0));
            let scores = inside.broadcast_to([m, n]).select(scores, f32::NEG_INFINITY);
            let next = most.max(scores.reduce_max(1));
            let (weights, keep) = ((scores - next).exp(), (most - next).exp());
            let sum = ct::mma(weights.cast::<f16>(), v.load((step, 0), [n, d]), sum * keep);
            (sum, next, weight * keep + weights.sum(1))
        });
        y.store((row, 0), sum / weight);
    }
    for [m, n, d] in [[48, 64, 96], [16, 96, 80], [64, 176, 64], [64, 48, 192]] {
        let [queries, keys] = [50, 2 * n + 9];
        let data: Vec<Vec<f16>> = [(1, queries), (2, keys), (3, keys)]
            .map(|(seed, rows)| {
                random::<f32>(seed, rows * d, Spread::Whole(8)).iter().map(|x| f16::from_f32(x / 8.0)).collect()
            })
            .to_vec();
        let arrays = [(0, queries), (1, keys), (2, keys)].map(|(n, rows)| session.array(&data[n], [rows, d]));
        let [q, k, v] = arrays;
        let mut y = session.unwritten::<f32, 2>([queries, d])?;
        let grid = [queries.div_ceil(m)];
        session.launch(kernel, grid, (&q?, &k?, &v?, &mut y, Constant([m, n, d])))?;
        let wide = |list: &[f16], row: usize| list[row * d..][..d].iter().map(|x| x.to_f64()).collect::<Vec<_>>();
        let row = |i: usize| {
            let q = wide(&data[0], i);
            let scores: Vec<f64> = (0..keys)
                .map(|row| wide(&data[1], row).iter().zip(&q).map(|(a, b)| a * b).sum::<f64>() * 0.125)
                .collect();
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let total: f64 = weights.iter().sum();
            let mut sums = vec![0.0; d];
            for (key, weight) in weights.iter().enumerate() {
                sums.iter_mut().zip(wide(&data[2], key)).for_each(|(sum, v)| *sum += weight * v / total);
            }
            sums
        };
        let want: Vec<Vec<f64>> = (0..queries).map(row).collect();
        session.check("attention", &y, &|[i, j]| Want::Within { value: want[i][j], error: 2e-3 })?;
    }
    Ok(())
}
