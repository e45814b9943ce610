//! Methods of expressions over whole arrays.

use super::combine::{By, Larger, Product, Smaller, Sum};
use super::fusion::{FusedExpr, Map, MapWith, Zip, surveyed};
use super::reduce::{reduce, reduce_all};
use super::scan::scan;
use super::store::{store, to_array};
use crate::element::{ByteSized, Element, Number};
use crate::error::{Error, Result};
use crate::kernel::IntoKernelArg;
use crate::ops::Axis;
use crate::runtime::{DeviceArray, DeviceView, DeviceViewMut};
use crate::tile::Scalar;

/// Expressions over whole arrays: a chain of functions of elements is compiled into one kernel.
///
/// * An expression begins with an array or view, [`DeviceArray::expr`]. `map` and `zip` add
///   functions.
/// * Methods that return an array or a number execute it, on the device of the arrays and its
///   default stream.
/// * Arrays may have any strides. Expressions that are zipped have the same shape.
/// * Functions operate on scalars of the kernel by elementwise operations, as those of
///   [`Tile::map`](crate::Tile::map).
/// * Functions without captures are compiled once. [`map_with`](ArrayExpr::map_with) passes numbers
///   that change between launches.
///
/// A reduced axis remains, with extent 1. The functions of reductions and scans must be associative
/// and need not commute. Their identity is neutral, and is the result for no elements. The grouping
/// of the elements is unspecified. It depends on types, shapes and strides only, so rounded results
/// are the same in every execution.
///
/// This trait is sealed.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// let device = ct::Device::cpu();
/// let a = device.from_fn([100, 7], |[i, j]| (i + j) as f32)?;
/// let n = device.full([7, 100], 2)?;
/// let y = a.expr().map(|x| x * 2.0).zip(n.transpose()?, |x, n| x + n.cast::<f32>()).to_array()?;
/// assert_eq!(y.to_vec()?[..3], [2.0, 4.0, 6.0]);
/// let lengths = y.expr().map(|x| x * x).sum(1)?;
/// assert_eq!((lengths.shape(), lengths.to_vec()?[0]), ([100, 1], 4.0 + 16.0 + 36.0 + 64.0 + 100.0 + 144.0 + 196.0));
/// assert_eq!(y.expr().max_all()?, 2.0 * 105.0 + 2.0);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Methods that execute the expression return [`Error::Argument`](crate::Error::Argument) for
/// arrays of different shapes or an axis that does not exist; other errors are those of
/// [`crate::launch`].
pub trait ArrayExpr<const R: usize>: FusedExpr<R> {
    /// Applies a function to each element.
    fn map<U: ByteSized, F: Fn(Scalar<Self::Elem>) -> Scalar<U> + Copy>(self, function: F) -> Map<Self, F> {
        Map { of: self, function }
    }

    /// Applies a function to each element and a number, which may differ from launch to launch.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// let a = ct::Device::cpu().full([5], 1.5f32)?;
    /// for factor in [2.0, 3.0] {
    ///     assert_eq!(a.expr().map_with(factor, |x, factor| x * factor).to_array()?.to_vec()?, [1.5 * factor; 5]);
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    fn map_with<N, U, F>(self, number: N, function: F) -> MapWith<Self, N, F>
    where
        N: Element + IntoKernelArg<Scalar<N>>,
        U: ByteSized,
        F: Fn(Scalar<Self::Elem>, Scalar<N>) -> Scalar<U> + Copy,
    {
        MapWith { of: self, number, function }
    }

    /// Applies a function to the elements of two expressions of the same shape.
    fn zip<B, U, F>(self, other: B, function: F) -> Zip<Self, B, F>
    where
        B: FusedExpr<R>,
        U: ByteSized,
        F: Fn(Scalar<Self::Elem>, Scalar<B::Elem>) -> Scalar<U> + Copy,
    {
        Zip { of: (self, other), function }
    }

    /// Stores the elements in a new array.
    #[track_caller]
    fn to_array(self) -> Result<DeviceArray<Self::Elem, R>> {
        to_array(self)
    }

