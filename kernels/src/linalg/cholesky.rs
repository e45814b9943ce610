//! Cholesky factorization.
//!
//! Matrices of at most 64 rows are factored in registers ([`cutlet::Tile::cholesky`]). Larger ones
//! are factored by blocks (LAPACK's `potrf`; Golub and Van Loan, *Matrix Computations*, section
//! 4.2.9):
//!
//! 1. Panels of 32 columns within 128 columns: each tile block subtracts the products of the panels
//!    before from its rows and from the diagonal block. It factors the latter, and multiplies its
//!    rows by the inverse of the factor. All tile blocks factor the diagonal block, which takes
//!    less time than another launch.
//! 2. The products of 128 columns are subtracted from the lower triangle of the rest.

use cutlet as ct;
use cutlet::ops::MatrixFloat;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream, TriangularOptions};

use super::tiles::{Form, require_same};
use super::triangular::{Triangle, solve_triangular};
use crate::check::require;
use crate::launch::Run;

/// The most rows of a matrix that is factored in registers.
const REGISTERS: usize = 64;
/// Columns of a panel of the block algorithm.
const PANEL: usize = 32;
/// Panels between two updates of the rest.
const PANELS: usize = 4;
/// Rows of a tile block of a panel.
const ROWS: usize = 128;
/// Rows and columns of a tile of the rest.
const TILE: usize = 64;

/// Returns hints. With the default of four warps, matrices of 64 rows spill nothing.
fn hints<T>(form: Form) -> Hints {
    if form.n == 64 { Hints::new() } else { form.hints::<T>() }
}

fn factor<T: MatrixFloat>(a: Array<T, 3>, l: ArrayMut<T, 3>, form: Form) {
    l.store((ct::bid(0), 0, 0), form.load(a).cholesky());
}

fn factor_and_solve<T: MatrixFloat>(a: Array<T, 3>, b: Array<T, 3>, x: ArrayMut<T, 3>, form: Form) {
    let l = form.load(a).cholesky();
    let y = l.solve_triangular(form.load_sides(b), TriangularOptions::new());
    form.store_sides(x, l.solve_triangular(y, TriangularOptions::new().transposed()));
}

/// Copies the lower triangle, with zeros above.
fn copy_lower<T: MatrixFloat>(a: Array<T, 3>, l: ArrayMut<T, 3>) {
    let (shape, at) = ([1, TILE, TILE], (ct::bid(2), ct::bid(1), ct::bid(0)));
    let rows = ct::bid(1) * TILE + ct::indices(shape, 1);
    let columns = ct::bid(0) * TILE + ct::indices(shape, 2);
    l.store(at, rows.ge(columns).select(a.load(at, shape), T::from_f64(0.0)));
}

/// Factors the diagonal block of a panel, which is stored apart, and the rows of a tile block
/// below.
fn factor_panel<T: MatrixFloat>(l: ArrayMut<T, 3>, diagonal: ArrayMut<T, 4>, panel: Scalar<i32>) {
    let (batch, part) = (ct::bid(1), ct::bid(0));
    let (square, rows) = ([1, PANEL, PANEL], [1, ROWS, PANEL]);
    let below = ct::at((panel + 1) * PANEL + part * ROWS);
    let start = (l.load((batch, panel, panel), square), l.load((batch, below, panel), rows));
    let before = panel / PANELS as i32 * PANELS as i32..panel;
    let (own, rest) = ct::fold(before, start, |(own, rest): (Tile<T, 3>, Tile<T, 3>), other| {
        let left = -l.load((batch, panel, other), square).transpose();
        let own = ct::mma(l.load((batch, panel, other), square), left, own);
        (own, ct::mma(l.load((batch, below, other), rows), left, rest))
    });
    let [row, column] = [1, 2].map(|axis| ct::indices(square, axis));
    let is_diagonal = row.eq(column);
    let is_outside = (panel * PANEL + row).ge(l.extent(1)) & is_diagonal;
    let factor = is_outside.select(T::from_f64(1.0), own).cholesky();
    let inverse = factor.solve_triangular(is_diagonal.cast::<T>(), TriangularOptions::new());
    l.store((batch, below, panel), ct::mma(rest, inverse.transpose(), ct::zeros(rows)));
    ct::if_then(part.eq(0), || diagonal.store((batch, panel, 0, 0), factor.reshape([1, 1, PANEL, PANEL])));
}

/// Stores the diagonal blocks in the factor.
fn store_diagonal<T: MatrixFloat>(diagonal: Array<T, 4>, l: ArrayMut<T, 3>) {
    let (panel, batch) = (ct::bid(0), ct::bid(1));
    let block = diagonal.load((batch, panel, 0, 0), [1, 1, PANEL, PANEL]);
    l.store((batch, panel, panel), block.reshape([1, PANEL, PANEL]));
}

/// Subtracts the products of the panels before `panel` from a tile of the rest.
fn update<T: MatrixFloat>(l: ArrayMut<T, 3>, panel: Scalar<i32>) {
    let (batch, row, column) = (ct::bid(2), ct::bid(1), ct::bid(0));
    ct::return_if(row.lt(column));
    let (shape, first) = ([1, TILE, TILE], panel * PANEL);
    let is_lower = (row * TILE + ct::indices(shape, 1)).ge(column * TILE + ct::indices(shape, 2));
    let [row, column] = [row, column].map(|tile| ct::at(first + tile * TILE));
    let own = l.load((batch, row, column), shape);
    let rest = ct::fold(panel - PANELS as i32..panel, own, |rest: Tile<T, 3>, other| {
        let [left, right] = [row, column].map(|at| l.load((batch, at, other), [1, TILE, PANEL]));
        ct::mma(-left, right.transpose(), rest)
    });
    l.store((batch, row, column), is_lower.select(rest, T::from_f64(0.0)));
}

