//! QR factorization by Householder reflections.
//!
//! Algorithm: LAPACK's `geqr2` and `larfg` within a panel of columns (Golub and Van Loan, *Matrix
//! Computations*, algorithms 5.1.1 and 5.2.1). Panels are applied to other columns as block
//! reflections I - V T Vᵀ. With D the factors of the reflections and S the part of Vᵀ V above the
//! diagonal, T is (I + D S)⁻¹ D.

use super::blocks::{BLOCK, MatrixFloat, matrices, minus_product, product, rejected};
use super::rows::{Rows, entry};
use super::substitution::{Triangle, inverted};
use crate::ops::mma::{MatrixRank, Rank};
use crate::ops::{cat, indices};
use crate::tile::{Tile, caller_location, record, with_location};

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
    /// Number of each row.
    numbers: Vec<Tile<i32, 3>>,
    /// Factor of each reflection, as tiles `[batch, 1, 1]`.
    factors: Vec<Tile<T, 3>>,
}

impl<T: MatrixFloat> Reduction<T> {
    fn new(a: Tile<T, 3>, first: usize) -> Reduction<T> {
        let [_, _, columns] = a.shape();
        let a = Rows::of(a);
        let numbers = a.numbers();
        let mut reduction = Reduction { a, first, numbers, factors: Vec::new() };
        (0..columns).for_each(|column| reduction.step(column));
        reduction
    }

    /// Reflects a column onto its pivot, and applies the reflection to later columns.
    fn step(&mut self, column: usize) {
        let (step, zero) = (self.first + column, T::from_f64(0.0));
        let own = step / self.a.height;
        let mut vector: Vec<Tile<T, 3>> =
            (own..self.a.panels.len()).map(|panel| self.a.column(panel, column)).collect();
        vector[0] = self.numbers[own].gt(step).select(vector[0], zero);
        let squares = vector.iter().map(|&part| (part * part).sum(1)).reduce(|a, b| a + b).expect("a column has a row");
        let pivot = entry(self.a.row(step), column);
        let norm = pivot.fma(pivot, squares).sqrt();
        let reflected = pivot.ge(zero).select(-norm, norm);
        let is_done = squares.eq(zero);
        let factor = is_done.select(zero, (reflected - pivot) / reflected);
        let scale = is_done.select(zero, (pivot - reflected).recip());
        let reflected = is_done.select(pivot, reflected);
        vector.iter_mut().for_each(|part| *part *= scale);
        let is_pivot = self.numbers[own].eq(step);
        let stored = is_pivot.select(reflected, vector[0]);
        vector[0] = is_pivot.select(T::from_f64(1.0), vector[0]);
        let columns = indices::<3>(self.a.row(step).shape(), 2);
        let is_later = columns.gt(column);
        reflect(&mut self.a.panels[own..], &vector, factor, |projection| is_later.select(projection, zero));
        for (panel, part) in (own..self.a.panels.len()).zip(vector) {
            let is_column = columns.eq(column);
            let is_written = if panel == own { is_column & self.numbers[own].ge(step) } else { is_column };
            let part = if panel == own { stored } else { part };
            self.a.panels[panel] = is_written.select(part, self.a.panels[panel]);
        }
        self.factors.push(factor);
    }

    /// Returns the vector of a reflection from the panel of its pivot on.
    fn vector(&self, column: usize) -> Vec<Tile<T, 3>> {
        let step = self.first + column;
        let own = step / self.a.height;
        let mut vector: Vec<Tile<T, 3>> =
            (own..self.a.panels.len()).map(|panel| self.a.column(panel, column)).collect();
        let below = self.numbers[own].gt(step).select(vector[0], T::from_f64(0.0));
        vector[0] = self.numbers[own].eq(step).select(T::from_f64(1.0), below);
        vector
    }

    /// Returns V and T of the block reflection I - V T Vᵀ.
    fn block_reflection(&self) -> (Tile<T, 3>, Tile<T, 3>) {
        let (a, zero) = (cat(self.a.panels.clone(), 1), T::from_f64(0.0));
        let [rows, columns] = [1, 2].map(|axis| indices::<3>(a.shape(), axis));
        let pivots = columns + self.first as i32;
        let v = rows.gt(pivots).select(a, rows.eq(pivots).cast::<T>());
        let squares = product(v.transpose(), v);
        let [rows, columns] = [1, 2].map(|axis| indices::<3>(squares.shape(), axis));
        let scaled = rows.lt(columns).select(squares * cat(self.factors.clone(), 1), zero);
        let inverse = inverted(scaled, Triangle { is_lower: false, is_unit: true });
        (v, inverse * cat(self.factors.clone(), 2))
    }
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
    let reduction = Reduction::new(a, 0);
    let mut q = Rows::of(identity(a.shape()));
    for (column, &factor) in reduction.factors.iter().enumerate().rev() {
        let own = column / q.height;
        reflect(&mut q.panels[own..], &reduction.vector(column), factor, |projection| projection);
    }
    (cat(q.panels, 1), cat(reduction.a.panels, 1))
}

/// Returns Q and R of matrices with several panels of columns.
fn of_panels<T: MatrixFloat>(a: Tile<T, 3>) -> (Tile<T, 3>, Tile<T, 3>) {
    let [batch, m, n] = a.shape();
    let count = n / BLOCK;
    let mut columns: Vec<Tile<T, 3>> = (0..count).map(|j| a.extract([0, 0, j], [batch, m, BLOCK])).collect();
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
