//! Positions of the largest and smallest elements.
//!
//! The result is that of two reductions: the extreme value, then the smallest index of an element
//! equal to it. Both reductions commute, so back ends may combine in any order, and ties need no
//! special case.

use super::reduce::Axes;
use crate::element::{Float, Number};
use crate::ops::create::construct::indices;
use crate::sealed::Sealed;
use crate::tile::Tile;
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// The row-major index of each element along the axes.
#[track_caller]
fn numbers<const R: usize>(shape: [usize; R], axes: &[usize]) -> Tile<i32, R> {
    let mut order: Vec<usize> = axes.iter().copied().filter(|&axis| axis < R).collect_vec();
    sort::natural(&mut order);
    let mut step = 1;
    let mut total: Option<Tile<i32, R>> = None;
    for axis in order.into_iter().rev() {
        let part = indices(shape, axis) * step;
        total = Some(total.map_or(part, |sum| sum + part));
        step *= shape[axis];
    }
    total.unwrap_or_else(|| crate::ops::create::construct::zeros(shape))
}

/// The smallest index of a true element; 0 if all elements are false.
#[track_caller]
fn first<const R: usize>(hits: Tile<bool, R>, axes: Vec<usize>) -> Tile<i32, R> {
    let found = hits.select(numbers(hits.shape(), &axes), i32::MAX).reduce_min(List(axes));
    found.eq(i32::MAX).select(0, found)
}

/// Axes in resolved form.
#[derive(Clone)]
struct List(Vec<usize>);

impl Sealed for List {}
impl Axes for List {
    fn axes(self, _rank: usize) -> Vec<usize> {
        self.0
    }
}

impl<T: Number, const R: usize> Tile<T, R> {
    /// The index of the largest element along axes, and that of the first one among equal elements.
    /// Along several axes the index is row-major. The reduced axes remain, with extent 1.
    ///
    /// A NaN is ignored; if all elements are NaN, the result is 0. -0 and +0 are equal.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn largest(x: Array<f32, 2>, rows: ArrayMut<i32, 2>, all: ArrayMut<i32, 2>) {
    ///     let x = x.load((0, 0), [2, 4]);
    ///     rows.store((0, 0), x.argmax(1));
    ///     all.store((0, 0), x.argmax(..));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[1.0f32, f32::NAN, 5.0, 5.0, 7.0, -1.0, 0.0, 7.0], [2, 4])?;
    /// let (mut rows, mut all) = (device.zeros([2, 1])?, device.zeros([1, 1])?);
    /// ct::launch(largest, 1, (&x, &mut rows, &mut all))?;
    /// assert_eq!((rows.to_vec()?, all.to_vec()?), (vec![2, 0], vec![4]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn argmax(self, axes: impl Axes) -> Tile<i32, R> {
        self.argmax_with_value(axes).0
    }

    /// The index of the smallest element along axes, with the rules of [`argmax`](Tile::argmax).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([[3, 1, 1, 4], [0, 5, -1, 9]]).argmin(1).eq(ct::astile([[1], [2]])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn argmin(self, axes: impl Axes) -> Tile<i32, R> {
        self.argmin_with_value(axes).0
    }

    /// The index of the largest element along axes and its value: [`argmax`](Tile::argmax) and
    /// [`reduce_max`](Tile::reduce_max).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (index, value) = ct::astile([3.0f32, 8.0, 8.0, 1.0]).argmax_with_value(0);
    /// ct::assert!(index.eq(1) & value.eq(8.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn argmax_with_value(self, axes: impl Axes) -> (Tile<i32, R>, Tile<T, R>) {
        let axes = List(axes.axes(R));
        let value = self.reduce_max(axes.clone());
        (first(self.eq(value), axes.0), value)
    }

    /// The index of the smallest element along axes and its value: [`argmin`](Tile::argmin) and
    /// [`reduce_min`](Tile::reduce_min).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (index, value) = ct::astile([3.0f32, 8.0, 1.0, 1.0]).argmin_with_value(0);
    /// ct::assert!(index.eq(2) & value.eq(1.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn argmin_with_value(self, axes: impl Axes) -> (Tile<i32, R>, Tile<T, R>) {
        let axes = List(axes.axes(R));
        let value = self.reduce_min(axes.clone());
        (first(self.eq(value), axes.0), value)
    }
}

impl<T: Float, const R: usize> Tile<T, R> {
    /// The index of the largest element along axes, or of the first NaN if there is one.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn largest(x: Array<f32, 1>, y: ArrayMut<i32, 1>) {
    ///     let x = x.load(0, [4]);
    ///     y.store(0, ct::cat([x.argmax(0), x.argmax_nan(0)], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[1.0, 8.0, f32::NAN, f32::NAN], [4])?;
    /// let mut y = device.zeros([2])?;
    /// ct::launch(largest, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn argmax_nan(self, axes: impl Axes) -> Tile<i32, R> {
        let axes = List(axes.axes(R));
        let value = self.reduce_max_nan(axes.clone());
        first(self.eq(value) | self.ne(self), axes.0)
    }

    /// The index of the smallest element along axes, or of the first NaN if there is one.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([3.0f32, f32::NAN]).argmin_nan(0).eq(1));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn argmin_nan(self, axes: impl Axes) -> Tile<i32, R> {
        let axes = List(axes.axes(R));
        let value = self.reduce_min_nan(axes.clone());
        first(self.eq(value) | self.ne(self), axes.0)
    }
}
