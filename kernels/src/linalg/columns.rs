//! Factorizations of large tiles, by a loop over the columns.
//!
//! The operations of tiles unroll their blocks of 32 columns, which is the fastest code for small
//! matrices. That of larger ones has more live values than registers, and takes ptxas up to half a
//! minute. Here a matrix is in the registers of several warps, which exchange a column and a row
//! for each rank-one update: outer products (Golub and Van Loan, *Matrix Computations*, algorithms
//! 3.4.1 and 5.2.1).

use cutlet as ct;
use cutlet::ops::MatrixFloat;
use cutlet::prelude::*;

use super::tiles::OPERATION;

/// Returns the rows and the columns of the elements of one matrix.
fn places<T: MatrixFloat>(a: Tile<T, 3>) -> [Tile<i32, 3>; 2] {
    let [_, m, n] = a.shape();
    [ct::indices([1, m, 1], 1), ct::indices([1, 1, n], 2)]
}

/// Returns L and U in one tile and the order of the rows, as [`Tile::lu`].
pub fn lu<T: MatrixFloat>(a: Tile<T, 3>) -> (Tile<T, 3>, Tile<i32, 3>) {
    if a.shape()[1] <= OPERATION {
        return a.lu();
    }
    let (factors, order, _) = elimination(a);
    (factors, order)
}

/// Returns L and U in one tile with at least as many rows as columns, the order of the rows, and
/// the number of exchanges.
pub fn elimination<T: MatrixFloat>(a: Tile<T, 3>) -> (Tile<T, 3>, Tile<i32, 3>, Scalar<i32>) {
    let [_, m, n] = a.shape();
    let [rows, columns] = places(a);
    let zero = T::from_f64(0.0);
    type State<T> = (Tile<T, 3>, Tile<i32, 3>, Scalar<i32>);
    ct::fold(..ct::scalar(n as i32), (a, rows, ct::scalar(0)), |(a, order, count): State<T>, k| {
        let column = a.extract((0, 0, k), [1, m, 1]);
        let magnitude = column.isnan().select(T::from_f64(f64::INFINITY), column.abs());
        let p = rows.ge(k).select(magnitude, T::from_f64(-1.0)).argmax(1).item();
        let (row, pivot_row) = (a.extract((0, k, 0), [1, 1, n]), a.extract((0, p, 0), [1, 1, n]));
        let (is_row, is_pivot_row) = (rows.eq(k), rows.eq(p));
        let one = |tile: Tile<i32, 3>, row: Scalar<i32>| tile.extract((0, row, 0), [1, 1, 1]);
        let order = is_row.select(one(order, p), is_pivot_row.select(one(order, k), order));
        let pivot = pivot_row.extract((0, 0, k), [1, 1, 1]);
        let reciprocal = pivot.eq(zero).select(zero, pivot.recip());
        let exchanged = is_pivot_row.select(row.extract((0, 0, k), [1, 1, 1]), column);
        let quotient = rows.gt(k).select(exchanged * reciprocal, zero);
        let factor = columns.gt(k).select(pivot_row, zero);
        let a = is_row.select(pivot_row, is_pivot_row.select(row, a)) - quotient * factor;
        let updated = (rows.gt(k) & columns.eq(k)).select(quotient, a);
        (updated, order, count + p.ne(k).cast::<i32>())
    })
}

/// Returns a product of pivots with the sign of a number of exchanges of rows.
pub fn signed<T: MatrixFloat, const R: usize>(product: Tile<T, R>, exchanges: Tile<i32, R>) -> Tile<T, R> {
    (exchanges & 1).eq(1).select(-product, product)
}

