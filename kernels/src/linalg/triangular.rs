//! Triangular systems and inverses, in registers ([`cutlet::Tile::solve_triangular`]).
//!
//! Matrices of more than 128 rows are solved by blocks (Golub and Van Loan, *Matrix Computations*,
//! section 3.1.4). The diagonal blocks are inverted, each by a tile block. Then a tile block for
//! each tile of right-hand sides computes one block of rows after another. It subtracts the
//! products of the off-diagonal blocks and the solved rows from the right-hand side, and multiplies
//! the rest by the inverse.

use cutlet as ct;
use cutlet::ops::MatrixFloat;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream, TriangularOptions};

use super::tiles::{Form, LARGEST, require_same, require_small, require_square};
use crate::check::require;
use crate::launch::Run;

/// The triangle of a matrix that a system has. The default is the lower one, with a diagonal of its
/// own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Triangle {
    /// The upper triangle instead of the lower one.
    pub upper: bool,
    /// The system of the transposed matrix. `upper` still describes the matrix of the argument.
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

/// Rows of a block of a large matrix.
const BLOCK: usize = 64;

/// Inverts the diagonal blocks: (batch, block, row, column).
fn invert_blocks<T: MatrixFloat>(a: Array<T, 3>, inverses: ArrayMut<T, 4>, triangle: Triangle) {
    let (i, batch, shape) = (ct::bid(0), ct::bid(1), [1, BLOCK, BLOCK]);
    let [rows, columns] = [1, 2].map(|axis| ct::indices(shape, axis));
    let is_outside = (i * BLOCK + rows).ge(a.extent(1)) & rows.eq(columns);
    let block = is_outside.select(T::from_f64(1.0), a.load((batch, i, i), shape));
    let inverse = block.solve_triangular(rows.eq(columns).cast::<T>(), triangle.options());
    inverses.store((batch, i, 0, 0), inverse.reshape([1, 1, BLOCK, BLOCK]));
}

/// Solves for a tile of right-hand sides, with `k` columns.
fn substitute<T: MatrixFloat>(
    a: Array<T, 3>,
    inverses: Array<T, 4>,
    b: Array<T, 3>,
    x: ArrayMut<T, 3>,
    triangle: Triangle,
    k: usize,
) {
    let (j, batch, shape) = (ct::bid(0), ct::bid(1), [1, BLOCK, k]);
    let blocks = b.num_tiles(1, shape);
    let is_downward = triangle.upper == triangle.transposed;
    let place = |i: Scalar<i32>| if is_downward { i } else { blocks - 1 - i };
    ct::fold(..blocks, (), |(), i| {
        let row = place(i);
        let rest = ct::fold(..i, b.load((batch, row, j), shape), |rest: Tile<T, 3>, other| {
            let column = place(other);
            let at = if triangle.transposed { (batch, column, row) } else { (batch, row, column) };
            let block = a.load(at, [1, BLOCK, BLOCK]);
            let block = if triangle.transposed { block.transpose() } else { block };
            ct::mma(-block, x.load((batch, column, j), shape), rest)
        });
        let inverse = inverses.load((batch, row, 0, 0), [1, 1, BLOCK, BLOCK]);
        x.store((batch, row, j), ct::mma(inverse.reshape([1, BLOCK, BLOCK]), rest, ct::zeros(shape)));
    });
}

/// Queues the solutions of large matrices.
#[track_caller]
fn by_blocks<T: MatrixFloat>(
    stream: &Stream,
    triangle: Triangle,
    a: DeviceView<T, 3>,
    b: DeviceView<T, 3>,
    x: DeviceViewMut<T, 3>,
) -> ct::Result<()> {
    let [count, n, columns] = b.shape();
    let (blocks, k) = (n.div_ceil(BLOCK), columns.next_power_of_two().clamp(8, 64));
    let mut inverses = stream.device().zeros::<T, 4>([count, blocks, BLOCK, BLOCK])?;
    let launch = |grid: [usize; 2]| ct::Launch::new(grid).stream(stream);
    launch([blocks, count]).run(invert_blocks::<T>, (a, &mut inverses, ct::Constant(triangle)))?;
    let arguments = (a, &inverses, b, x, ct::Constant(triangle), ct::Constant(k));
    launch([columns.div_ceil(k), count]).run(substitute::<T>, arguments)
}

/// Queues the solutions X of A X = B with triangular matrices A.
///
/// `a` is (batch, n, n) of f32 or f64 with any n, `b` and `x` are (batch, n, columns). The other
/// triangle of `a` is not read. A zero on the diagonal is not detected: the solution has infinities
/// or NaN.
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
    require(n == a.shape()[2], || format!("solve_triangular: matrices {:?} are not square", a.shape()))?;
    require_same("solve_triangular", "the right-hand side", b.shape(), [count, n, columns])?;
    require_same("solve_triangular", "the solution", x.shape(), b.shape())?;
    if b.is_empty() {
        return Ok(());
    }
    if n > LARGEST {
        return by_blocks(stream, triangle, a, b, x);
    }
    let form = Form::new::<T>(count, n, columns);
    let grid = [form.blocks(count), columns.div_ceil(form.k)];
    let arguments = (a, b, x, ct::Constant(form), ct::Constant(triangle));
    ct::Launch::new(grid).hints(form.hints::<T>()).stream(stream).run(solves::<T>, arguments)
}

/// Queues the inverses of lower triangular matrices with a diagonal of ones.
///
/// `a` and `y` are (batch, n, n) of f32 or f64 with n of at most 128. Only the part of `a` below
/// the diagonal is read; the part of `y` above is zero.
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
    require_small("inverse_unit_lower", n)?;
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
