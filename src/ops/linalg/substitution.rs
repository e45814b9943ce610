//! Triangular systems of one block, by substitution.
//!
//! Algorithm: column-oriented substitution (Golub and Van Loan, *Matrix Computations*, algorithms
//! 3.1.3 and 3.1.4). The solved row is subtracted from all later ones.

use super::blocks::MatrixFloat;
use super::rows::{self, Form, Order, Pivot, Rows, Steps, entry};
use crate::ops::{cat, indices};
use crate::tile::Tile;

/// Kind of a triangular matrix.
#[derive(Clone, Copy, Debug)]
pub struct Triangle {
    pub is_lower: bool,
    /// The diagonal has ones and is not read.
    pub is_unit: bool,
}

/// Returns `x` with `a · x = b`.
pub fn substitute<T: MatrixFloat>(a: Tile<T, 3>, b: Tile<T, 3>, triangle: Triangle, form: Form) -> Tile<T, 3> {
    let [_, n, _] = b.shape();
    let (a, mut x) = (Rows::of(a), Rows::of(b));
    let mut solved = x.panels.clone();
    let order = if triangle.is_lower { Order::Ascending } else { Order::Descending };
    for steps in Steps::by_panels(x.height, 0, n, order) {
        let own = steps.panel;
        // A solved row is subtracted from whole panels, also from solved rows of its own panel.
        let later = if triangle.is_lower { own..x.panels.len() } else { 0..own + 1 };
        let state = (x.panels[later.clone()].to_vec(), solved[own]);
        let state = steps.run(form, state, |(mut x, solved), Pivot { row, column }| {
            let solved_row = match triangle.is_unit {
                true => rows::row(x[own - later.start], row),
                false => rows::row(x[own - later.start], row) / entry(rows::row(a.panels[own], row), column),
            };
            for (x, panel) in x.iter_mut().zip(&a.panels[later.clone()]) {
                *x = rows::column(*panel, column).fma(-solved_row, *x);
            }
            (x, solved.insert((0, row, 0), solved_row))
        });
        x.panels.splice(later, state.0);
        solved[own] = state.1;
    }
    cat(solved, 1)
}

/// Returns the inverse matrices.
pub fn inverted<T: MatrixFloat>(a: Tile<T, 3>, triangle: Triangle, form: Form) -> Tile<T, 3> {
    let [rows, columns] = [1, 2].map(|axis| indices::<3>(a.shape(), axis));
    let identity = rows.eq(columns).cast::<T>();
    substitute(a, identity, triangle, form)
}
