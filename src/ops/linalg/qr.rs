//! QR factorization by Householder reflections.
//!
//! Algorithm: LAPACK's `geqr2` and `larfg` within a panel of columns (Golub and Van Loan, *Matrix
//! Computations*, algorithms 5.1.1 and 5.2.1). Panels are applied to other columns as block
//! reflections I - V T Vᵀ. With D the factors of the reflections and S the part of Vᵀ V above the
//! diagonal, T is (I + D S)⁻¹ D.

use super::blocks::{BLOCK, MatrixFloat, matrices, minus_product, product, rejected};
use super::rows::{self, Form, Order, Pivot, Rows, Steps, entry};
use super::substitution::{Triangle, inverted};
use crate::ops::mma::{MatrixRank, Rank};
use crate::ops::{cat, indices, zeros};
use crate::tile::{Tile, caller_location, record, with_location};
use crate::util::collect::CollectVec as _;

impl<T: MatrixFloat, const R: usize> Tile<T, R>
where
    Rank<R>: MatrixRank,
{
    /// Reduced QR factorization by Householder reflections: Q with orthonormal columns and the
    /// upper triangular R, with Q · R = `self`.
    ///
    /// The tile is one matrix `[m, n]` or a batch `[b, m, n]`, of f32 or f64. `m` and `n` are
    /// powers of two of at most 128, and `n` is at most `m`. Q has the shape of `self`, and R is
    /// `[n, n]` or `[b, n, n]`. The signs are those of LAPACK's `geqrf` and NumPy: elements on the
    /// diagonal of R may be negative.
    ///
    /// A matrix without full rank has zeros on the diagonal of R, and columns of Q that are still
    /// orthonormal. Columns are not scaled: the squares of their norms must be in the range of the
    /// type.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (q, r) = ct::astile([[3.0f64, 1.0], [4.0, 8.0]]).qr();
    /// ct::assert!((r - ct::astile([[-5.0, -7.0], [0.0, 4.0]])).abs().lt(1e-12));
    /// ct::assert!((q - ct::astile([[-0.6, -0.8], [-0.8, 0.6]])).abs().lt(1e-12));
    /// # });
    /// ```
    ///
    /// The launch returns an error with this source location if `m` or `n` is no such power of two
    /// or `n` is larger than `m`.
    #[track_caller]
    #[must_use]
    pub fn qr(self) -> (Tile<T, R>, Tile<T, R>) {
        let place = caller_location();
        let mut square = self.shape();
        square[R - 2] = square[R - 1];
        let Some([batch, m, n]) = matrices(place, "qr", self) else { return (self, rejected(square)) };
        if n > m || !n.is_power_of_two() {
            let message = format!("`qr` of matrices of {m} rows and {n} columns");
            let way_out = "the number of columns is a power of two and at most that of the rows";
            record(|t| t.report(place, message, &[way_out]));
            return (self, rejected(square));
        }
        with_location(place, || {
            let a = self.reshape([batch, m, n]);
            let (q, r) = if n <= BLOCK { of_panel(a) } else { of_panels(a) };
            let upper = r.extract([0, 0, 0], [batch, n, n]);
            let [rows, columns] = [1, 2].map(|axis| indices::<3>(upper.shape(), axis));
            let r = rows.le(columns).select(upper, T::from_f64(0.0));
            (q.reshape(self.shape()), r.reshape(square))
        })
    }
}

/// A panel of columns, reduced to R, with the vectors of the reflections below the diagonal.
struct Reduction<T: MatrixFloat> {
    a: Rows<T>,
    /// Row of the first pivot.
    first: usize,
    /// Factor of each reflection, as a tile `[batch, 1, columns]`.
    factors: Tile<T, 3>,
}

impl<T: MatrixFloat> Reduction<T> {
    fn new(a: Tile<T, 3>, first: usize) -> Reduction<T> {
        let [batch, _, columns] = a.shape();
        let mut a = Rows::of(a);
        let (height, numbers) = (a.height, a.numbers());
        let mut factors = zeros([batch, 1, columns]);
        for steps in Steps::by_panels(height, first, columns, Order::Ascending) {
            let state = (a.panels.split_off(steps.panel), factors);
            let numbers = numbers[steps.panel];
            let (later, all) = steps.run(Form::Loop, state, |(mut panels, factors), pivot| {
                let factor = reduce(&mut panels, numbers, pivot);
                let is_own = indices::<3>(factors.shape(), 2).eq(pivot.column);
                (panels, is_own.select(factor, factors))
            });
            a.panels.extend(later);
            factors = all;
        }
        Reduction { a, first, factors }
    }

    /// Returns V and T of the block reflection I - V T Vᵀ.
    fn block_reflection(&self) -> (Tile<T, 3>, Tile<T, 3>) {
        let (a, zero) = (cat(self.a.panels.clone(), 1), T::from_f64(0.0));
        let [rows, columns] = [1, 2].map(|axis| indices::<3>(a.shape(), axis));
        let pivots = columns + self.first as i32;
        let v = rows.gt(pivots).select(a, rows.eq(pivots).cast::<T>());
        let squares = product(v.transpose(), v);
        let [rows, columns] = [1, 2].map(|axis| indices::<3>(squares.shape(), axis));
        let scaled = rows.lt(columns).select(squares * self.factors.transpose(), zero);
        let inverse = inverted(scaled, Triangle { is_lower: false, is_unit: true }, Form::Loop);
        (v, inverse * self.factors)
    }
}

