//! LU factorization of large matrices by blocks of columns (LAPACK's `getrf`; Golub and Van Loan,
//! *Matrix Computations*, algorithm 3.4.1 and section 3.2.11). For each panel of columns:
//!
//! 1. One tile block has all rows of the panel in registers, and factors it with partial pivoting.
//!    A panel of many rows has few columns.
//! 2. The rows of the other columns are exchanged. Those to the right of the panel are multiplied
//!    by the inverse of its unit triangle.
//! 3. Products of the panel and of these rows are subtracted from the rest.

use cutlet as ct;
use cutlet::ops::MatrixFloat;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, DeviceViewMut, GatherOptions, ScatterOptions, Stream};

use super::columns;
use super::tiles::{panel_hints, panel_width};
use super::triangular::{Triangle, solve_triangular};
use crate::launch::Run;

/// Rows and columns of a tile of the rest.
const TILE: usize = 64;

/// Copies a tile, and numbers rows.
fn copy<T: MatrixFloat>(a: Array<T, 3>, lu: ArrayMut<T, 3>, order: ArrayMut<i32, 2>) {
    let (batch, row, column) = (ct::bid(2), ct::bid(1), ct::bid(0));
    lu.store((batch, row, column), a.load((batch, row, column), [1, TILE, TILE]));
    ct::if_then(column.eq(0), || order.store((batch, row), row * TILE + ct::indices([1, TILE], 1)));
}

/// Factors the columns from `first` on. Rows of `moves` are of the square of the panel: the row
/// that each of its rows receives, and the row that receives each of them.
fn factor_panel<T: MatrixFloat>(
    lu: ArrayMut<T, 3>,
    order: ArrayMut<i32, 2>,
    (moves, exchanges): (ArrayMut<i32, 3>, ArrayMut<i32, 1>),
    first: Scalar<i32>,
    [height, width]: [usize; 2],
) {
    let (batch, at) = (ct::bid(0), ct::at(first));
    let (factors, rows, count) = columns::elimination(lu.load((batch, at, at), [1, height, width]));
    lu.store((batch, at, at), factors);
    let old = order.gather((batch, rows.reshape([1, height]) + first));
    order.store((batch, at), old);
    let place = ct::indices([1, height, 1], 1);
    let is_here = rows.eq(ct::indices([1, 1, width], 2));
    let shape = [1, 1, width];
    moves.store((batch, 0, 0), rows.extract((0, 0, 0), [1, width, 1]).reshape(shape) + first);
    moves.store((batch, 1, 0), is_here.select(place, 0).sum(1).reshape(shape) + first);
    let entry = exchanges.entry(batch);
    entry.store(entry.load() + count);
}

/// Exchanges the rows of some columns before and after the panel from `first` on. The latter are
/// multiplied by the inverse of the triangle.
fn exchange<T: MatrixFloat>(lu: ArrayMut<T, 3>, moves: Array<i32, 3>, first: Scalar<i32>, width: usize) {
    let (batch, tile, before) = (ct::bid(1), ct::bid(0), first.ceil_div(TILE as i32));
    let is_behind = tile.ge(before);
    let start: Scalar<i32> =
        ct::select(is_behind, first + width as i32 + (tile - before) * TILE as i32, tile * TILE as i32);
    let columns: Tile<i32, 2> = start + ct::indices([1, TILE], 1);
    let rows = first + ct::indices([width, 1], 0);
    let [from, to] = [0, 1].map(|at| moves.load((batch, at, 0), [1, 1, width]).reshape([width, 1]));
    let (old, new) = (lu.gather((batch, rows, columns)), lu.gather((batch, from, columns)));
    let square = [1, width, width];
    let inverse = lu.load((batch, ct::at(first), ct::at(first)), square).inverse_unit_lower();
    let solved = ct::mma(inverse.reshape([width, width]), new, ct::zeros([width, TILE]));
    let is_own = columns.lt(first) | is_behind;
    let options = ScatterOptions::new();
    lu.scatter_with((batch, rows, columns), is_behind.select(solved, new), options.mask(is_own));
    lu.scatter_with((batch, to, columns), old, options.mask(is_own & to.ge(first + width as i32)));
}

/// Subtracts the products of the panel and of the rows to its right from a tile of the rest.
fn update<T: MatrixFloat>(lu: ArrayMut<T, 3>, first: Scalar<i32>, width: usize) {
    let (batch, at, rest) = (ct::bid(2), ct::at(first), first + width as i32);
    let [row, column] = [ct::bid(1), ct::bid(0)].map(|tile| ct::at(rest + tile * TILE as i32));
    let (left, right) = (lu.load((batch, row, at), [1, TILE, width]), lu.load((batch, at, column), [1, width, TILE]));
    lu.store((batch, row, column), ct::mma(-left, right, lu.load((batch, row, column), [1, TILE, TILE])));
}

