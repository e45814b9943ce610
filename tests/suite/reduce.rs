//! Reductions: every kind and element type, along each axis and along both, within a thread and
//! across warps.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::ByteSized;
use cutlet::prelude::*;

use crate::data::{Spread, format_of, random};
use crate::elementwise::Named;
use crate::harness::{Session, Suite, Want, ravel};
use crate::integer::{value, wrapped};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("reduce/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(float_sums: f64 f32 f16 bf16);
    each!(float_products: f64 f32 f16 bf16);
    each!(float_extremes: f64 f32 f16 bf16);
    each!(integers: i8 i16 i32 i64 u8 u16 u32 u64);
    suite.test("reduce/bool", logical);
    suite.test("reduce/closures", closures);
    suite.test("reduce/several_axes", several_axes);
    each!(positions: f64 f32 f16 bf16 i8 i32 i64 u8 u64);
    each!(bits: i8 i32 u16 u64);
    suite.test("reduce/order", order);
    suite.test("reduce/several_tiles", several_tiles);
    suite.test("reduce/wider", wider);
    suite.test("reduce/columns_in_loops", columns_in_loops);
}

/// Reduced axes of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Along {
    Rows,
    Columns,
    Both,
}

type Reduction<T> = fn(Tile<T, 2>, Along) -> Tile<T, 2>;

/// A method that reduces, as a function of the axes.
macro_rules! by {
    ($method:ident $(, $more:expr)*) => {
        |x, along| match along {
            Along::Rows => x.$method(0 $(, $more)*),
            Along::Columns => x.$method(1 $(, $more)*),
            Along::Both => x.$method(.. $(, $more)*),
        }
    };
}

const TILES: [[usize; 2]; 6] = [[1, 4096], [64, 64], [1024, 1], [32, 128], [8, 2], [1, 1]];

fn kernel<T: Element>(
    x: Array<T, 2>,
    y: ArrayMut<T, 2>,
    (reduction, tile, along): (Named<Reduction<T>>, [usize; 2], Along),
) {
    y.store([0, 0], (reduction.op)(x.load([0, 0], tile), along));
}

/// Compares with a function of the elements that are combined.
fn check<T: Element>(
    session: Session,
    name: &'static str,
    op: Reduction<T>,
    input: &dyn Fn(usize) -> Vec<T>,
    want: &dyn Fn(&[T]) -> Want,
) -> Result<()> {
    for tile in TILES {
        for along in [Along::Rows, Along::Columns, Along::Both] {
            let data = input(tile[0] * tile[1]);
            let (rows, columns) = (0..tile[0], 0..tile[1]);
            let out = match along {
                Along::Rows => [1, tile[1]],
                Along::Columns => [tile[0], 1],
                Along::Both => [1, 1],
            };
            let x = session.array(&data, tile)?;
            let mut y = session.unwritten::<T, 2>(out)?;
            let constant = Constant((Named { name, op }, tile, along));
            session.launch(kernel::<T>, [1], (&x, &mut y, constant))?;
            let combined = |[i, j]: [usize; 2]| {
                let values: Vec<T> = match along {
                    Along::Rows => rows.clone().map(|i| data[ravel([i, j], tile)]).collect(),
                    Along::Columns => columns.clone().map(|j| data[ravel([i, j], tile)]).collect(),
                    Along::Both => data.clone(),
                };
                want(&values)
            };
            session.check(&format!("{name} of {tile:?} along {along:?}"), &y, &combined)?;
        }
    }
    Ok(())
}

/// Exact with small whole numbers; with any numbers within the error of a changed order of
/// additions.
fn float_sums<T: Float>(session: Session) -> Result<()> {
    let exact = |values: &[T]| Want::SumOf(values.iter().map(|x| x.to_f64()).sum());
    check::<T>(session, "sum of whole numbers", by!(sum), &|count| random(1, count, Spread::Whole(1)), &exact)?;
    if T::DTYPE.bits() == 16 {
        return Ok(());
    }
    let unit = 2f64.powi(-(format_of(T::DTYPE).expect("a float").fraction as i32));
    check::<T>(session, "sum", by!(sum), &|count| random(2, count, Spread::Moderate), &|values| {
        let value = values.iter().map(|x| x.to_f64()).sum();
        let magnitude: f64 = values.iter().map(|x| x.to_f64().abs()).sum();
        Want::Within { value, error: magnitude * unit * (values.len() as f64).sqrt() }
    })
}

