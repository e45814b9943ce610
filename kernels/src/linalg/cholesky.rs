//! Cholesky factorization.
//!
//! Matrices of at most 128 rows are factored in registers ([`cutlet::Tile::cholesky`]). Larger ones
//! are factored by the right-looking block algorithm (LAPACK's `potrf`; Golub and Van Loan, *Matrix
//! Computations*, algorithm 4.2.3). For each panel of columns:
//!
//! 1. The diagonal block is factored, and its factor inverted.
//! 2. The blocks below are multiplied by the inverse.
//! 3. Their products are subtracted from the lower triangle of the rest.

use cutlet as ct;
use cutlet::ops::MatrixFloat;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream, TriangularOptions};

use super::columns;
use super::tiles::{Form, LARGEST, require_same};
use super::triangular::{Triangle, solve_triangular};
use crate::check::require;
use crate::launch::Run;

/// Columns of a panel of the block algorithm.
const PANEL: usize = 64;

/// Returns hints. With the default of four warps, matrices of 64 rows spill nothing.
fn hints<T>(form: Form) -> Hints {
    if form.n == 64 { Hints::new() } else { form.hints::<T>() }
}

fn factor<T: MatrixFloat>(a: Array<T, 3>, l: ArrayMut<T, 3>, form: Form) {
    l.store((ct::bid(0), 0, 0), columns::cholesky(form.load(a)));
}

fn factor_and_solve<T: MatrixFloat>(a: Array<T, 3>, b: Array<T, 3>, x: ArrayMut<T, 3>, form: Form) {
    let l = columns::cholesky(form.load(a));
    let y = l.solve_triangular(form.load_sides(b), TriangularOptions::new());
    form.store_sides(x, l.solve_triangular(y, TriangularOptions::new().transposed()));
}

/// Copies the lower triangle, with zeros above.
fn copy_lower<T: MatrixFloat>(a: Array<T, 3>, l: ArrayMut<T, 3>) {
    let (shape, at) = ([1, PANEL, PANEL], (ct::bid(2), ct::bid(1), ct::bid(0)));
    let rows = ct::bid(1) * PANEL + ct::indices(shape, 1);
    let columns = ct::bid(0) * PANEL + ct::indices(shape, 2);
    l.store(at, rows.ge(columns).select(a.load(at, shape), T::from_f64(0.0)));
}

/// Factors the diagonal block of a panel in place, and stores the inverse of its factor.
fn factor_block<T: MatrixFloat>(l: ArrayMut<T, 3>, inverse: ArrayMut<T, 3>, panel: Scalar<i32>) {
    let (shape, at) = ([1, PANEL, PANEL], (ct::bid(0), panel, panel));
    let [rows, columns] = [1, 2].map(|axis| ct::indices(shape, axis));
    let is_outside = (panel * PANEL + rows).ge(l.extent(1)) & rows.eq(columns);
    let block = is_outside.select(T::from_f64(1.0), l.load(at, shape)).cholesky();
    l.store(at, block);
    let one = rows.eq(columns).cast::<T>();
    inverse.store((ct::bid(0), 0, 0), block.solve_triangular(one, TriangularOptions::new()));
}

/// Multiplies a block below the diagonal by the inverse of the factor of the diagonal block.
fn solve_block<T: MatrixFloat>(l: ArrayMut<T, 3>, inverse: Array<T, 3>, panel: Scalar<i32>) {
    let (shape, at) = ([1, PANEL, PANEL], (ct::bid(1), panel + 1 + ct::bid(0), panel));
    let inverse = inverse.load((ct::bid(1), 0, 0), shape).transpose();
    l.store(at, ct::mma(l.load(at, shape), inverse, ct::zeros(shape)));
}

/// Subtracts the product of two blocks of the panel from a block of the rest.
fn update_block<T: MatrixFloat>(l: ArrayMut<T, 3>, panel: Scalar<i32>) {
    let (batch, row, column) = (ct::bid(2), panel + 1 + ct::bid(1), panel + 1 + ct::bid(0));
    let shape = [1, PANEL, PANEL];
    ct::return_if(row.lt(column));
    let (left, right) = (l.load((batch, row, panel), shape), l.load((batch, column, panel), shape));
    let block = l.load((batch, row, column), shape);
    l.store((batch, row, column), ct::mma(-left, right.transpose(), block));
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
    if n > LARGEST {
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
    let panels = n.div_ceil(PANEL);
    let launch = |grid: [usize; 3]| ct::Launch::new(grid).stream(stream);
    let mut inverse = stream.device().zeros::<T, 3>([count, PANEL, PANEL])?;
    launch([panels, panels, count]).run(copy_lower::<T>, (a, l.reborrow()))?;
    for panel in 0..panels {
        let (at, below) = (panel as i32, panels - panel - 1);
        launch([count, 1, 1]).run(factor_block::<T>, (l.reborrow(), &mut inverse, at))?;
        if below > 0 {
            launch([below, count, 1]).run(solve_block::<T>, (l.reborrow(), &inverse, at))?;
            launch([below, below, count]).run(update_block::<T>, (l.reborrow(), at))?;
        }
    }
    Ok(())
}

/// Queues the solutions X of A X = B with symmetric positive definite matrices A, by Cholesky
/// factorization.
///
/// `a` is (batch, n, n) of f32 or f64 with any n, `b` and `x` are (batch, n, columns).
/// Only the part of `a` on and below the diagonal is read. A matrix that is not positive definite
/// has NaN in its solution.
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
    if n > LARGEST {
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