/// Returns Q (rows x rows) and R (rows x columns) with Q R = A, or R alone.
fn reflections<T: MatrixFloat>(a: Tile<T, 3>, has_q: bool) -> (Tile<T, 3>, Tile<T, 3>) {
    let [_, m, n] = a.shape();
    let [rows, columns] = places(a);
    let (zero, one) = (T::from_f64(0.0), T::from_f64(1.0));
    let start = if has_q { rows.eq(ct::indices([1, 1, m], 2)).cast::<T>() } else { ct::zeros([1, 1, 1]) };
    let (q, r) = ct::fold(..ct::scalar(n as i32), (start, a), |(q, a): (Tile<T, 3>, Tile<T, 3>), k| {
        let column = a.extract((0, 0, k), [1, m, 1]);
        let pivot = a.extract((0, k, k), [1, 1, 1]);
        let below = rows.gt(k).select(column, zero);
        let squares = (below * below).sum(1);
        let norm = pivot.fma(pivot, squares).sqrt();
        let reflected = pivot.ge(zero).select(-norm, norm);
        let is_done = squares.eq(zero);
        let factor = is_done.select(zero, (reflected - pivot) / reflected);
        let scale = is_done.select(zero, (pivot - reflected).recip());
        let vector = rows.eq(k).select(one, below * scale);
        let projection = columns.ge(k).select((vector * a).sum(1), zero);
        let reduced = a - vector * (projection * factor);
        let across = vector.transpose();
        let q = if has_q { q - (q * across).sum(2) * (across * factor) } else { q };
        (q, reduced)
    });
    (q, rows.le(columns).select(r, zero))
}

/// Returns the reflections of a tile with at least as many rows as columns: R on and above the
/// diagonal, the vectors below it, and the inverse of T, with which the product of all reflections
/// is I - V T Vᵀ.
pub fn packed_reflections<T: MatrixFloat>(a: Tile<T, 3>) -> (Tile<T, 3>, Tile<T, 3>) {
    let [_, m, n] = a.shape();
    let [rows, columns] = places(a);
    let (zero, one, two) = (T::from_f64(0.0), T::from_f64(1.0), T::from_f64(2.0));
    let above = ct::indices([1, n, 1], 1);
    ct::fold(..ct::scalar(n as i32), (a, ct::zeros([1, n, n])), |(a, t): (Tile<T, 3>, Tile<T, 3>), k| {
        let column = a.extract((0, 0, k), [1, m, 1]);
        let pivot = a.extract((0, k, k), [1, 1, 1]);
        let below = rows.gt(k).select(column, zero);
        let norm = pivot.fma(pivot, (below * below).sum(1)).sqrt();
        let reflected = pivot.ge(zero).select(-norm, norm);
        // A column of zeros has the reflection of one row.
        let is_zero = norm.eq(zero);
        let factor = is_zero.select(two, (reflected - pivot) / reflected);
        let scale = is_zero.select(zero, (pivot - reflected).recip());
        let vector = rows.eq(k).select(one, below * scale);
        // Columns before have the vectors below the diagonal: these are the products with them.
        let products = (vector * a).sum(1);
        let reduced = a - vector * (columns.gt(k).select(products, zero) * factor);
        let own = rows.gt(k).select(vector, rows.eq(k).select(reflected, a));
        let before = above.lt(k).select(products.transpose(), above.eq(k).select(factor.recip(), zero));
        (columns.eq(k).select(own, reduced), columns.eq(k).select(before, t))
    })
}

/// Returns Q and R, as [`Tile::qr`].
pub fn qr<T: MatrixFloat>(a: Tile<T, 3>) -> (Tile<T, 3>, Tile<T, 3>) {
    let [_, m, n] = a.shape();
    if m <= OPERATION {
        return a.qr();
    }
    let (q, r) = reflections(a, true);
    (q.extract((0, 0, 0), [1, m, n]), r.extract((0, 0, 0), [1, n, n]))
}

/// Returns R alone.
pub fn triangle<T: MatrixFloat>(a: Tile<T, 3>) -> Tile<T, 3> {
    let [_, m, n] = a.shape();
    if m <= OPERATION {
        return a.qr().1;
    }
    reflections(a, false).1.extract((0, 0, 0), [1, n, n])
}