/// Signs and a few twos: exact in any order.
fn float_products<T: Float>(session: Session) -> Result<()> {
    let input = |count| {
        let signs = random::<bool>(3, count, Spread::Any);
        let magnitude = |i: usize| if i % 512 == 7 { 2.0 } else { 1.0 };
        signs
            .iter()
            .enumerate()
            .map(|(i, &sign)| T::from_f64(if sign { -magnitude(i) } else { magnitude(i) }))
            .collect()
    };
    check::<T>(session, "prod", by!(prod), &input, &|values| Want::nearest(values.iter().map(|x| x.to_f64()).product()))
}

fn float_extremes<T: Float>(session: Session) -> Result<()> {
    fn largest(values: impl Iterator<Item = f64>) -> f64 {
        let larger = |a: f64, b: f64| if b > a || (a == b && a.is_sign_negative()) { b } else { a };
        values.filter(|x| !x.is_nan()).fold(f64::NEG_INFINITY, larger)
    }
    fn or_nan(values: &[f64], otherwise: f64) -> f64 {
        if values.iter().any(|x| x.is_nan()) { f64::NAN } else { otherwise }
    }
    let wide = |values: &[T]| values.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
    let max = |values: &[f64]| largest(values.iter().copied());
    let min = |values: &[f64]| -largest(values.iter().map(|x| -x));
    for spread in [Spread::Moderate, Spread::Any] {
        let input = |count| random::<T>(4, count, spread);
        // The result of NaNs alone is the identity or a NaN.
        let or_any_nan = |values: &[f64], otherwise: f64| match values.iter().all(|x| x.is_nan()) {
            true => Want::OneOf([f64::NAN, otherwise]),
            false => Want::nearest(otherwise),
        };
        check(session, "reduce_max", by!(reduce_max), &input, &|v| or_any_nan(&wide(v), max(&wide(v))))?;
        check(session, "reduce_min", by!(reduce_min), &input, &|v| or_any_nan(&wide(v), min(&wide(v))))?;
        check(session, "reduce_max_nan", by!(reduce_max_nan), &input, &|v| {
            Want::nearest(or_nan(&wide(v), max(&wide(v))))
        })?;
        check(session, "reduce_min_nan", by!(reduce_min_nan), &input, &|v| {
            Want::nearest(or_nan(&wide(v), min(&wide(v))))
        })?;
    }
    Ok(())
}

