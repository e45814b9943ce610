//! Triangular systems and inverses.
//!
//! Algorithm: substitution within a block. Larger matrices are solved by blocks (Golub and Van
//! Loan, *Matrix Computations*, section 3.1.4), with inverses of the diagonal blocks, as MAGMA's
//! `trsm`.

use super::blocks::{
    BLOCK, MatrixFloat, block, block_row, joined, matrices, minus_product, product, rejected, squares,
};
use super::rows::Form;
use super::substitution::{Triangle, inverted, substitute};
use crate::ops::mma::{MatrixRank, Rank};
use crate::ops::{cat, zeros};
use crate::tile::{Tile, caller_location, record, with_location};
use crate::util::collect::CollectVec as _;

/// Options of [`Tile::solve_triangular`]. The default is a lower triangular matrix with a diagonal
/// of its own.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let (a, b) = (ct::astile([[2.0, 4.0], [0.0, 1.0]]), ct::astile([[10.0], [2.0]]));
/// let upper = ct::TriangularOptions::new().upper();
/// ct::assert!(a.solve_triangular(b, upper).eq(ct::astile([[1.0], [2.0]])));
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TriangularOptions {
    is_upper: bool,
    is_unit: bool,
    is_transposed: bool,
}

impl TriangularOptions {
    /// A lower triangular matrix with a diagonal of its own.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (a, b) = (ct::astile([[2.0, 9.0], [1.0, 4.0]]), ct::astile([[2.0], [9.0]]));
    /// ct::assert!(a.solve_triangular(b, ct::TriangularOptions::new()).eq(ct::astile([[1.0], [2.0]])));
    /// # });
    /// ```
    pub fn new() -> TriangularOptions {
        TriangularOptions::default()
    }

    /// An upper triangular matrix: the part below the diagonal is not read.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (a, b) = (ct::astile([[1.0, 3.0], [9.0, 2.0]]), ct::astile([[7.0], [4.0]]));
    /// let upper = ct::TriangularOptions::new().upper();
    /// ct::assert!(a.solve_triangular(b, upper).eq(ct::astile([[1.0], [2.0]])));
    /// # });
    /// ```
    #[must_use]
    pub fn upper(self) -> TriangularOptions {
        TriangularOptions { is_upper: true, ..self }
    }

    /// A diagonal of ones, which is not read.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (a, b) = (ct::astile([[7.0, 0.0], [3.0, 7.0]]), ct::astile([[1.0], [5.0]]));
    /// let unit = ct::TriangularOptions::new().unit_diagonal();
    /// ct::assert!(a.solve_triangular(b, unit).eq(ct::astile([[1.0], [2.0]])));
    /// # });
    /// ```
    #[must_use]
    pub fn unit_diagonal(self) -> TriangularOptions {
        TriangularOptions { is_unit: true, ..self }
    }

    /// The system of the transposed matrix. `upper` still describes the matrix as it is given.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (a, b) = (ct::astile([[1.0, 0.0], [3.0, 2.0]]), ct::astile([[7.0], [4.0]]));
    /// let transposed = ct::TriangularOptions::new().transposed();
    /// ct::assert!(a.solve_triangular(b, transposed).eq(ct::astile([[1.0], [2.0]])));
    /// # });
    /// ```
    #[must_use]
    pub fn transposed(self) -> TriangularOptions {
        TriangularOptions { is_transposed: true, ..self }
    }
}

