//! Triangular systems and inverses, in registers ([`cutlet::Tile::solve_triangular`]).

use cutlet as ct;
use cutlet::ops::MatrixFloat;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream, TriangularOptions};

use super::tiles::{Form, require_same, require_square};
use crate::launch::Run;

/// The triangle of a matrix that a system has. The default is the lower one, with a diagonal of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Triangle {
    /// The upper triangle instead of the lower one.
    pub upper: bool,
    /// The system of the transposed matrix. `upper` still describes the matrix as it is given.
    pub transposed: bool,
    /// The diagonal is one, and not read.
    pub unit_diagonal: bool,
}

impl Triangle {
    fn options(self) -> TriangularOptions {
        let mut options = TriangularOptions::new();
        if self.upper {
            options = options.upper();
        }
        if self.transposed {
            options = options.transposed();
        }
        if self.unit_diagonal {
            options = options.unit_diagonal();
        }
        options
    }
}

fn solves<T: MatrixFloat>(a: Array<T, 3>, b: Array<T, 3>, x: ArrayMut<T, 3>, form: Form, triangle: Triangle) {
    form.store_sides(x, form.load(a).solve_triangular(form.load_sides(b), triangle.options()));
}

fn inverses<T: MatrixFloat>(a: Array<T, 3>, y: ArrayMut<T, 3>, form: Form) {
    y.store((ct::bid(0), 0, 0), form.load(a).inverse_unit_lower());
}

/// Queues the solutions X of A X = B with triangular matrices A.
///
/// `a` is (batch, n, n) of f32 or f64 with n of at most 128, `b` and `x` are (batch, n, columns). The other triangle of `a` is
/// not read. A zero on the diagonal is not detected: the solution has infinities or NaN.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::linalg::{Triangle, solve_triangular};
///
/// let device = ct::Device::cpu();
/// let a = device.array(&[2.0f32, 9.0, 1.0, 4.0], [1, 2, 2])?;
/// let (b, mut x) = (device.array(&[2.0, 9.0], [1, 2, 1])?, device.zeros([1, 2, 1])?);
/// solve_triangular(&device.default_stream(), Triangle::default(), a.view(), b.view(), x.view_mut())?;
/// assert_eq!(x.to_vec()?, [1.0, 2.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
#[track_caller]
pub fn solve_triangular<T: MatrixFloat>(
    stream: &Stream,
    triangle: Triangle,
    a: DeviceView<T, 3>,
    b: DeviceView<T, 3>,
    x: DeviceViewMut<T, 3>,
) -> ct::Result<()> {
    let ([count, n, _], columns) = (a.shape(), b.shape()[2]);
    require_square("solve_triangular", a.shape())?;
    require_same("solve_triangular", "the right-hand side", b.shape(), [count, n, columns])?;
    require_same("solve_triangular", "the solution", x.shape(), b.shape())?;
    if b.is_empty() {
        return Ok(());
    }
    let form = Form::new::<T>(count, n, columns);
    let grid = [form.blocks(count), columns.div_ceil(form.k)];
    let arguments = (a, b, x, ct::Constant(form), ct::Constant(triangle));
    ct::Launch::new(grid).hints(form.hints::<T>()).stream(stream).run(solves::<T>, arguments)
}

/// Queues the inverses of lower triangular matrices with a diagonal of ones.
///
/// `a` and `y` are (batch, n, n) of f32 or f64 with n of at most 128. Only the part of `a` below the diagonal is read; the
/// part of `y` above is zero.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let a = device.array(&[1.0f32, 0.0, 3.0, 1.0], [1, 2, 2])?;
/// let mut y = device.zeros([1, 2, 2])?;
/// cutlet_kernels::linalg::inverse_unit_lower(&device.default_stream(), a.view(), y.view_mut())?;
/// assert_eq!(y.to_vec()?, [1.0, 0.0, -3.0, 1.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
#[track_caller]
pub fn inverse_unit_lower<T: MatrixFloat>(
    stream: &Stream,
    a: DeviceView<T, 3>,
    y: DeviceViewMut<T, 3>,
) -> ct::Result<()> {
    let [count, n, _] = a.shape();
    require_square("inverse_unit_lower", a.shape())?;
    require_same("inverse_unit_lower", "the inverse", y.shape(), a.shape())?;
    if a.is_empty() {
        return Ok(());
    }
    let form = Form::new::<T>(count, n, 1);
    ct::Launch::new(form.blocks(count))
        .hints(form.hints::<T>())
        .stream(stream)
        .run(inverses::<T>, (a, y, ct::Constant(form)))
}