fn integers<T: Int + ByteSized>(session: Session) -> Result<()> {
    type Row<T> = (&'static str, Reduction<T>, i128, fn(i128, i128) -> i128);
    let rows: [Row<T>; 4] = [
        ("sum", by!(sum), 0, |a, b| a.wrapping_add(b)),
        ("prod", by!(prod), 1, |a, b| a.wrapping_mul(b)),
        ("reduce_max", by!(reduce_max), i128::MIN, |a, b| a.max(b)),
        ("reduce_min", by!(reduce_min), i128::MAX, |a, b| a.min(b)),
    ];
    for (name, op, identity, combine) in rows {
        let want = |values: &[T]| wrapped::<T>(values.iter().copied().map(value).fold(identity, combine));
        check(session, name, op, &|count| random(5, count, Spread::Any), &want)?;
    }
    Ok(())
}

fn logical(session: Session) -> Result<()> {
    for rarely in [1, 50, 2000] {
        let input = |count: usize| (0..count).map(|i| i * 7919 % rarely == rarely / 2).collect();
        check(session, "any", by!(any), &input, &|values| Want::exactly(values.contains(&true)))?;
        let input = |count: usize| (0..count).map(|i| i * 7919 % rarely != rarely / 2).collect();
        check(session, "all", by!(all), &input, &|values| Want::exactly(!values.contains(&false)))?;
    }
    Ok(())
}

/// Functions of the user: a + b + ab, whose neutral element is 0, and bits that any element has.
fn closures(session: Session) -> Result<()> {
    let op: Reduction<i32> = by!(reduce, 0, |acc, x| acc + x + acc * x);
    let want = |values: &[i32]| {
        Want::exactly(values.iter().fold(0i32, |a, &b| a.wrapping_add(b).wrapping_add(a.wrapping_mul(b))))
    };
    check(session, "a + b + ab", op, &|count| random(6, count, Spread::Any), &want)?;
    let op: Reduction<u8> = by!(reduce, 0, |acc, x| acc | x);
    let input = |count| random::<u8>(7, count, Spread::Whole(3));
    check(session, "or", op, &input, &|values| Want::exactly(values.iter().fold(0, |a, b| a | b)))
}

fn several_axes(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 3>, y: ArrayMut<i32, 3>, z: ArrayMut<i32, 3>, w: ArrayMut<i32, 3>) {
        let x = x.load([0, 0, 0], [4, 8, 16]);
        y.store([0, 0, 0], x.sum([0, 2]));
        z.store([0, 0, 0], x.reduce_max(1));
        w.store([0, 0, 0], x.sum([2, 1]) * 2);
    }
    let shape = [4, 8, 16];
    let data = random::<i32>(8, 512, Spread::Any);
    let x = session.array(&data, shape)?;
    let (mut y, mut z, mut w) = (
        session.unwritten::<i32, 3>([1, 8, 1])?,
        session.unwritten::<i32, 3>([4, 1, 16])?,
        session.unwritten::<i32, 3>([4, 1, 1])?,
    );
    session.launch(kernel, [1], (&x, &mut y, &mut z, &mut w))?;
    let sum = |cells: &mut dyn Iterator<Item = [usize; 3]>| {
        cells.fold(0i32, |sum, cell| sum.wrapping_add(data[ravel(cell, shape)]))
    };
    session
        .check("sum along 0 and 2", &y, &|[_, j, _]| Want::exactly(sum(&mut (0..64).map(|n| [n / 16, j, n % 16]))))?;
    session.check("largest along 1", &z, &|[i, _, k]| {
        Want::exactly((0..8).map(|j| data[ravel([i, j, k], shape)]).fold(i32::MIN, i32::max))
    })?;
    session.check("sum along 1 and 2", &w, &|[i, _, _]| {
        Want::exactly(sum(&mut (0..128).map(|n| [i, n / 16, n % 16])).wrapping_mul(2))
    })
}

/// The first of the largest and smallest elements, among many equal ones; NaNs by both rules.
fn positions<T: Comparable + Number>(session: Session) -> Result<()> {
    fn kernel<T: Number>(
        x: Array<T, 2>,
        rows: ArrayMut<i32, 2>,
        columns: ArrayMut<i32, 2>,
        all: ArrayMut<i32, 2>,
        (tile, largest): ([usize; 2], bool),
    ) {
        let x = x.load([0, 0], tile);
        let (at, value) = if largest { x.argmax_with_value(1) } else { x.argmin_with_value(1) };
        // The value is the extreme one, or the result of NaNs alone.
        let extreme = if largest { x.reduce_max(1) } else { x.reduce_min(1) };
        rows.store([0, 0], (value.eq(extreme) | value.ne(value)).select(at, -1));
        columns.store([0, 0], if largest { x.argmax(0) } else { x.argmin(0) });
        all.store([0, 0], if largest { x.argmax(..) } else { x.argmin(..) });
    }
    for (number, tile) in TILES.into_iter().enumerate() {
        let largest = number % 2 == 0;
        // The corners repeat themselves, NaNs among them; the first row has nothing else.
        let mut data = random::<T>(9, tile[0] * tile[1], Spread::Corners);
        let nan = T::from_f64(f64::NAN);
        data[..tile[1]].iter_mut().for_each(|x| *x = nan);
        let x = session.array(&data, tile)?;
        let mut rows = session.unwritten::<i32, 2>([tile[0], 1])?;
        let mut columns = session.unwritten::<i32, 2>([1, tile[1]])?;
        let mut all = session.unwritten::<i32, 2>([1, 1])?;
        session.launch(kernel::<T>, [1], (&x, &mut rows, &mut columns, &mut all, Constant((tile, largest))))?;
        let first = |values: &mut dyn Iterator<Item = T>| {
            let mut best: Option<(i32, T)> = None;
            for (at, x) in (0..).zip(values) {
                let better = |y: T| match T::DTYPE.is_float() {
                    true => {
                        if largest {
                            x.to_f64() > y.to_f64()
                        } else {
                            x.to_f64() < y.to_f64()
                        }
                    }
                    false => {
                        if largest {
                            value(x) > value(y)
                        } else {
                            value(x) < value(y)
                        }
                    }
                };
                if !(T::DTYPE.is_float() && x.to_f64().is_nan()) && best.is_none_or(|(_, y)| better(y)) {
                    best = Some((at, x));
                }
            }
            Want::exactly(best.map_or(0, |(at, _)| at))
        };
        session.check(&format!("rows of {tile:?}"), &rows, &|[i, _]| {
            first(&mut (0..tile[1]).map(|j| data[ravel([i, j], tile)]))
        })?;
        session.check(&format!("columns of {tile:?}"), &columns, &|[_, j]| {
            first(&mut (0..tile[0]).map(|i| data[ravel([i, j], tile)]))
        })?;
        session.check(&format!("all of {tile:?}"), &all, &|_| first(&mut data.iter().copied()))?;
    }
    nan_positions(session)
}

