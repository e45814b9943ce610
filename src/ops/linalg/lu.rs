//! LU factorization with partial pivoting.
//!
//! Algorithm: outer-product elimination within a panel of columns, and a right-looking block
//! factorization outside (Golub and Van Loan, *Matrix Computations*, section 3.4; LAPACK's
//! `getrf`).

use super::blocks::{BLOCK, MatrixFloat, block, minus_product, rejected, squares};
use super::rows::{self, Form, Order, Pivot, Rows, Steps, entry};
use super::substitution::{Triangle, substitute};
use crate::element::ByteSized;
use crate::ops::mma::{MatrixRank, Rank};
use crate::ops::{cat, indices};
use crate::tile::{Tile, caller_location, with_location};
use crate::util::collect::CollectVec as _;

impl<T: MatrixFloat, const R: usize> Tile<T, R>
where
    Rank<R>: MatrixRank,
{
    /// LU factorization with partial pivoting: L and U in one tile, and the order of the rows.
    ///
    /// The tile is one matrix `[n, n]` or a batch `[b, n, n]`, of f32 or f64. `n` is a power of two
    /// of at most 128. The first result has U on and above the diagonal and L below it; the
    /// diagonal of L has ones. The second result, `[n, 1]` or `[b, n, 1]`, is the row of `self` at
    /// each row of L · U. So `self.gather(axis, order.broadcast_to(shape))` is L · U, for the axis
    /// of the rows.
    ///
    /// The pivot of a column is the element of the largest magnitude, the first one of equal ones.
    /// A NaN counts as infinite. A singular matrix has a zero on the diagonal of U, as with
    /// LAPACK's `getrf`, and the elements of L below this zero are zero.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (lu, order) = ct::astile([[1.0f32, 5.0], [2.0, 4.0]]).lu();
    /// ct::assert!(lu.eq(ct::astile([[2.0, 4.0], [0.5, 3.0]])));
    /// ct::assert!(order.eq(ct::astile([[1], [0]])));
    /// # });
    /// ```
    ///
    /// The launch returns an error with this source location if the matrices are not square or `n`
    /// is no such power of two.
    #[track_caller]
    #[must_use]
    pub fn lu(self) -> (Tile<T, R>, Tile<i32, R>) {
        let place = caller_location();
        let mut column = self.shape();
        column[R - 1] = 1;
        let Some([batch, n, _]) = squares(place, "lu", self) else { return (self, rejected(column)) };
        with_location(place, || {
            let a = self.reshape([batch, n, n]);
            let (a, order) = if n <= BLOCK { of_panel(a, 0) } else { of_blocks(a) };
            (a.reshape(self.shape()), order.reshape(column))
        })
    }
}

/// Factors a panel whose pivots are in the rows from `first` on. Returns the panel and the order of
/// its rows.
fn of_panel<T: MatrixFloat>(a: Tile<T, 3>, first: usize) -> (Tile<T, 3>, Tile<i32, 3>) {
    let [_, _, columns] = a.shape();
    let mut a = Rows::of(a);
    let numbers = a.numbers();
    let mut order = numbers.clone();
    for steps in Steps::by_panels(a.height, first, columns, Order::Ascending) {
        let numbers = &numbers[steps.panel..];
        let state = (a.panels.split_off(steps.panel), order.split_off(steps.panel));
        let state = steps.run(Form::Loop, state, |(mut a, mut order), pivot| {
            eliminate(&mut a, &mut order, numbers, pivot);
            (a, order)
        });
        a.panels.extend(state.0);
        order.extend(state.1);
    }
    (cat(a.panels, 1), cat(order, 1))
}