/// Queues the factorizations of matrices (batch, n, n): as [`super::lu`]. Returns the numbers of
/// exchanges of rows.
#[track_caller]
pub fn factor<T: MatrixFloat>(
    name: &str,
    stream: &Stream,
    a: DeviceView<T, 3>,
    mut lu: DeviceViewMut<T, 3>,
    mut order: DeviceViewMut<i32, 2>,
) -> ct::Result<DeviceArray<i32, 1>> {
    let [count, n, _] = a.shape();
    let (width, tiles) = (panel_width::<T>(name, n)?, n.div_ceil(TILE));
    let mut moves = stream.device().unspecified::<i32, 3>([count, 2, width])?;
    let mut exchanges = stream.device().zeros::<i32, 1>([count])?;
    let launch = |grid: [usize; 3]| ct::Launch::new(grid).stream(stream);
    launch([tiles, tiles, count]).run(copy::<T>, (a, lu.reborrow(), order.reborrow()))?;
    for first in (0..n).step_by(width) {
        let (at, height) = (first as i32, (n - first).next_power_of_two().max(width));
        let hints = panel_hints::<T>(height, width);
        let arguments =
            (lu.reborrow(), order.reborrow(), (&mut moves, &mut exchanges), at, ct::Constant([height, width]));
        launch([count, 1, 1]).hints(hints).run(factor_panel::<T>, arguments)?;
        let (before, behind) = (first.div_ceil(TILE), n.saturating_sub(first + width).div_ceil(TILE));
        if before + behind > 0 {
            let arguments = (lu.reborrow(), &moves, at, ct::Constant(width));
            launch([before + behind, count, 1]).run(exchange::<T>, arguments)?;
        }
        if behind > 0 {
            launch([behind, behind, count]).run(update::<T>, (lu.reborrow(), at, ct::Constant(width)))?;
        }
    }
    Ok(exchanges)
}

/// Factorizations in memory of their own.
struct Factored<T> {
    lu: DeviceArray<T, 3>,
    order: DeviceArray<i32, 2>,
    /// The numbers of exchanges of rows.
    exchanges: DeviceArray<i32, 1>,
}

/// Queues the factorizations of matrices into new arrays.
#[track_caller]
fn factored<T: MatrixFloat>(name: &str, stream: &Stream, a: DeviceView<T, 3>) -> ct::Result<Factored<T>> {
    let ([count, n, _], device) = (a.shape(), stream.device());
    let (mut lu, mut order) = (device.unspecified::<T, 3>([count, n, n])?, device.unspecified::<i32, 2>([count, n])?);
    let exchanges = factor(name, stream, a, lu.view_mut(), order.view_mut())?;
    Ok(Factored { lu, order, exchanges })
}

fn permute<T: MatrixFloat>(b: Array<T, 3>, order: Array<i32, 2>, x: ArrayMut<T, 3>) {
    let (batch, row, column) = (ct::bid(2), ct::bid(1), ct::bid(0));
    let rows = order.load((batch, row), [1, TILE]).reshape([TILE, 1]);
    let sides = b.gather((batch, rows, column * TILE + ct::indices([1, TILE], 1)));
    x.store((batch, row, column), sides.reshape([1, TILE, TILE]));
}

/// Queues the solutions of large systems.
#[track_caller]
pub fn solve<T: MatrixFloat>(
    stream: &Stream,
    a: DeviceView<T, 3>,
    b: DeviceView<T, 3>,
    x: DeviceViewMut<T, 3>,
) -> ct::Result<()> {
    let ([count, n, columns], device) = (b.shape(), stream.device());
    let Factored { lu, order, .. } = factored("solve", stream, a)?;
    let [mut sides, mut y] = [device.unspecified::<T, 3>(b.shape())?, device.unspecified::<T, 3>(b.shape())?];
    let grid = [columns.div_ceil(TILE), n.div_ceil(TILE), count];
    ct::Launch::new(grid).stream(stream).run(permute::<T>, (b, &order, &mut sides))?;
    let lower = Triangle { unit_diagonal: true, ..Triangle::default() };
    solve_triangular(stream, lower, lu.view(), sides.view(), y.view_mut())?;
    solve_triangular(stream, Triangle { upper: true, ..Triangle::default() }, lu.view(), y.view(), x)
}

/// The product of the pivots, with the sign of the exchanges of rows.
fn product<T: MatrixFloat>(lu: Array<T, 3>, exchanges: Array<i32, 1>, d: ArrayMut<T, 1>, n: usize) {
    let (batch, at) = (ct::bid(0), ct::indices([n], 0));
    let pivots = lu.gather_with((batch, at, at), GatherOptions::new().padding(T::from_f64(1.0)));
    d.store(batch, columns::signed(pivots.prod(0).reshape([1]), exchanges.load(batch, [1])));
}

/// Queues the determinants of large matrices.
#[track_caller]
pub fn determinant<T: MatrixFloat>(stream: &Stream, a: DeviceView<T, 3>, d: DeviceViewMut<T, 1>) -> ct::Result<()> {
    let [count, n, _] = a.shape();
    let Factored { lu, exchanges, .. } = factored("determinant", stream, a)?;
    let arguments = (&lu, &exchanges, d, ct::Constant(n.next_power_of_two()));
    ct::Launch::new(count).stream(stream).run(product::<T>, arguments)
}