fn nan_positions(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, largest: ArrayMut<i32, 2>, smallest: ArrayMut<i32, 2>, count: ArrayMut<i32, 2>) {
        let x = x.load([0, 0], [4, 512]);
        largest.store([0, 0], x.argmax_nan(1));
        smallest.store([0, 0], x.argmin_nan(1));
        count.store([0, 0], x.ne(x).count(1));
    }
    let mut data = random::<f32>(10, 4 * 512, Spread::Moderate);
    for (at, x) in data.iter_mut().enumerate() {
        // No NaN in the first row, two in the second, all in the third.
        if matches!(at, 900 | 1000) || (1024..1536).contains(&at) {
            *x = f32::NAN;
        }
    }
    let x = session.array(&data, [4, 512])?;
    let [mut largest, mut smallest, mut count] =
        [session.unwritten([4, 1])?, session.unwritten([4, 1])?, session.unwritten([4, 1])?];
    session.launch(kernel, [1], (&x, &mut largest, &mut smallest, &mut count))?;
    let row = |i: usize| &data[i * 512..][..512];
    let position = |i: usize, better: &dyn Fn(f32, f32) -> bool| {
        let nan = row(i).iter().position(|x| x.is_nan());
        let best = (1..512).fold(0, |best, j| if better(row(i)[j], row(i)[best]) { j } else { best });
        Want::exactly(nan.unwrap_or(best) as i32)
    };
    session.check("argmax_nan", &largest, &|[i, _]| position(i, &|a, b| a > b))?;
    session.check("argmin_nan", &smallest, &|[i, _]| position(i, &|a, b| a < b))?;
    session.check("count", &count, &|[i, _]| Want::exactly(row(i).iter().filter(|x| x.is_nan()).count() as i32))
}

fn bits<T: Int + ByteSized>(session: Session) -> Result<()> {
    let input = |count| random::<T>(12, count, Spread::Any);
    let fold = |values: &[T], start: u64, combine: fn(u64, u64) -> u64| {
        let mask = u64::MAX >> (64 - T::DTYPE.bits());
        Want::Bits(values.iter().map(|x| x.to_bits()).fold(start & mask, combine))
    };
    check::<T>(session, "reduce_xor", by!(reduce_xor), &input, &|v| fold(v, 0, |a, b| a ^ b))?;
    check::<T>(session, "reduce_or", by!(reduce_or), &input, &|v| fold(v, 0, |a, b| a | b))?;
    check::<T>(session, "reduce_and", by!(reduce_and), &input, &|v| fold(v, u64::MAX, |a, b| a & b))
}

