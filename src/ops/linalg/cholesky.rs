//! Cholesky factorization.
//!
//! Algorithm: outer-product Cholesky within a block and block Cholesky outside (Golub and Van Loan,
//! *Matrix Computations*, algorithms 4.2.2 and 4.2.3). A block below the diagonal is multiplied by
//! the inverse of the diagonal block.

use super::blocks::{BLOCK, MatrixFloat, block, joined, lower, minus_product, product, squares};
use super::rows::{self, Form, Order, Pivot, Rows, Steps, entry};
use super::substitution::{Triangle, inverted};
use crate::ops::mma::{MatrixRank, Rank};
use crate::ops::{cat, full, indices, zeros};
use crate::tile::{Tile, caller_location, with_location};
use crate::util::collect::CollectVec as _;

impl<T: MatrixFloat, const R: usize> Tile<T, R>
where
    Rank<R>: MatrixRank,
{
    /// Cholesky factorization of symmetric positive definite matrices: the lower triangular matrix
    /// L with L · Lᵀ = `self`. The part of L above the diagonal has zeros.
    ///
    /// The tile is one matrix `[n, n]` or a batch `[b, n, n]`, of f32 or f64. `n` is a power of two
    /// of at most 128. Only the part of `self` on and below the diagonal is read.
    ///
    /// A matrix that is not positive definite has a pivot that is not positive. The columns of L
    /// from this pivot on are NaN on and below the diagonal. (LAPACK's `potrf` stops there, and
    /// NumPy raises `LinAlgError`.)
    ///
    /// The ptx back end keeps blocks of 32 columns in registers and exchanges elements by shuffles,
    /// without barriers. Larger matrices are factored by blocks, with matrix products between them.
    /// A batch of small matrices with 16 KiB per warp is the fastest, for example `[4, 32, 32]` of
    /// f32.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn factor(a: Array<f64, 3>, l: ArrayMut<f64, 3>) {
    ///     l.store((ct::bid(0), 0, 0), a.load((ct::bid(0), 0, 0), [2, 2, 2]).cholesky());
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let a = device.array(&[4.0, 2.0, 2.0, 10.0, 9.0, 3.0, 3.0, -1.0], [2, 2, 2])?;
    /// let mut l = device.zeros([2, 2, 2])?;
    /// ct::launch(factor, 1, (&a, &mut l))?;
    /// assert_eq!(l.to_vec()?[..7], [2.0, 0.0, 1.0, 3.0, 3.0, 0.0, 1.0]);
    /// assert!(l.to_vec()?[7].is_nan()); // not positive definite
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// The launch returns an error with this source location if the matrices are not square or `n`
    /// is no such power of two.
    #[track_caller]
    #[must_use]
    pub fn cholesky(self) -> Tile<T, R> {
        let place = caller_location();
        let Some([batch, n, _]) = squares(place, "cholesky", self) else { return self };
        with_location(place, || {
            let a = self.reshape([batch, n, n]);
            let l = if n <= BLOCK { of_block(a, Form::Unrolled) } else { of_blocks(a) };
            l.reshape(self.shape())
        })
    }
}

/// Factors matrices of one block.
fn of_block<T: MatrixFloat>(a: Tile<T, 3>, form: Form) -> Tile<T, 3> {
    let [batch, n, _] = a.shape();
    let [rows, columns] = [1, 2].map(|axis| indices::<3>([batch, n, n], axis));
    // Rows and columns of the symmetric matrix are read.
    let a = a.with_local_axis(1);
    let mut a = Rows::of_local(rows.ge(columns).select(a, a.transpose()));
    let mut upper = Vec::with_capacity(a.panels.len());
    for steps in Steps::by_panels(a.height, 0, n, Order::Ascending) {
        let later = a.panels.split_off(steps.panel);
        // Rows of the panel above a pivot are updated in vain.
        let (later, panel) = steps.run(form, (later.clone(), later[0]), |(mut later, panel), Pivot { row, column }| {
            let pivot_row = rows::row(later[0], row);
            let pivot = entry(pivot_row, column);
            let nan = full([batch, 1, 1], T::from_f64(f64::NAN));
            let reciprocal = pivot.gt(T::from_f64(0.0)).select(pivot, nan).rsqrt();
            let scaled = pivot_row * reciprocal;
            let factor = -(scaled * reciprocal);
            for panel in &mut later {
                *panel = rows::column(*panel, column).fma(factor, *panel);
            }
            (later, panel.insert((0, row, 0), scaled))
        });
        a.panels.extend(later);
        upper.push(panel);
    }
    lower(cat(upper, 1).transpose())
}

/// Factors matrices of several blocks.
fn of_blocks<T: MatrixFloat>(a: Tile<T, 3>) -> Tile<T, 3> {
    let [batch, n, _] = a.shape();
    let count = n / BLOCK;
    let zero = zeros([batch, BLOCK, BLOCK]);
    let mut l: Vec<Vec<Tile<T, 3>>> =
        (0..count).map(|i| (0..count).map(|j| if i >= j { block(a, i, j) } else { zero }).collect_vec()).collect_vec();
    for k in 0..count {
        l[k][k] = of_block(l[k][k], Form::Loop);
        if k + 1 == count {
            break;
        }
        let inverse = inverted(l[k][k], Triangle { is_lower: true, is_unit: false }, Form::Loop).transpose();
        for i in k + 1..count {
            l[i][k] = product(l[i][k], inverse);
            for j in k + 1..=i {
                l[i][j] = minus_product(l[i][j], l[i][k], l[j][k].transpose());
            }
        }
    }
    joined(l)
}
