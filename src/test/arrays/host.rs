//! Arrays of the host, which a reference reads and writes.

use std::fmt;
use std::ops::{Index, IndexMut};

use super::element::TestElement;

/// An array of the host, as a reference sees an argument: floats as f64, integers as i64, bool.
///
/// An element is read and written by its indices: `x[[i, j]]`. The array of an
/// [`Output`](crate::test::Output) has no values before the reference writes them. The kernel must
/// not write an element that the reference does not write.
///
/// ```
/// # use cutlet::doctest::*;
/// use cutlet::test::{Input, Kernel, Output};
///
/// fn transpose(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
///     let (i, j) = (ct::bid(0), ct::bid(1));
///     y.store((j, i), x.load((i, j), [8, 8]).transpose());
/// }
///
/// Kernel::new(transpose)
///     .shapes(|draw| {
///         let (m, n) = (draw.extent("m", 8), draw.extent("n", 8));
///         ([m.div_ceil(8), n.div_ceil(8)], (Input::new([m, n]), Output::new([n, m])))
///     })
///     .reference(|(x, y)| y.fill(|[i, j]| x[[j, i]]))
///     .run();
/// ```
pub struct HostArray<T: TestElement, const R: usize> {
    shape: [usize; R],
    values: Vec<T::Wide>,
    written: Vec<bool>,
}

impl<T: TestElement, const R: usize> fmt::Debug for HostArray<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostArray").field("shape", &self.shape).field("values", &self.values).finish_non_exhaustive()
    }
}

impl<T: TestElement, const R: usize> HostArray<T, R> {
    pub(in crate::test) fn new(shape: [usize; R], values: Vec<T::Wide>) -> HostArray<T, R> {
        HostArray { shape, written: vec![false; values.len()], values }
    }

    /// Returns the extents.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Input, Kernel};
    /// Kernel::new(|_: Array<f32, 2>| {}).shapes(|_| (1, (Input::new([3, 4]),))).reference(|(x,)| assert_eq!(x.shape(), [3, 4])).run();
    /// ```
    pub fn shape(&self) -> [usize; R] {
        self.shape
    }

    /// Returns the elements in row-major order.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Input, Kernel};
    /// Kernel::new(|_: Array<f32, 1>| {}).shapes(|_| (1, (Input::new([3]),))).reference(|(x,)| assert_eq!(x.values().len(), 3)).run();
    /// ```
    pub fn values(&self) -> &[T::Wide] {
        &self.values
    }

    /// Writes each element, in row-major order, as a function of its indices.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let count = |y: ArrayMut<i32, 1>| y.store(0, ct::arange(0..8));
    /// Kernel::new(count).shapes(|_| (1, (Output::new([8]),))).reference(|(y,)| y.fill(|[i]| i as i64)).run();
    /// ```
    pub fn fill(&mut self, mut value: impl FnMut([usize; R]) -> T::Wide) {
        for flat in 0..self.values.len() {
            self.values[flat] = value(indices(flat, &self.shape));
        }
        self.written.fill(true);
    }

    /// Returns true if the reference wrote the element with this row-major number.
    pub(in crate::test) fn is_written(&self, flat: usize) -> bool {
        self.written[flat]
    }

    #[track_caller]
    fn flat(&self, index: [usize; R]) -> usize {
        let is_inside = index.iter().zip(self.shape).all(|(&i, extent)| i < extent);
        assert!(is_inside, "the reference accesses element {index:?} of an array of shape {:?}", self.shape);
        index.iter().zip(self.shape).fold(0, |flat, (&i, extent)| flat * extent + i)
    }
}

/// Returns the indices of the element with a row-major number.
pub(in crate::test) fn indices<const R: usize>(mut flat: usize, shape: &[usize; R]) -> [usize; R] {
    let mut index = [0; R];
    for d in (0..R).rev() {
        (index[d], flat) = (flat % shape[d], flat / shape[d]);
    }
    index
}

impl<T: TestElement, const R: usize> Index<[usize; R]> for HostArray<T, R> {
    type Output = T::Wide;

    #[track_caller]
    fn index(&self, index: [usize; R]) -> &T::Wide {
        &self.values[self.flat(index)]
    }
}

impl<T: TestElement, const R: usize> IndexMut<[usize; R]> for HostArray<T, R> {
    #[track_caller]
    fn index_mut(&mut self, index: [usize; R]) -> &mut T::Wide {
        let flat = self.flat(index);
        self.written[flat] = true;
        &mut self.values[flat]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_addressed_in_row_major_order() {
        let mut x = HostArray::<f32, 2>::new([2, 3], vec![0.0; 6]);
        x[[1, 0]] = 5.0;
        assert_eq!(x.values(), [0.0, 0.0, 0.0, 5.0, 0.0, 0.0]);
        assert_eq!((0..6).filter(|&flat| x.is_written(flat)).collect::<Vec<_>>(), [3]);
        assert_eq!(indices(4, &[2, 3]), [1, 1]);
        x.fill(|[i, j]| (10 * i + j) as f64);
        assert_eq!((x[[1, 2]], x[[0, 1]]), (12.0, 1.0));
    }

    #[test]
    #[should_panic(expected = "element [0, 3] of an array of shape [2, 3]")]
    fn an_element_outside_is_an_error() {
        let _ = HostArray::<f32, 2>::new([2, 3], vec![0.0; 6])[[0, 3]];
    }
}