/// Maps x -> a x + b one after another, packed into one number: associative, not commutative.
fn order(session: Session) -> Result<()> {
    let after = |first: i64, second: i64| {
        let halves = |x: i64| (x as i32, (x >> 32) as i32);
        let ((a, b), (c, d)) = (halves(first), halves(second));
        let (slope, offset) = (a.wrapping_mul(c), c.wrapping_mul(b).wrapping_add(d));
        i64::from(slope as u32) | i64::from(offset) << 32
    };
    let op: Reduction<i64> = by!(reduce, 1, |first, second| {
        let low = |x: Scalar<i64>| x.cast::<i32>();
        let high = |x: Scalar<i64>| (x >> 32).cast::<i32>();
        let slope = low(first) * low(second);
        let offset = low(second) * high(first) + high(second);
        slope.cast::<u32>().cast::<i64>() | (offset.cast::<i64>() << 32)
    });
    check(session, "maps", op, &|count| random(13, count, Spread::Any), &|values| {
        Want::exactly(values.iter().copied().fold(1, after))
    })
}

/// Count, mean and squared deviations at once; and the last of the largest with its place.
fn several_tiles(session: Session) -> Result<()> {
    fn kernel(
        x: Array<f32, 2>,
        mean: ArrayMut<f32, 2>,
        squares: ArrayMut<f32, 2>,
        last: ArrayMut<i32, 2>,
        tile: [usize; 2],
    ) {
        let x = x.load([0, 0], tile);
        let start = (x, ct::zeros(tile), ct::ones(tile));
        let (m, s, _) = ct::reduce(start, 1, (0.0, 0.0, 0.0), |(ma, sa, na), (mb, sb, nb)| {
            let n = na + nb;
            let share = n.eq(0.0).select(0.0, nb / n);
            let step = mb - ma;
            (ma + step * share, sa + sb + step * step * na * share, n)
        });
        mean.store([0, 0], m);
        squares.store([0, 0], s);
        let [(value, at)] =
            ct::reduce([(x.cast::<i32>(), ct::indices(tile, 1))], 1, [(i32::MIN, -1)], |[(va, ia)], [(vb, ib)]| {
                let later = vb.ge(va);
                [(later.select(vb, va), later.select(ib, ia))]
            });
        last.store([0, 0], at + 10_000 * value);
    }
    for tile in TILES {
        let data = random::<f32>(14, tile[0] * tile[1], Spread::Between(-4.0, 9.0));
        let x = session.array(&data, tile)?;
        let (mut mean, mut squares) = (session.unwritten([tile[0], 1])?, session.unwritten([tile[0], 1])?);
        let mut last = session.unwritten([tile[0], 1])?;
        session.launch(kernel, [1], (&x, &mut mean, &mut squares, &mut last, Constant(tile)))?;
        let row = |i: usize| data[i * tile[1]..][..tile[1]].iter().map(|&x| f64::from(x));
        let average = |i: usize| row(i).sum::<f64>() / tile[1] as f64;
        session.check("mean", &mean, &|[i, _]| Want::Within { value: average(i), error: 1e-5 })?;
        session.check("squares", &squares, &|[i, _]| {
            let value = row(i).map(|x| (x - average(i)).powi(2)).sum::<f64>();
            Want::Within { value, error: 1e-5 * (value + 1.0) }
        })?;
        session.check("last", &last, &|[i, _]| {
            let whole: Vec<i32> = row(i).map(|x| x as i32).collect();
            let most = *whole.iter().max().expect("a row");
            let at = whole.iter().rposition(|&x| x == most).expect("it is there");
            Want::exactly(at as i32 + 10_000 * most)
        })?;
    }
    Ok(())
}

