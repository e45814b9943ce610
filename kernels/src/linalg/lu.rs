//! LU factorization with partial pivoting, and functions based on it. Matrices of at most 128 rows
//! are factored in registers ([`cutlet::Tile::lu`]), larger ones by blocks ([`super::lu_blocks`]).

use cutlet as ct;
use cutlet::ops::MatrixFloat;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream, TriangularOptions};

use super::columns;
use super::lu_blocks;
use super::tiles::{Form, LARGEST, require_same, require_square};
use crate::launch::Run;

fn factor<T: MatrixFloat>(a: Array<T, 3>, lu: ArrayMut<T, 3>, order: ArrayMut<i32, 2>, form: Form) {
    let (factors, rows) = columns::lu(form.load(a));
    lu.store((ct::bid(0), 0, 0), factors);
    order.store((ct::bid(0), 0), rows.reshape([form.batch, form.n]));
}

fn factor_and_solve<T: MatrixFloat>(a: Array<T, 3>, b: Array<T, 3>, x: ArrayMut<T, 3>, form: Form) {
    let (factors, rows) = columns::lu(form.load(a));
    let b = form.load_sides(b);
    let b = b.gather(1, rows.broadcast_to(b.shape()));
    let y = factors.solve_triangular(b, TriangularOptions::new().unit_diagonal());
    form.store_sides(x, factors.solve_triangular(y, TriangularOptions::new().upper()));
}

fn determinants<T: MatrixFloat>(a: Array<T, 3>, d: ArrayMut<T, 1>, form: Form) {
    let (factors, rows) = columns::lu(form.load(a));
    let shape = [form.batch, form.n, form.n];
    let [row, column] = [1, 2].map(|axis| ct::indices(shape, axis));
    let one = T::from_f64(1.0);
    let product = row.eq(column).select(factors, one).prod(2).prod(1);
    // The parity of the inversions of a permutation is that of its exchanges.
    let is_inversion = row.lt(column) & rows.gt(rows.transpose());
    let inversions = is_inversion.cast::<i32>().sum(2).sum(1);
    d.store(ct::bid(0), columns::signed(product, inversions).reshape([form.batch]));
}

/// Queues the LU factorizations with partial pivoting.
///
/// `a` and `lu` are (batch, n, n) of f32 or f64 with n of at most 16384 or 8192, `order` is (batch,
/// n). `lu` has U on and above the diagonal and L, whose diagonal is one, below it. Row i of L U is
/// row `order[i]` of A. The pivot of a column is its element of the largest magnitude, the first
/// one of equal ones. A singular matrix has a zero on the diagonal of U.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let a = device.array(&[1.0f32, 5.0, 2.0, 4.0], [1, 2, 2])?;
/// let (mut lu, mut order) = (device.zeros([1, 2, 2])?, device.zeros([1, 2])?);
/// cutlet_kernels::linalg::lu(&device.default_stream(), a.view(), lu.view_mut(), order.view_mut())?;
/// assert_eq!((lu.to_vec()?, order.to_vec()?), (vec![2.0, 4.0, 0.5, 3.0], vec![1, 0]));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
#[track_caller]
pub fn lu<T: MatrixFloat>(
    stream: &Stream,
    a: DeviceView<T, 3>,
    lu: DeviceViewMut<T, 3>,
    order: DeviceViewMut<i32, 2>,
) -> ct::Result<()> {
    let [count, n, _] = a.shape();
    require_square("lu", a.shape())?;
    require_same("lu", "the factors", lu.shape(), a.shape())?;
    require_same("lu", "the order", order.shape(), [count, n])?;
    if a.is_empty() {
        return Ok(());
    }
    if n > LARGEST {
        return lu_blocks::factor("lu", stream, a, lu, order).map(|_| ());
    }
    let form = Form::new::<T>(count, n, 1);
    ct::Launch::new(form.blocks(count))
        .hints(form.hints::<T>())
        .stream(stream)
        .run(factor::<T>, (a, lu, order, ct::Constant(form)))
}

/// Queues the solutions X of A X = B, by LU factorization with partial pivoting.
///
/// `a` is (batch, n, n) of f32 or f64 with n of at most 16384 or 8192, `b` and `x` are (batch, n,
/// columns). A singular matrix is not detected: its solution has infinities or NaN.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let a = device.array(&[0.0f64, 2.0, 1.0, 1.0], [1, 2, 2])?;
/// let (b, mut x) = (device.array(&[4.0, 5.0], [1, 2, 1])?, device.zeros([1, 2, 1])?);
/// cutlet_kernels::linalg::solve(&device.default_stream(), a.view(), b.view(), x.view_mut())?;
/// assert_eq!(x.to_vec()?, [3.0, 2.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
#[track_caller]
pub fn solve<T: MatrixFloat>(
    stream: &Stream,
    a: DeviceView<T, 3>,
    b: DeviceView<T, 3>,
    x: DeviceViewMut<T, 3>,
) -> ct::Result<()> {
    let ([count, n, _], columns) = (a.shape(), b.shape()[2]);
    require_square("solve", a.shape())?;
    require_same("solve", "the right-hand side", b.shape(), [count, n, columns])?;
    require_same("solve", "the solution", x.shape(), b.shape())?;
    if b.is_empty() {
        return Ok(());
    }
    if n > LARGEST {
        return lu_blocks::solve(stream, a, b, x);
    }
    let form = Form::new::<T>(count, n, columns);
    let grid = [form.blocks(count), columns.div_ceil(form.k)];
    ct::Launch::new(grid)
        .hints(form.hints::<T>())
        .stream(stream)
        .run(factor_and_solve::<T>, (a, b, x, ct::Constant(form)))
}

/// Queues the determinants of matrices: the product of the pivots, with the sign of the order of
/// rows.
///
/// `a` is (batch, n, n) of f32 or f64 with n of at most 16384 or 8192, `d` is (batch). The product
/// may overflow.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let a = device.array(&[1.0f32, 5.0, 2.0, 4.0], [1, 2, 2])?;
/// let mut d = device.zeros([1])?;
/// cutlet_kernels::linalg::determinant(&device.default_stream(), a.view(), d.view_mut())?;
/// assert_eq!(d.to_vec()?, [-6.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
#[track_caller]
pub fn determinant<T: MatrixFloat>(stream: &Stream, a: DeviceView<T, 3>, d: DeviceViewMut<T, 1>) -> ct::Result<()> {
    let [count, n, _] = a.shape();
    require_square("determinant", a.shape())?;
    require_same("determinant", "the result", d.shape(), [count])?;
    if count == 0 {
        return Ok(());
    }
    if n > LARGEST {
        return lu_blocks::determinant(stream, a, d);
    }
    // A matrix without rows has the determinant 1, as the tile of one padded row.
    let form = Form::new::<T>(count, n, 1);
    ct::Launch::new(form.blocks(count))
        .hints(form.hints::<T>())
        .stream(stream)
        .run(determinants::<T>, (a, d, ct::Constant(form)))
}
