//! Triangular systems of one block, by substitution.
//!
//! Algorithm: column-oriented substitution (Golub and Van Loan, *Matrix Computations*, algorithms
//! 3.1.3 and 3.1.4). The solved row is subtracted from all later ones.

use super::blocks::MatrixFloat;
use super::rows::{Rows, entry};
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
pub fn substitute<T: MatrixFloat>(a: Tile<T, 3>, b: Tile<T, 3>, triangle: Triangle) -> Tile<T, 3> {
    let [_, n, _] = b.shape();
    let (a, mut x) = (Rows::of(a), Rows::of(b));
    let mut solved = vec![b; n];
    for step in 0..n {
        let j = if triangle.is_lower { step } else { n - 1 - step };
        let row = match triangle.is_unit {
            true => x.row(j),
            false => x.row(j) / entry(a.row(j), j),
        };
        solved[j] = row;
        let later = match triangle.is_lower {
            true => (j + 1) / x.height..x.panels.len(),
            false => 0..j.div_ceil(x.height),
        };
        for panel in later {
            x.panels[panel] = a.column(panel, j).fma(-row, x.panels[panel]);
        }
    }
    cat(solved, 1)
}

/// Returns the inverse matrices.
pub fn inverted<T: MatrixFloat>(a: Tile<T, 3>, triangle: Triangle) -> Tile<T, 3> {
    let [rows, columns] = [1, 2].map(|axis| indices::<3>(a.shape(), axis));
    let identity = rows.eq(columns).cast::<T>();
    substitute(a, identity, triangle)
}