/// Sums and products in another type, and with a stated rounding.
fn wider(session: Session) -> Result<()> {
    fn kernel(x: Array<f16, 2>, y: Array<i8, 2>, a: ArrayMut<f32, 2>, b: ArrayMut<i64, 2>, c: ArrayMut<f32, 2>) {
        let (x, y) = (x.load([0, 0], [8, 128]), y.load([0, 0], [8, 128]));
        a.store([0, 0], x.sum_as::<f32>(1));
        b.store([0, 0], y.prod_as::<i64>(1) + y.sum_as::<i64>(1));
        c.store([0, 0], x.cast::<f32>().sum_with(1, Rounding::Zero));
    }
    let x: Vec<f16> = random(15, 8 * 128, Spread::Whole(2000));
    let y: Vec<i8> = random(16, 8 * 128, Spread::Any);
    let (x_array, y_array) = (session.array(&x, [8, 128])?, session.array(&y, [8, 128])?);
    let (mut a, mut b) = (session.unwritten([8, 1])?, session.unwritten([8, 1])?);
    let mut c = session.unwritten([8, 1])?;
    session.launch(kernel, [1], (&x_array, &y_array, &mut a, &mut b, &mut c))?;
    let sum = |i: usize| x[i * 128..][..128].iter().map(|x| x.to_f64()).sum::<f64>();
    session.check("sum_as f32", &a, &|[i, _]| Want::SumOf(sum(i)))?;
    session.check("prod_as and sum_as i64", &b, &|[i, _]| {
        let row = y[i * 128..][..128].iter().map(|&x| i64::from(x));
        Want::exactly(row.clone().fold(1i64, |a, b| a.wrapping_mul(b)).wrapping_add(row.sum()))
    })?;
    session.check("sum_with", &c, &|[i, _]| Want::SumOf(sum(i)))
}

/// Maxima and sums of columns in a loop over rows, by the transposed array, by the transposed tile
/// and along the first axis; arrays that tiles do not divide.
fn columns_in_loops(session: Session) -> Result<()> {
    fn kernel(
        x: Array<f32, 2>,
        turned: Array<f32, 2>,
        weights: Array<f32, 1>,
        [a, b, c]: [ArrayMut<f32, 1>; 3],
        [columns, rows]: [usize; 2],
    ) {
        let i = ct::bid(0);
        let pass = |axis: usize, shape: [usize; 2], load: &dyn Fn(Scalar<i32>) -> Tile<f32, 2>| {
            let start = (ct::full::<f32, 2>(shape, -1e30), ct::zeros::<f32, 2>(shape));
            let (most, sum) = ct::fold(..weights.num_tiles(0, [rows]), start, |(most, sum), j| {
                let x = weights.load(j, [rows]).unsqueeze(1 - axis) * load(j);
                let above = most.max(x.reduce_max(axis));
                (above, sum * 0.5 + (x - above).sum(axis))
            });
            (most + sum).reshape([columns])
        };
        a.store(i, pass(1, [columns, 1], &|j| turned.load([i, j], [columns, rows])));
        b.store(i, pass(1, [columns, 1], &|j| x.load([j, i], [rows, columns]).transpose()));
        c.store(i, pass(0, [1, columns], &|j| x.load([j, i], [rows, columns])));
    }
    for ([columns, rows], [height, width]) in [
        ([128, 32], [70, 132]),
        ([32, 128], [300, 40]),
        ([64, 64], [64, 64]),
        ([4, 256], [300, 12]),
        ([256, 2], [5, 260]),
    ] {
        let x = random::<f32>(21, height * width, Spread::Whole(5));
        let weights = random::<f32>(22, height, Spread::Whole(3));
        let (of_x, of_weights) = (session.array(&x, [height, width])?, session.array(&weights, [height])?);
        let [mut a, mut b, mut c] =
            [session.unwritten([width])?, session.unwritten([width])?, session.unwritten([width])?];
        let tile = Constant([columns, rows]);
        let grid = [width.div_ceil(columns)];
        session.launch(kernel, grid, (&of_x, of_x.transpose()?, &of_weights, [&mut a, &mut b, &mut c], tile))?;
        let want = |j: usize| {
            let (mut most, mut sum) = (-1e30, 0.0);
            for first in (0..height.next_multiple_of(rows)).step_by(rows) {
                // Rows beyond the array are zero.
                let at = |i: usize| if i < height { f64::from(weights[i] * x[i * width + j]) } else { 0.0 };
                let values: Vec<f64> = (first..first + rows).map(at).collect();
                most = values.iter().copied().fold(most, f64::max);
                sum = sum * 0.5 + values.iter().map(|x| x - most).sum::<f64>();
            }
            Want::Within { value: most + sum, error: 1e-6 + sum.abs() * 1e-5 }
        };
        for (name, result) in [("array", &a), ("tile", &b), ("first axis", &c)] {
            session.check(&format!("{name}, {columns}x{rows} of {height}x{width}"), result, &|[j]| want(j))?;
        }
    }
    Ok(())
}
