//! Expected results, computed before the comparison by the optimized loops of `cutlet_reference`.

use cutlet::element::Element;

use crate::exact;
use crate::harness::Session;

impl Session {
    /// Returns true if [`Session::check`] compares elements with expectations.
    pub fn compares(self) -> bool {
        !self.only_compiles() && !exact::is_active()
    }

    /// Computes expectations, or returns none if nothing is compared.
    pub fn expected<T: Default>(self, compute: impl FnOnce() -> T) -> T {
        if self.compares() { compute() } else { T::default() }
    }
}

/// Returns the elements as numbers. Unoptimized tests take longer to convert than to multiply.
pub fn numbers<T: Element>(values: &[T]) -> Vec<f64> {
    values.iter().map(|x| x.to_f64()).collect()
}

/// Returns a row-major matrix of these elements.
pub fn matrix([rows, columns]: [usize; 2], element: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let mut all = Vec::with_capacity(rows * columns);
    for i in 0..rows {
        for j in 0..columns {
            all.push(element(i, j));
        }
    }
    all
}

/// Returns the transposed matrix, row-major.
pub fn transposed(data: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    matrix([columns, rows], |j, i| data[i * columns + j])
}

/// Product of two matrices in f64.
#[derive(Default)]
pub struct Product {
    sums: Vec<f64>,
    columns: usize,
}

impl Product {
    /// The product of an `m x k` and a `k x n` matrix of these elements; nothing if no elements are
    /// compared.
    pub fn new(
        session: Session,
        [m, n, k]: [usize; 3],
        left: impl Fn(usize, usize) -> f64,
        right: impl Fn(usize, usize) -> f64,
    ) -> Product {
        session.expected(|| Product::of(&matrix([m, k], left), &matrix([k, n], right), [m, n, k]))
    }

    /// The product of two row-major matrices.
    pub fn of(left: &[f64], right: &[f64], sides: [usize; 3]) -> Product {
        Product { sums: cutlet_reference::product(left, right, sides), columns: sides[1] }
    }

    /// Returns an element.
    pub fn at(&self, [i, j]: [usize; 2]) -> f64 {
        self.sums[i * self.columns + j]
    }
}
