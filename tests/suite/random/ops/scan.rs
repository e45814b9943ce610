//! Scans: the first number is the axis, the second one the way (1: reversed, 2: exclusive, 3:
//! both).

use super::arithmetic::{max, min};
use super::reduce::composed;
use super::row::*;
use super::{Forms, Step, Typing};

/// Returns the scan: the combination of the elements before an index, and of the element at the
/// index unless the scan is exclusive.
fn scanned<X: Copy>(
    e: &Eval<'_, '_>,
    start: X,
    element: impl Fn(usize, usize) -> X,
    combine: impl Fn(X, X) -> X,
    number: impl Fn(X) -> Number,
) -> Values {
    let form = e.form(0);
    let [rows, columns] = form.shape;
    let (axis, way) = (e.n(0), e.n(1));
    let (lines, length) = if axis == 0 { (columns, rows) } else { (rows, columns) };
    let mut data = vec![Number::Int(0); form.count()];
    for line in 0..lines {
        let mut so_far = None;
        for n in 0..length {
            let n = if way & 1 == 1 { length - 1 - n } else { n };
            let (i, j) = if axis == 0 { (n, line) } else { (line, n) };
            let next = so_far.map_or(element(i, j), |before| combine(before, element(i, j)));
            data[i * columns + j] = number(if way & 2 == 2 { so_far.unwrap_or(start) } else { next });
            so_far = Some(next);
        }
    }
    Values { kind: form.kind, shape: form.shape, data }
}

fn ints_scanned(e: &Eval<'_, '_>, start: i128, combine: impl Fn(i128, i128) -> i128) -> Vec<Values> {
    let a = e.arg(0);
    let wrapped = |x| a.kind.wrapped(x).int();
    vec![scanned(e, start, |i, j| a.at(i, j).int(), |x, y| wrapped(combine(x, y)), Number::Int)]
}

macro_rules! scan {
    ($name:literal $weight:literal $method:ident $eval:expr) => {
        op! { $name in "scans", $weight; args [Of(ints)]; numbers [(0, 1), (0, 3)]; same;
        [T: ints] |x: Tile<T, 2>; axis: usize, way: usize;| {
            let plain = ct::ScanOptions::new();
            let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()][way];
            x.$method(axis, options)
        } $eval }
    };
}

fn both(_: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    Some(vec![args[0]; 2])
}

pub const OPS: &[Op] = &[
    scan!("cumsum" 8 cumsum_with |e| ints_scanned(e, 0, |x, y| x + y)),
    scan!("cumprod" 4 cumprod_with |e| ints_scanned(e, 1, i128::wrapping_mul)),
    scan!("cummax" 4 cummax_with |e| {
        let least = e.arg(0).kind.range().0;
        ints_scanned(e, least, i128::max)
    }),
    scan!("cummin" 4 cummin_with |e| {
        let most = e.arg(0).kind.range().1;
        ints_scanned(e, most, i128::min)
    }),
    op! { "cummax of numbers" in "scans", 4; args [Of(floats)]; numbers [(0, 1), (0, 1)]; same;
    [T: floats] |x: Tile<T, 2>; axis: usize, way: usize;| {
        let x = ct::select(x.isnan(), ct::ones::<T, 2>(x.shape()), x);
        if way == 1 { x.cummax_with(axis, ct::ScanOptions::new().reverse()) } else { x.cummax(axis) }
    }
    |e| {
        let a = e.arg(0);
        let element = |i, j| if a.at(i, j).float().is_nan() { Number::Float(1.0) } else { a.at(i, j) };
        vec![scanned(e, Number::Int(0), element, max, |x| x)]
    } },
    op! { "cummin of numbers" in "scans", 4; args [Of(floats)]; numbers [(0, 1), (0, 1)]; same;
    [T: floats] |x: Tile<T, 2>; axis: usize, way: usize;| {
        let x = ct::select(x.isnan(), ct::ones::<T, 2>(x.shape()), x);
        if way == 1 { x.cummin_with(axis, ct::ScanOptions::new().reverse()) } else { x.cummin(axis) }
    }
    |e| {
        let a = e.arg(0);
        let element = |i, j| if a.at(i, j).float().is_nan() { Number::Float(1.0) } else { a.at(i, j) };
        vec![scanned(e, Number::Int(0), element, min, |x| x)]
    } },
    op! { "cumsum of whole numbers" in "scans", 4; args [Of(bytes)] kinds |k| matches!(k, Kind::F32 | Kind::F64);
    numbers [(0, 1), (0, 3)]; to_kind;
    [T: byte, U: wide_float] |x: Tile<T, 2>; axis: usize, way: usize;| {
        let plain = ct::ScanOptions::new();
        let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()][way];
        x.cast::<U>().cumsum_with(axis, options)
    }
    |e| {
        let a = e.arg(0);
        vec![scanned(e, 0, |i, j| a.at(i, j).int(), |x, y| x + y, |x| Number::Float(x as f64))]
    } },
    op! { "scan by closure" in "scans", 6; args [Of(ints)]; numbers [(0, 1), (0, 3)]; same;
    [T: ints] |x: Tile<T, 2>; axis: usize, way: usize;| {
        let plain = ct::ScanOptions::new();
        let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()][way];
        let zero = <T as Element>::from_f64(0.0);
        x.scan_with(axis, zero, |a, b| b.ne(zero).select(b, a), options)
    }
    |e| ints_scanned(e, 0, |x, y| if y != 0 { y } else { x }) },
    op! { "scan two tiles" in "scans", 6; args [Of(ints), Same]; numbers [(0, 1), (0, 3)]; both;
    [T: ints] |x: Tile<T, 2>, y: Tile<T, 2>; axis: usize, way: usize;| {
        let plain = ct::ScanOptions::new();
        let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()][way];
        let identity = (<T as Element>::from_f64(1.0), <T as Element>::from_f64(0.0));
        ct::scan_with((x, y), axis, identity, |(a, b), (c, d)| (a * c, c * b + d), options)
    }
    |e| {
        let (a, b) = (e.arg(0), e.arg(1));
        let element = |i, j| (a.at(i, j).int(), b.at(i, j).int());
        let combine = |x, y| composed(a.kind, x, y);
        vec![
            scanned(e, (1, 0), element, combine, |x| Number::Int(x.0)),
            scanned(e, (1, 0), element, combine, |x| Number::Int(x.1)),
        ]
    } },
];
