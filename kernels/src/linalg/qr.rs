//! QR factorization by Householder reflections, and least squares. Matrices of at most 128 rows are
//! factored in registers ([`cutlet::Tile::qr`]), larger ones by blocks ([`super::qr_blocks`]).
//!
//! Least squares of tall matrices have one factorization for some rows at a time (sequential
//! accumulation; Lawson and Hanson, *Solving Least Squares Problems*, chapter 27): rows of the
//! matrix and of the right-hand sides are appended to the triangle of the rows above, and their
//! triangle replaces it.

use cutlet as ct;
use cutlet::ops::MatrixFloat;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream, TriangularOptions};

use super::columns;
use super::qr_blocks;
use super::tiles::{LARGEST, require_same};
use crate::check::require;
use crate::launch::{Run, of_batch};

/// Matrices of a tile, and their extents: powers of two. Rows and columns outside of a matrix are
/// zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    batch: usize,
    m: usize,
    n: usize,
}

impl Form {
    /// Bytes of the matrices of a warp: registers also have the vectors of the reflections.
    const BYTES: usize = 8 << 10;

    fn new<T>(count: usize, m: usize, n: usize) -> Form {
        let n = n.next_power_of_two();
        let m = m.next_power_of_two().max(n);
        let room = Self::BYTES / (m * n * size_of::<T>());
        Form { batch: 1 << room.max(1).min(of_batch(count, usize::MAX / 2).next_power_of_two()).ilog2(), m, n }
    }

    /// Returns hints with a warp for 8 KiB of matrices: reductions of a column cross few warps.
    fn hints<T>(self) -> Hints {
        let bytes = self.batch * self.m * self.n * size_of::<T>();
        Hints::new().num_warps((bytes / Self::BYTES).clamp(1, 8) as u32)
    }
}

fn factor<T: MatrixFloat>(a: Array<T, 3>, q: ArrayMut<T, 3>, r: ArrayMut<T, 3>, Form { batch, m, n }: Form) {
    let at = (ct::bid(0), 0, 0);
    let (orthonormal, upper) = columns::qr(a.load(at, [batch, m, n]));
    q.store(at, orthonormal);
    r.store(at, upper);
}

/// The triangle of the matrix and of its right-hand sides has the solution: R X = Z with the
/// columns (R Z).
fn fit<T: MatrixFloat>(a: Array<T, 3>, b: Array<T, 3>, x: ArrayMut<T, 3>, form: Form, is_tall: bool) {
    let Form { batch, m, n } = form;
    let columns = a.extent(2);
    // The right-hand sides are in the columns next to those of the matrix. Elements outside are
    // zeros.
    let load = |i: Scalar<i32>, rows: usize| {
        let shape = [batch, rows, n];
        a.load((ct::bid(0), i, 0), shape) + b.load((ct::bid(0), i, ct::at(-columns)), shape)
    };
    let upper = if is_tall {
        // The rows below the triangle are those of the next tile.
        let below = m - n;
        ct::fold(..a.num_tiles(1, [batch, below, n]), ct::zeros([batch, n, n]), |upper: Tile<T, 3>, i| {
            let rows = load(i, below);
            columns::triangle(ct::cat([upper, rows], 1))
        })
    } else {
        columns::triangle(load(ct::scalar(0), m))
    };
    let [row, column] = [1, 2].map(|axis| ct::indices([batch, n, n], axis));
    let triangle = column.lt(columns).select(upper, row.eq(column).cast::<T>());
    let solution = triangle.solve_triangular(upper, TriangularOptions::new().upper());
    x.store((ct::bid(0), 0, ct::at(-columns)), solution);
}