/// Reflects a column onto its pivot, and applies the reflection to later columns. Returns the
/// factor of the reflection. The first one of `panels` has the pivot, and rows with these numbers.
fn reduce<T: MatrixFloat>(panels: &mut [Tile<T, 3>], numbers: Tile<i32, 3>, step: Pivot) -> Tile<T, 3> {
    let zero = T::from_f64(0.0);
    let (row, number) = (rows::row(panels[0], step.row), rows::row(numbers, step.row));
    let mut vector: Vec<Tile<T, 3>> = panels.iter().map(|&panel| rows::column(panel, step.column)).collect_vec();
    vector[0] = numbers.gt(number).select(vector[0], zero);
    let squares = vector.iter().map(|&part| (part * part).sum(1)).reduce(|a, b| a + b).expect("a column has a row");
    let pivot = entry(row, step.column);
    let norm = pivot.fma(pivot, squares).sqrt();
    let reflected = pivot.ge(zero).select(-norm, norm);
    let is_done = squares.eq(zero);
    let factor = is_done.select(zero, (reflected - pivot) / reflected);
    let scale = is_done.select(zero, (pivot - reflected).recip());
    let reflected = is_done.select(pivot, reflected);
    vector.iter_mut().for_each(|part| *part *= scale);
    let is_pivot = numbers.eq(number);
    let stored = is_pivot.select(reflected, vector[0]);
    vector[0] = is_pivot.select(T::from_f64(1.0), vector[0]);
    let columns = indices::<3>(row.shape(), 2);
    let is_later = columns.gt(step.column);
    reflect(panels, &vector, factor, |projection| is_later.select(projection, zero));
    for (at, (panel, part)) in panels.iter_mut().zip(vector).enumerate() {
        let is_column = columns.eq(step.column);
        let is_written = if at == 0 { is_column & numbers.ge(number) } else { is_column };
        *panel = is_written.select(if at == 0 { stored } else { part }, *panel);
    }
    factor
}

/// Returns the vector of a reflection, of the panels from that of its pivot on. `numbers` are those
/// of the rows of the first one.
fn reflection<T: MatrixFloat>(panels: &[Tile<T, 3>], numbers: Tile<i32, 3>, step: Pivot) -> Vec<Tile<T, 3>> {
    let number = rows::row(numbers, step.row);
    let mut vector: Vec<Tile<T, 3>> = panels.iter().map(|&panel| rows::column(panel, step.column)).collect_vec();
    let below = numbers.gt(number).select(vector[0], T::from_f64(0.0));
    vector[0] = numbers.eq(number).select(T::from_f64(1.0), below);
    vector
}

/// Applies a reflection to rows. `kept` selects the columns that are reflected.
fn reflect<T: MatrixFloat>(
    panels: &mut [Tile<T, 3>],
    vector: &[Tile<T, 3>],
    factor: Tile<T, 3>,
    kept: impl Fn(Tile<T, 3>) -> Tile<T, 3>,
) {
    let parts = panels.iter().zip(vector).map(|(&panel, &part)| (panel * part).sum(1));
    let projection = parts.reduce(|a, b| a + b).expect("a column has a row");
    let projection = -kept(projection * factor);
    for (panel, &part) in panels.iter_mut().zip(vector) {
        *panel = part.fma(projection, *panel);
    }
}

/// Returns the first columns of the identity.
fn identity<T: MatrixFloat>(shape: [usize; 3]) -> Tile<T, 3> {
    let [rows, columns] = [1, 2].map(|axis| indices::<3>(shape, axis));
    rows.eq(columns).cast::<T>()
}

/// Returns Q and R of matrices with one panel of columns.
fn of_panel<T: MatrixFloat>(a: Tile<T, 3>) -> (Tile<T, 3>, Tile<T, 3>) {
    let (shape, [_, _, columns]) = (a.shape(), a.shape());
    let Reduction { a, factors, .. } = Reduction::new(a, 0);
    let (mut q, numbers) = (Rows::of(identity(shape)), a.numbers());
    for steps in Steps::by_panels(q.height, 0, columns, Order::Descending) {
        let (own, numbers) = (steps.panel, numbers[steps.panel]);
        let later = steps.run(Form::Loop, q.panels.split_off(own), |mut panels, pivot| {
            let vector = reflection(&a.panels[own..], numbers, pivot);
            reflect(&mut panels, &vector, entry(factors, pivot.column), |projection| projection);
            panels
        });
        q.panels.extend(later);
    }
    (cat(q.panels, 1), cat(a.panels, 1))
}

/// Returns Q and R of matrices with several panels of columns.
fn of_panels<T: MatrixFloat>(a: Tile<T, 3>) -> (Tile<T, 3>, Tile<T, 3>) {
    let [batch, m, n] = a.shape();
    let count = n / BLOCK;
    let mut columns: Vec<Tile<T, 3>> = (0..count).map(|j| a.extract([0, 0, j], [batch, m, BLOCK])).collect_vec();
    let mut reflections = Vec::with_capacity(count);
    for k in 0..count {
        let reduction = Reduction::new(columns[k], k * BLOCK);
        let (v, t) = reduction.block_reflection();
        columns[k] = cat(reduction.a.panels, 1);
        for column in &mut columns[k + 1..] {
            *column = minus_product(*column, v, product(t.transpose(), product(v.transpose(), *column)));
        }
        reflections.push((v, t));
    }
    let mut q = identity([batch, m, n]);
    for (v, t) in reflections.into_iter().rev() {
        q = minus_product(q, v, product(t, product(v.transpose(), q)));
    }
    (q, cat(columns, 2))
}
