//! Forms of linear algebra of small matrices: batched Cholesky factorization and triangular
//! inverses. Forms of the order of keys by a digit within a tile, as of a radix sort.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

use super::family::{AnyFamily, Case, Family, Size, some};

/// A way to factor the matrices of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    /// The operation of tiles.
    Operation,
    /// A loop over the columns.
    Loop,
    /// The same, unrolled.
    Unrolled,
}

/// A form of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    way: Way,
    /// Matrices of a tile block.
    batch: usize,
    n: usize,
}

/// One column of the factorization, and the update of later columns.
fn column_step(a: Tile<f32, 3>, column: Scalar<i32>, Form { batch, n, .. }: Form) -> Tile<f32, 3> {
    let [rows, columns] = [1, 2].map(|axis| ct::indices([batch, n, n], axis));
    let left = a.extract((0, 0, column), [batch, n, 1]);
    let above = a.extract((0, column, 0), [batch, 1, n]);
    let pivot = a.extract((0, column, column), [batch, 1, 1]);
    let updated = a - left * (above / pivot);
    let is_later = rows.gt(column) & columns.gt(column);
    let is_own = columns.eq(column) & rows.ge(column);
    is_later.select(updated, is_own.select(left / pivot.sqrt(), a))
}

fn cholesky(a: Array<f32, 3>, l: ArrayMut<f32, 3>, form: Form) {
    let (at, shape) = ((ct::bid(0), 0, 0), [form.batch, form.n, form.n]);
    let a = a.load(at, shape);
    let factor = match form.way {
        Way::Operation => a.cholesky(),
        Way::Loop => ct::fold(ct::range(0, form.n as i32), a, |a, column| column_step(a, column, form)),
        Way::Unrolled => (0..form.n).fold(a, |a, column| column_step(a, ct::scalar(column as i32), form)),
    };
    let [rows, columns] = [1, 2].map(|axis| ct::indices(shape, axis));
    l.store(at, rows.ge(columns).select(factor, 0.0));
}

/// Inverts by substitution, a row after another.
fn inverse(a: Array<f32, 3>, y: ArrayMut<f32, 3>, form: Form) {
    let (at, shape) = ((ct::bid(0), 0, 0), [form.batch, form.n, form.n]);
    let a = a.load(at, shape);
    let [rows, columns] = [1, 2].map(|axis| ct::indices(shape, axis));
    let step = |x: Tile<f32, 3>, column: Scalar<i32>| {
        let left = a.extract((0, 0, column), [form.batch, form.n, 1]);
        let row = x.extract((0, column, 0), [form.batch, 1, form.n]);
        rows.gt(column).select(x - left * row, x)
    };
    let identity = rows.eq(columns).cast::<f32>();
    let result = match form.way {
        Way::Operation => a.inverse_unit_lower(),
        Way::Loop => ct::fold(ct::range(0, form.n as i32), identity, step),
        Way::Unrolled => (0..form.n).fold(identity, |x, column| step(x, ct::scalar(column as i32))),
    };
    y.store(at, result);
}

fn forms(n: usize) -> Vec<(&'static str, Form)> {
    let form = |way, batch| Form { way, batch, n };
    vec![
        ("operation", form(Way::Operation, 1)),
        ("operation, 2 matrices", form(Way::Operation, 2)),
        ("operation, 4 matrices", form(Way::Operation, 4)),
        ("operation, 8 matrices", form(Way::Operation, 8)),
        ("loop", form(Way::Loop, 1)),
        ("loop, unrolled", form(Way::Unrolled, 1)),
    ]
}

type Arrays = [DeviceArray<f32, 3>; 2];

fn family(is_cholesky: bool, count: usize, n: usize) -> Family<Arrays> {
    let case = |(name, form): (&'static str, Form)| {
        Case::new(name, 0, move |call, [a, y]: &mut Arrays| {
            let grid = [count.div_ceil(form.batch), 1, 1];
            match is_cholesky {
                true => call.run(grid, cholesky, (&*a, y, Constant(form))),
                false => call.run(grid, inverse, (&*a, y, Constant(form))),
            }
        })
    };
    // Symmetric matrices whose diagonal outweighs the other elements; triangles with ones.
    let element = move |at: usize| {
        let (row, column) = (at / n % n, at % n);
        let other = ((row * column + at / (n * n) % 7) as f64).cos();
        match (is_cholesky, row.cmp(&column)) {
            (true, std::cmp::Ordering::Equal) => n as f64 + 8.0,
            (true, _) => other,
            (false, std::cmp::Ordering::Less) => 0.0,
            (false, std::cmp::Ordering::Equal) => 1.0,
            (false, std::cmp::Ordering::Greater) => other / n as f64,
        }
    };
    let name = if is_cholesky { "cholesky" } else { "inverse of unit lower" };
    Family {
        name: format!("{name} f32 {count} of {n}x{n}"),
        flops: 0.0,
        bytes: (2 * count * n * n * size_of::<f32>()) as f64,
        tolerance: 1e-3,
        arrays: Box::new(move |source| Ok([source.numbers([count, n, n], element)?, source.zeros([count, n, n])?])),
        result: |[_, y]| some(y),
        cases: forms(n).into_iter().map(case).collect(),
    }
}

/// A way to order the keys of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Order {
    /// Places by the ranks of equal digits.
    Ranks,
    /// A sort by the digit.
    Sort,
}

/// Orders the keys of each tile by their lowest digit.
fn ordered(x: Array<u32, 1>, y: ArrayMut<u32, 1>, (order, n): (Order, usize)) {
    let i = ct::bid(0);
    let x = x.load(i, [n]);
    match order {
        Order::Ranks => {
            let digits = (x & 255).cast::<i32>();
            let (ranks, counts) = digits.ranks(256);
            let starts = counts.cumsum_with(0, ct::ScanOptions::new().exclusive());
            y.scatter(i * n as i32 + starts.gather(0, digits) + ranks, x);
        }
        Order::Sort => y.store(i, ct::sort_by_key((x & 255).cast::<u8>(), x, 0).1),
    }
}

type Keys = [DeviceArray<u32, 1>; 2];

fn digits(count: usize, n: usize) -> Family<Keys> {
    let case = |(name, order, n): (&'static str, Order, usize)| {
        // Tiles of one size have equal results.
        Case::new(name, n, move |call, [x, y]: &mut Keys| {
            call.run([count / n, 1, 1], ordered, (&*x, y, Constant((order, n))))
        })
    };
    let forms =
        [("ranks", Order::Ranks, n), ("ranks, twice the tile", Order::Ranks, 2 * n), ("sort by key", Order::Sort, n)];
    Family {
        name: format!("order by a digit u32 {count}"),
        flops: 0.0,
        bytes: (2 * count * size_of::<u32>()) as f64,
        tolerance: 0.0,
        arrays: Box::new(move |source| {
            let key = |at: usize| ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as f64;
            Ok([source.numbers([count], key)?, source.zeros([count])?])
        }),
        result: |[_, y]| some(y),
        cases: forms.into_iter().map(case).collect(),
    }
}

/// The families of linear algebra.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let (count, n, keys, tile) = match size {
        Size::Full => (10_000, 32, 1 << 26, 2048),
        Size::Small => (16, 8, 1 << 10, 256),
    };
    vec![Box::new(family(true, count, n)), Box::new(family(false, count, n)), Box::new(digits(keys, tile))]
}