/// Queues the reduced QR factorizations: Q with orthonormal columns and the upper triangular R,
/// with Q R = A.
///
/// `a` and `q` are (batch, m, n) of f32 or f64 with n ≤ m and m of at most 16384 or 8192, `r` is
/// (batch, n, n). Elements on the diagonal of R may be negative, as with LAPACK's `geqrf`. A matrix
/// without full rank has zeros there, or rounding errors.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let a = device.array(&[3.0f64, 1.0, 4.0, 8.0], [1, 2, 2])?;
/// let (mut q, mut r) = (device.zeros([1, 2, 2])?, device.zeros([1, 2, 2])?);
/// cutlet_kernels::linalg::qr(&device.default_stream(), a.view(), q.view_mut(), r.view_mut())?;
/// assert!(r.to_vec()?.iter().zip([-5.0, -7.0, 0.0, 4.0]).all(|(x, y)| (x - y).abs() < 1e-12));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
#[track_caller]
pub fn qr<T: MatrixFloat>(
    stream: &Stream,
    a: DeviceView<T, 3>,
    q: DeviceViewMut<T, 3>,
    r: DeviceViewMut<T, 3>,
) -> ct::Result<()> {
    let [count, m, n] = a.shape();
    require(n <= m, || format!("qr: matrices of {m} rows and {n} columns have more columns than rows"))?;
    require_same("qr", "Q", q.shape(), a.shape())?;
    require_same("qr", "R", r.shape(), [count, n, n])?;
    if a.is_empty() {
        return Ok(());
    }
    if m > LARGEST {
        return qr_blocks::qr(stream, a, q, r);
    }
    let form = Form::new::<T>(count, m, n);
    ct::Launch::new(count.div_ceil(form.batch))
        .hints(form.hints::<T>())
        .stream(stream)
        .run(factor::<T>, (a, q, r, ct::Constant(form)))
}

/// Queues the least squares solutions: X with the least norm of A X - B in each column.
///
/// `a` is (batch, m, n) of f32 or f64 with n ≤ m. The shape of `b` is (batch, m, columns), that
/// of `x` is (batch, n, columns). The sum n + columns is at most 128, and at most 64 if m is above
/// 128. A matrix without full rank is not detected: its solution has infinities or NaN.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let a = device.array(&[1.0f64, 0.0, 1.0, 1.0, 1.0, 2.0], [1, 3, 2])?; // a line through three points
/// let (b, mut x) = (device.array(&[1.0, 3.0, 5.0], [1, 3, 1])?, device.zeros([1, 2, 1])?);
/// cutlet_kernels::linalg::least_squares(&device.default_stream(), a.view(), b.view(), x.view_mut())?;
/// assert!(x.to_vec()?.iter().zip([1.0, 2.0]).all(|(x, y)| (x - y).abs() < 1e-12));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
#[track_caller]
pub fn least_squares<T: MatrixFloat>(
    stream: &Stream,
    a: DeviceView<T, 3>,
    b: DeviceView<T, 3>,
    x: DeviceViewMut<T, 3>,
) -> ct::Result<()> {
    let ([count, m, n], columns) = (a.shape(), b.shape()[2]);
    require(n <= m, || format!("least_squares: matrices of {m} rows and {n} columns have more columns than rows"))?;
    let most = if m > LARGEST { LARGEST / 2 } else { LARGEST };
    require(n + columns <= most, || {
        format!("least_squares: {n} + {columns} columns of matrices of {m} rows, and {most} is the largest number")
    })?;
    require_same("least_squares", "the right-hand side", b.shape(), [count, m, columns])?;
    require_same("least_squares", "the solution", x.shape(), [count, n, columns])?;
    if x.is_empty() {
        return Ok(());
    }
    let width = n + columns;
    // A tall tile has the rows of the triangle, and as many of the matrix.
    let is_tall = m > LARGEST;
    let form = Form::new::<T>(count, if is_tall { 2 * width.next_power_of_two() } else { m }, width);
    let arguments = (a, b, x, ct::Constant(form), ct::Constant(is_tall));
    ct::Launch::new(count.div_ceil(form.batch)).hints(form.hints::<T>()).stream(stream).run(fit::<T>, arguments)
}
