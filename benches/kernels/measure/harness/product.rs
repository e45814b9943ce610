//! References of matrix products.

use cutlet::element::Element;
use rayon::prelude::*;

use super::Expected;

/// Rows that are compared: all of up to 64, else 64 spread over the matrix, the last one among
/// them.
pub fn sample_rows(rows: usize) -> Vec<usize> {
    const MAX_SAMPLES: usize = 64;
    if rows <= MAX_SAMPLES {
        (0..rows).collect()
    } else {
        (0..MAX_SAMPLES).map(|i| i * (rows - 1) / (MAX_SAMPLES - 1)).collect()
    }
}

/// The given rows of a (m x k, row-major) times b (k x n, row-major). The scale of an element is
/// the sum of the magnitudes of its terms.
pub fn expected_rows<T: Element>(a: &[T], b: &[T], k: usize, n: usize, rows: &[usize]) -> Vec<Expected> {
    let row = |&row: &usize| {
        let (mut values, mut scales) = (vec![0.0; n], vec![0.0; n]);
        for (inner, factor) in a[row * k..(row + 1) * k].iter().enumerate() {
            let factor = factor.to_f64();
            for (column, b) in b[inner * n..(inner + 1) * n].iter().enumerate() {
                let term = factor * b.to_f64();
                values[column] += term;
                scales[column] += term.abs();
            }
        }
        values.into_iter().zip(scales).map(|(value, scale)| Expected { value, scale }).collect::<Vec<_>>()
    };
    rows.par_iter().flat_map_iter(row).collect()
}