    /// Stores the elements in an array of the same shape.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// let device = ct::Device::cpu();
    /// let (a, mut c) = (device.full([1, 3], 1)?, device.zeros([2, 3])?);
    /// a.expr().map(|x| x + 1).store_into(c.view_mut().slice(0, 1..)?)?;
    /// assert_eq!(c.to_vec()?, [0, 0, 0, 2, 2, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    fn store_into<'a>(self, out: impl Into<DeviceViewMut<'a, Self::Elem, R>>) -> Result<()> {
        store(self, out.into())
    }

    /// Combines the elements along an axis by a function, in their order.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// let bits = ct::Device::cpu().from_fn([3, 40], |[i, j]| (i << (j % 20)) as u32)?;
    /// assert_eq!(bits.expr().reduce(1, 0, |a, b| a | b)?.to_vec()?, [0, 0xfffff, 0x1ffffe]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    fn reduce<F>(self, axis: impl Axis, identity: Self::Elem, combine: F) -> Result<DeviceArray<Self::Elem, R>>
    where
        F: Fn(Scalar<Self::Elem>, Scalar<Self::Elem>) -> Scalar<Self::Elem> + Copy,
    {
        let axis = axis.axis(R);
        reduce(self, axis, identity, By(combine))
    }

    /// Combines all elements by a function, in row-major order.
    #[track_caller]
    fn reduce_all<F>(self, identity: Self::Elem, combine: F) -> Result<Self::Elem>
    where
        F: Fn(Scalar<Self::Elem>, Scalar<Self::Elem>) -> Scalar<Self::Elem> + Copy,
    {
        reduce_all(self, identity, By(combine))
    }

    /// Inclusive scan: combines each element with all preceding elements along an axis by a
    /// function.
    ///
    /// It is one launch, which reads each element once and writes each result once, for any length
    /// of the axis. If there are few lines, several tile blocks share a line and publish the
    /// results of their tiles. This needs 8 bytes for each tile of a line (16 for elements of 8
    /// bytes), which the device sets to zero before.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// let a = ct::Device::cpu().array(&[1, 5, 2, 7, 3], [5])?;
    /// assert_eq!(a.expr().scan(0, i32::MIN, |a, b| a.max(b))?.to_vec()?, [1, 5, 5, 7, 7]);
    /// assert_eq!(a.expr().cumsum(0)?.to_vec()?, [1, 6, 8, 15, 18]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    fn scan<F>(self, axis: impl Axis, identity: Self::Elem, combine: F) -> Result<DeviceArray<Self::Elem, R>>
    where
        F: Fn(Scalar<Self::Elem>, Scalar<Self::Elem>) -> Scalar<Self::Elem> + Copy,
    {
        let axis = axis.axis(R);
        scan(self, axis, identity, By(combine))
    }

    /// Cumulative sum along an axis, in the element type; see [`ArrayExpr::scan`].
    #[track_caller]
    fn cumsum(self, axis: impl Axis) -> Result<DeviceArray<Self::Elem, R>>
    where
        Self::Elem: Number,
    {
        let axis = axis.axis(R);
        scan(self, axis, zero(), Sum)
    }

    /// Cumulative product along an axis, in the element type; see [`ArrayExpr::scan`].
    #[track_caller]
    fn cumprod(self, axis: impl Axis) -> Result<DeviceArray<Self::Elem, R>>
    where
        Self::Elem: Number,
    {
        let axis = axis.axis(R);
        scan(self, axis, Self::Elem::from_f64(1.0), Product)
    }

    /// Sum along an axis, in the element type. If that is too narrow, call
    /// `map(|x| x.cast::<f32>())` before.
    #[track_caller]
    fn sum(self, axis: impl Axis) -> Result<DeviceArray<Self::Elem, R>>
    where
        Self::Elem: Number,
    {
        let axis = axis.axis(R);
        reduce(self, axis, zero(), Sum)
    }

    /// Product along an axis, in the element type.
    #[track_caller]
    fn prod(self, axis: impl Axis) -> Result<DeviceArray<Self::Elem, R>>
    where
        Self::Elem: Number,
    {
        let axis = axis.axis(R);
        reduce(self, axis, Self::Elem::from_f64(1.0), Product)
    }

    /// Maximum along an axis. NaNs are ignored. The maximum of no elements is the least number of
    /// the type.
    #[track_caller]
    fn max(self, axis: impl Axis) -> Result<DeviceArray<Self::Elem, R>>
    where
        Self::Elem: Number,
    {
        let axis = axis.axis(R);
        reduce(self, axis, limits().0, Larger)
    }

    /// Minimum along an axis. NaNs are ignored. The minimum of no elements is the largest number of
    /// the type.
    #[track_caller]
    fn min(self, axis: impl Axis) -> Result<DeviceArray<Self::Elem, R>>
    where
        Self::Elem: Number,
    {
        let axis = axis.axis(R);
        reduce(self, axis, limits().1, Smaller)
    }

    /// Sum of all elements, in the element type.
    #[track_caller]
    fn sum_all(self) -> Result<Self::Elem>
    where
        Self::Elem: Number,
    {
        reduce_all(self, zero(), Sum)
    }

    /// Product of all elements, in the element type.
    #[track_caller]
    fn prod_all(self) -> Result<Self::Elem>
    where
        Self::Elem: Number,
    {
        reduce_all(self, Self::Elem::from_f64(1.0), Product)
    }

    /// Maximum of all elements; see [`ArrayExpr::max`].
    #[track_caller]
    fn max_all(self) -> Result<Self::Elem>
    where
        Self::Elem: Number,
    {
        reduce_all(self, limits().0, Larger)
    }

    /// Minimum of all elements; see [`ArrayExpr::min`].
    #[track_caller]
    fn min_all(self) -> Result<Self::Elem>
    where
        Self::Elem: Number,
    {
        reduce_all(self, limits().1, Smaller)
    }

    /// Logical or along an axis.
    #[track_caller]
    fn any(self, axis: impl Axis) -> Result<DeviceArray<bool, R>>
    where
        Self: FusedExpr<R, Elem = bool>,
    {
        let axis = axis.axis(R);
        reduce(self, axis, false, By(|a: Scalar<bool>, b: Scalar<bool>| a | b))
    }

    /// Logical and along an axis.
    #[track_caller]
    fn all(self, axis: impl Axis) -> Result<DeviceArray<bool, R>>
    where
        Self: FusedExpr<R, Elem = bool>,
    {
        let axis = axis.axis(R);
        reduce(self, axis, true, By(|a: Scalar<bool>, b: Scalar<bool>| a & b))
    }

    /// Number of true elements along an axis.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis of 2^31 elements or more, and the errors of
    /// [`ArrayExpr::sum`].
    #[track_caller]
    fn count(self, axis: impl Axis) -> Result<DeviceArray<i32, R>>
    where
        Self: FusedExpr<R, Elem = bool>,
    {
        let axis = axis.axis(R);
        let shape = surveyed(&self)?.shape();
        if shape.get(axis).is_some_and(|&extent| extent > i32::MAX as usize) {
            let message = format!("`count` along axis {axis} of an array of shape {shape:?}: more than i32 counts");
            let way_out = "`.map(|x: Scalar<bool>| x.cast::<i64>()).sum(axis)` counts in i64";
            return Err(Error::argument(format!("{message}; {way_out}")));
        }
        reduce(self.map(|x: Scalar<bool>| x.cast::<i32>()), axis, 0, Sum)
    }
}