impl<T: MatrixFloat, const R: usize> Tile<T, R>
where
    Rank<R>: MatrixRank,
{
    /// The solutions X of `self` · X = `rhs` with triangular matrices `self`.
    ///
    /// `self` is one matrix `[n, n]` or a batch `[b, n, n]`, of f32 or f64; `rhs` is `[n, k]` or
    /// `[b, n, k]`. `n` is a power of two of at most 128. The other triangle is not read.
    /// [`TriangularOptions`] has the triangle, the diagonal and the transposition.
    ///
    /// A zero on the diagonal is not detected. The division by it returns infinities or NaN, as
    /// LAPACK's `trsm`. Matrices of up to 32 rows are solved by substitution. Larger ones are
    /// solved by blocks with the inverses of the diagonal blocks: one zero makes its block of rows
    /// NaN.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn solve(l: Array<f32, 2>, b: Array<f32, 2>, x: ArrayMut<f32, 2>) {
    ///     let (l, b) = (l.load((0, 0), [2, 2]), b.load((0, 0), [2, 2]));
    ///     let y = l.solve_triangular(b, ct::TriangularOptions::new());
    ///     x.store((0, 0), l.solve_triangular(y, ct::TriangularOptions::new().transposed()));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (l, b) = (device.array(&[2.0, 0.0, 1.0, 3.0], [2, 2])?, device.array(&[8.0, 4.0, 22.0, 2.0], [2, 2])?);
    /// let mut x = device.zeros([2, 2])?;
    /// ct::launch(solve, 1, (&l, &b, &mut x))?;
    /// assert_eq!(x.to_vec()?, [1.0, 1.0, 2.0, 0.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// The launch returns an error with this source location if the matrices are not square, `n` is
    /// no such power of two, or `rhs` has other rows or another batch.
    #[track_caller]
    #[must_use]
    pub fn solve_triangular(self, rhs: Tile<T, R>, options: TriangularOptions) -> Tile<T, R> {
        let place = caller_location();
        let name = "solve_triangular";
        let Some([batch, n, _]) = squares(place, name, self) else { return rejected(rhs.shape()) };
        let Some([other, rows, k]) = matrices(place, name, rhs) else { return rejected(rhs.shape()) };
        if [batch, n] != [other, rows] {
            let message = format!("`{name}` of matrices {:?} and right-hand sides {:?}", self.shape(), rhs.shape());
            let way_out = "self is [n, n], rhs is [n, k]; or both have the same leading extent";
            record(|t| t.report(place, message, &[way_out]));
            return rejected(rhs.shape());
        }
        with_location(place, || {
            let (a, b) = (self.reshape([batch, n, n]), rhs.reshape([batch, n, k]));
            let a = if options.is_transposed { a.transpose() } else { a };
            let is_lower = options.is_upper == options.is_transposed;
            solved(a, b, Triangle { is_lower, is_unit: options.is_unit }).reshape(rhs.shape())
        })
    }

    /// The inverses of lower triangular matrices with a diagonal of ones.
    ///
    /// The tile is one matrix `[n, n]` or a batch `[b, n, n]`, of f32 or f64. `n` is a power of two
    /// of at most 128. The diagonal and the part above it are not read. The result has zeros above
    /// the diagonal.
    ///
    /// Diagonal blocks of 32 rows are inverted by substitution, all of them together. Two inverses
    /// are joined by matrix products: the inverse of [A 0; C B] is [A⁻¹ 0; -B⁻¹ C A⁻¹ B⁻¹].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let a = ct::astile([[1.0f32, 0.0, 0.0, 0.0], [2.0, 1.0, 0.0, 0.0], [0.0, 3.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]]);
    /// let inverse = ct::astile([[1.0, 0.0, 0.0, 0.0], [-2.0, 1.0, 0.0, 0.0], [6.0, -3.0, 1.0, 0.0], [-1.0, 0.0, 0.0, 1.0]]);
    /// ct::assert!(a.inverse_unit_lower().eq(inverse));
    /// # });
    /// ```
    ///
    /// The launch returns an error with this source location if the matrices are not square or `n`
    /// is no such power of two.
    #[track_caller]
    #[must_use]
    pub fn inverse_unit_lower(self) -> Tile<T, R> {
        let place = caller_location();
        let Some([batch, n, _]) = squares(place, "inverse_unit_lower", self) else { return self };
        with_location(place, || inverse_unit_lower(self.reshape([batch, n, n])).reshape(self.shape()))
    }
}

/// Returns the inverses of the diagonal blocks, which are computed together.
fn inverted_diagonal<T: MatrixFloat>(a: Tile<T, 3>, triangle: Triangle) -> Vec<Tile<T, 3>> {
    let [batch, n, _] = a.shape();
    let count = n / BLOCK;
    let all = inverted(cat((0..count).map(|k| block(a, k, k)), 0), triangle, Form::Unrolled);
    (0..count).map(|k| all.extract([k, 0, 0], [batch, BLOCK, BLOCK])).collect_vec()
}

/// Returns `x` with `a · x = b`.
pub fn solved<T: MatrixFloat>(a: Tile<T, 3>, b: Tile<T, 3>, triangle: Triangle) -> Tile<T, 3> {
    let [_, n, _] = a.shape();
    if n <= BLOCK {
        return substitute(a, b, triangle, Form::Unrolled);
    }
    let count = n / BLOCK;
    let inverses = inverted_diagonal(a, triangle);
    let mut x: Vec<Tile<T, 3>> = (0..count).map(|i| block_row(b, i)).collect_vec();
    for step in 0..count {
        let k = if triangle.is_lower { step } else { count - 1 - step };
        x[k] = product(inverses[k], x[k]);
        let later = if triangle.is_lower { k + 1..count } else { 0..k };
        for i in later {
            x[i] = minus_product(x[i], block(a, i, k), x[k]);
        }
    }
    cat(x, 1)
}

/// Returns the inverses of lower triangular matrices with ones on the diagonal.
pub fn inverse_unit_lower<T: MatrixFloat>(a: Tile<T, 3>) -> Tile<T, 3> {
    let [batch, n, _] = a.shape();
    let triangle = Triangle { is_lower: true, is_unit: true };
    if n <= BLOCK {
        return inverted(a, triangle, Form::Unrolled);
    }
    let mut inverses = inverted_diagonal(a, triangle);
    let mut size = BLOCK;
    while size < n {
        let pairs = inverses.chunks(2).enumerate();
        let joint = pairs.map(|(pair, halves)| {
            let below = a.extract([0, 2 * pair + 1, 2 * pair], [batch, size, size]);
            let below = -product(halves[1], product(below, halves[0]));
            joined(vec![vec![halves[0], zeros([batch, size, size])], vec![below, halves[1]]])
        });
        inverses = joint.collect_vec();
        size *= 2;
    }
    inverses[0]
}