/// Queues the Cholesky factorizations of symmetric positive definite matrices: the lower triangular
/// L with L Lᵀ = A.
///
/// `a` and `l` are (batch, n, n) of f32 or f64, with any n. Only the part of `a` on and below the
/// diagonal is read; the part of `l` above is zero. From a pivot that is not positive on, the
/// columns of L are NaN on and below the diagonal.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let a = device.array(&[4.0f64, 2.0, 2.0, 10.0], [1, 2, 2])?;
/// let mut l = device.zeros([1, 2, 2])?;
/// cutlet_kernels::linalg::cholesky(&device.default_stream(), a.view(), l.view_mut())?;
/// assert_eq!(l.to_vec()?, [2.0, 0.0, 1.0, 3.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if the matrices are not square or the shapes differ, and those of the
/// launches.
#[track_caller]
pub fn cholesky<T: MatrixFloat>(stream: &Stream, a: DeviceView<T, 3>, l: DeviceViewMut<T, 3>) -> ct::Result<()> {
    let [count, n, columns] = a.shape();
    require(n == columns, || format!("cholesky: matrices of {n} rows and {columns} columns are not square"))?;
    require_same("cholesky", "the factor", l.shape(), a.shape())?;
    if a.is_empty() {
        return Ok(());
    }
    if n > REGISTERS {
        return by_blocks(stream, a, l);
    }
    let form = Form::new::<T>(count, n, 1);
    ct::Launch::new(form.blocks(count))
        .hints(hints::<T>(form))
        .stream(stream)
        .run(factor::<T>, (a, l, ct::Constant(form)))
}

#[track_caller]
fn by_blocks<T: MatrixFloat>(stream: &Stream, a: DeviceView<T, 3>, mut l: DeviceViewMut<T, 3>) -> ct::Result<()> {
    let [count, n, _] = a.shape();
    let (panels, tiles) = (n.div_ceil(PANEL), n.div_ceil(TILE));
    let launch = |grid: [usize; 3]| ct::Launch::new(grid).stream(stream);
    let mut diagonal = stream.device().unspecified::<T, 4>([count, panels, PANEL, PANEL])?;
    launch([tiles, tiles, count]).run(copy_lower::<T>, (a, l.reborrow()))?;
    for panel in 0..panels {
        let rest = n.saturating_sub(panel * PANEL);
        if panel > 0 && panel.is_multiple_of(PANELS) {
            let tiles = rest.div_ceil(TILE);
            launch([tiles, tiles, count]).run(update::<T>, (l.reborrow(), panel as i32))?;
        }
        let parts = rest.saturating_sub(PANEL).div_ceil(ROWS).max(1);
        launch([parts, count, 1]).run(factor_panel::<T>, (l.reborrow(), &mut diagonal, panel as i32))?;
    }
    launch([panels, count, 1]).run(store_diagonal::<T>, (&diagonal, l))
}

/// Queues the solutions X of A X = B with symmetric positive definite matrices A, by Cholesky
/// factorization.
///
/// `a` is (batch, n, n) of f32 or f64 with any n, `b` and `x` are (batch, n, columns). Only the
/// part of `a` on and below the diagonal is read. A matrix that is not positive definite has NaN in
/// its solution.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let a = device.array(&[4.0f32, 2.0, 2.0, 10.0], [1, 2, 2])?;
/// let (b, mut x) = (device.array(&[6.0, 12.0], [1, 2, 1])?, device.zeros([1, 2, 1])?);
/// cutlet_kernels::linalg::solve_positive(&device.default_stream(), a.view(), b.view(), x.view_mut())?;
/// assert_eq!(x.to_vec()?, [1.0, 1.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
#[track_caller]
pub fn solve_positive<T: MatrixFloat>(
    stream: &Stream,
    a: DeviceView<T, 3>,
    b: DeviceView<T, 3>,
    x: DeviceViewMut<T, 3>,
) -> ct::Result<()> {
    let ([count, n, _], columns) = (a.shape(), b.shape()[2]);
    require(n == a.shape()[2], || format!("solve_positive: matrices {:?} are not square", a.shape()))?;
    require_same("solve_positive", "the right-hand side", b.shape(), [count, n, columns])?;
    require_same("solve_positive", "the solution", x.shape(), b.shape())?;
    if b.is_empty() {
        return Ok(());
    }
    if n > REGISTERS {
        let mut x = x;
        let mut l = stream.device().zeros::<T, 3>([count, n, n])?;
        let mut y = stream.device().zeros::<T, 3>([count, n, columns])?;
        by_blocks(stream, a, l.view_mut())?;
        solve_triangular(stream, Triangle::default(), l.view(), b, y.view_mut())?;
        let transposed = Triangle { transposed: true, ..Triangle::default() };
        return solve_triangular(stream, transposed, l.view(), y.view(), x.reborrow());
    }
    let form = Form::new::<T>(count, n, columns);
    let grid = [form.blocks(count), columns.div_ceil(form.k)];
    ct::Launch::new(grid)
        .hints(hints::<T>(form))
        .stream(stream)
        .run(factor_and_solve::<T>, (a, b, x, ct::Constant(form)))
}