/// Exchanges the rows of `step` and of the pivot, and eliminates the column below. `a`, `order` and
/// `numbers` are the panels from that of the step on.
fn eliminate<T: MatrixFloat>(a: &mut [Tile<T, 3>], order: &mut [Tile<i32, 3>], numbers: &[Tile<i32, 3>], step: Pivot) {
    let elements: Vec<Tile<T, 3>> = a.iter().map(|&panel| rows::column(panel, step.column)).collect_vec();
    let number = rows::row(numbers[0], step.row);
    let picks = pivots(&elements, numbers, number);
    let row = rows::row(a[0], step.row);
    let pivot_row = exchange(a, &picks, step, T::from_f64(0.0));
    exchange(order, &picks, step, 0);
    let (pivot, zero) = (entry(pivot_row, step.column), T::from_f64(0.0));
    let reciprocal = pivot.eq(zero).select(zero, pivot.recip());
    let columns = indices::<3>(row.shape(), 2);
    let factor = -columns.gt(step.column).select(pivot_row, zero);
    for (panel, (element, pick)) in elements.into_iter().zip(picks).enumerate() {
        let mut quotient = pick.select(entry(row, step.column), element) * reciprocal;
        let mut is_quotient = columns.eq(step.column);
        if panel == 0 {
            let is_below = numbers[0].gt(number);
            quotient = is_below.select(quotient, zero);
            is_quotient &= is_below;
        }
        let updated = quotient.fma(factor, a[panel]);
        a[panel] = is_quotient.select(quotient, updated);
    }
}

/// Returns for each panel which row has the pivot of a column. The first panel has the row `number`
/// of the step.
fn pivots<T: MatrixFloat>(
    elements: &[Tile<T, 3>],
    numbers: &[Tile<i32, 3>],
    number: Tile<i32, 3>,
) -> Vec<Tile<bool, 3>> {
    let magnitude = |(panel, element): (usize, &Tile<T, 3>)| {
        let magnitude = element.isnan().select(T::from_f64(f64::INFINITY), element.abs());
        if panel == 0 { numbers[0].ge(number).select(magnitude, T::from_f64(-1.0)) } else { magnitude }
    };
    let magnitudes: Vec<Tile<T, 3>> = elements.iter().enumerate().map(magnitude).collect_vec();
    let largest = magnitudes.iter().map(|magnitude| magnitude.reduce_max(1)).reduce(|a, b| a.max(b));
    let largest = largest.expect("a panel has a row");
    let firsts = magnitudes
        .iter()
        .zip(numbers)
        .map(|(magnitude, &number)| magnitude.eq(largest).select(number, i32::MAX).reduce_min(1));
    let first = firsts.reduce(|a, b| a.min(b)).expect("a panel has a row");
    numbers.iter().map(|number| number.eq(first)).collect_vec()
}

/// Exchanges the row of `step` in the first panel and the picked row. Returns the picked row.
fn exchange<X>(panels: &mut [Tile<X, 3>], picks: &[Tile<bool, 3>], step: Pivot, zero: X) -> Tile<X, 3>
where
    X: ByteSized + crate::element::Number,
{
    let row = rows::row(panels[0], step.row);
    let parts = panels.iter().zip(picks).map(|(&panel, pick)| pick.select(panel, zero).sum(1));
    let picked = parts.reduce(|a, b| a + b).expect("a panel has a row");
    for (panel, pick) in panels.iter_mut().zip(picks) {
        *panel = pick.select(row, *panel);
    }
    panels[0] = panels[0].insert((0, step.row, 0), picked);
    picked
}

/// Factors matrices of several blocks.
fn of_blocks<T: MatrixFloat>(mut a: Tile<T, 3>) -> (Tile<T, 3>, Tile<i32, 3>) {
    let [batch, n, _] = a.shape();
    let count = n / BLOCK;
    let mut order = indices([batch, n, 1], 1);
    for k in 0..count {
        let of_columns = |a: Tile<T, 3>, j: usize| a.extract([0, 0, j], [batch, n, BLOCK]);
        let (panel, exchanged) = of_panel(of_columns(a, k), k * BLOCK);
        a = a.gather(1, exchanged.broadcast_to([batch, n, n]));
        order = order.gather(1, exchanged);
        let corner = block(panel, k, 0);
        let columns = (0..count).map(|j| match j.cmp(&k) {
            std::cmp::Ordering::Less => of_columns(a, j),
            std::cmp::Ordering::Equal => panel,
            std::cmp::Ordering::Greater => {
                let upper = substitute(corner, block(a, k, j), Triangle { is_lower: true, is_unit: true }, Form::Loop);
                let below = |i: usize| minus_product(block(a, i, j), block(panel, i, 0), upper);
                cat(
                    (0..count).map(|i| match i.cmp(&k) {
                        std::cmp::Ordering::Less => block(a, i, j),
                        std::cmp::Ordering::Equal => upper,
                        std::cmp::Ordering::Greater => below(i),
                    }),
                    1,
                )
            }
        });
        a = cat(columns, 2);
    }
    (a, order)
}