impl<E: FusedExpr<R>, const R: usize> ArrayExpr<R> for E {}

fn zero<T: Number>() -> T {
    T::from_f64(0.0)
}

/// Returns the least and the largest number of a type, including infinities.
fn limits<T: Number>() -> (T, T) {
    (T::from_f64(f64::NEG_INFINITY), T::from_f64(f64::INFINITY))
}

impl<T: ByteSized, const R: usize> DeviceArray<T, R> {
    /// Returns the array as an expression; [`ArrayExpr`] has the methods.
    ///
    /// ```
    /// use cutlet::{ArrayExpr, Device};
    /// let x = Device::cpu().array(&[1.0f32, 2.0], [2])?;
    /// assert_eq!(x.expr().map(|x| x * 2.0).to_array()?.to_vec()?, [2.0, 4.0]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn expr(&self) -> DeviceView<'_, T, R> {
        self.view()
    }
}

impl<'a, T: ByteSized, const R: usize> DeviceView<'a, T, R> {
    /// Returns the view as an expression; [`ArrayExpr`] has the methods.
    ///
    /// ```
    /// use cutlet::{ArrayExpr, Device};
    /// let x = Device::cpu().array(&[1.0f32, 2.0, 3.0], [3])?;
    /// assert_eq!(x.slice(0, 1..)?.expr().map(|x| x * 2.0).to_array()?.to_vec()?, [4.0, 6.0]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[must_use]
    pub fn expr(self) -> DeviceView<'a, T, R> {
        self
    }
}
