//! Products of row-major matrices.

/// Returns the product of an `m x k` and a `k x n` matrix. Terms are added in their order.
///
/// # Panics
///
/// Panics if a matrix has another number of elements.
pub fn product(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    assert_eq!([a.len(), b.len()], [m * k, k * n]);
    let mut sums = vec![0.0; m * n];
    for i in 0..m {
        let sums = &mut sums[i * n..][..n];
        for l in 0..k {
            let (x, row) = (a[i * k + l], &b[l * n..][..n]);
            for j in 0..n {
                sums[j] += x * row[j];
            }
        }
    }
    sums
}

/// Returns the elements of a product, each with the sum of the magnitudes of its terms.
///
/// # Panics
///
/// Panics if a matrix has another number of elements.
pub fn product_and_magnitudes(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<(f64, f64)> {
    assert_eq!([a.len(), b.len()], [m * k, k * n]);
    let mut sums = vec![(0.0, 0.0); m * n];
    for i in 0..m {
        let sums = &mut sums[i * n..][..n];
        for l in 0..k {
            let (x, row) = (a[i * k + l], &b[l * n..][..n]);
            for j in 0..n {
                let term = x * row[j];
                sums[j].0 += term;
                sums[j].1 += term.abs();
            }
        }
    }
    sums
}

/// A matrix of whole numbers, row-major.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// Rows and columns.
    pub size: [usize; 2],
    /// The elements.
    pub data: &'a [i64],
}

/// Adds the product of one tile of each factor to `acc`, with a sign. `at`: row, column and term of
/// the first elements. Elements outside of a factor are zeros.
///
/// # Panics
///
/// Panics if a matrix has too few elements.
pub fn add_tile(
    acc: &mut [i64],
    left: Whole<'_>,
    right: Whole<'_>,
    [tm, tn, tk]: [usize; 3],
    [i0, j0, k0]: [usize; 3],
    sign: i64,
) {
    let rows = tm.min(left.size[0].saturating_sub(i0));
    let columns = tn.min(right.size[1].saturating_sub(j0));
    let terms = tk.min(left.size[1].saturating_sub(k0)).min(right.size[0].saturating_sub(k0));
    if columns == 0 {
        return;
    }
    for i in 0..rows {
        let acc = &mut acc[i * tn..][..columns];
        for l in 0..terms {
            let factor = sign * left.data[(i0 + i) * left.size[1] + k0 + l];
            let row = &right.data[(k0 + l) * right.size[1] + j0..][..columns];
            for j in 0..columns {
                acc[j] += factor * row[j];
            }
        }
    }
}
