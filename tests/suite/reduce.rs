//! Reductions: every kind and element type, along each axis and along both, within a thread and across
//! warps.

use anyhow::Result;
use cutlet::element::Whole;
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
}

/// Which axes of a matrix are reduced.
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

/// Exact with small whole numbers; with any numbers within what the order of additions changes.
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
        // Of NaNs alone the result is the identity or a NaN.
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

fn integers<T: Int + Whole>(session: Session) -> Result<()> {
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
