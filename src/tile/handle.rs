//! [`Tile`] and [`Scalar`]: values of a trace with their element type and rank as Rust types.

use std::marker::PhantomData;

use super::trace::{ValueHandle, record};
use crate::element::Element;
use crate::sealed::Sealed;

/// A block of `R` dimensions of elements of type `T`, held by one tile block.
///
/// A tile is an immutable value, recorded during tracing; every operation returns a new one. Each
/// extent is the sum of one to three powers of two (8, 96, 160, 192, 576, but not 15) and is known
/// during tracing ([`Tile::shape`]). A tile has at most 2^24 elements. `Copy`: a copy records no
/// operation.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let x: Tile<f32, 2> = ct::full([2, 4], 1.5f32);
/// ct::assert!((x * x + 0.75).sum(1).eq(12.0));
/// # });
/// ```
pub struct Tile<T, const R: usize> {
    raw: ValueHandle,
    element: PhantomData<T>,
}

/// A single value of type `T` inside a kernel: a block index, an extent, a loop counter.
///
/// Scalars combine with scalars, tiles and host literals, and broadcast to the shape of any tile
/// operand.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let (row, n): (Scalar<i32>, Scalar<i32>) = (ct::bid(0), ct::num_blocks(0));
/// ct::assert!((row * 2 + n).eq(1));
/// # });
/// ```
pub struct Scalar<T> {
    raw: ValueHandle,
    element: PhantomData<T>,
}

impl<T, const R: usize> Clone for Tile<T, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const R: usize> Copy for Tile<T, R> {}

impl<T> Clone for Scalar<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Scalar<T> {}

/// [`Tile`] or [`Scalar`]: the operands of elementwise operations.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn halved<X: TileLike<Elem = f32> + std::ops::Mul<f32, Output = X>>(x: X) -> X {
///     x * 0.5
/// }
/// ct::assert!(halved(ct::astile([2.0f32, 4.0])).eq(ct::astile([1.0, 2.0])) & halved(ct::scalar(2.0f32)).eq(1.0));
/// # });
/// ```
pub trait TileLike: Copy + Handle {
    /// Element type.
    type Elem: Element;
    /// Number of dimensions; 0 for a scalar.
    const RANK: usize;
    /// The same handle type with another element type.
    type With<U: Element>: TileLike<Elem = U>;
}

/// Conversion between typed handles and recorded values.
pub trait Handle: Sealed + Sized {
    #[doc(hidden)]
    fn raw(self) -> ValueHandle;
    #[doc(hidden)]
    fn from_raw(raw: ValueHandle) -> Self;
}

impl<T, const R: usize> Sealed for Tile<T, R> {}
impl<T> Sealed for Scalar<T> {}

impl<T: Element, const R: usize> TileLike for Tile<T, R> {
    type Elem = T;
    const RANK: usize = R;
    type With<U: Element> = Tile<U, R>;
}

impl<T: Element> TileLike for Scalar<T> {
    type Elem = T;
    const RANK: usize = 0;
    type With<U: Element> = Scalar<U>;
}

impl<T, const R: usize> Handle for Tile<T, R> {
    fn raw(self) -> ValueHandle {
        self.raw
    }
    fn from_raw(raw: ValueHandle) -> Self {
        Tile { raw, element: PhantomData }
    }
}

impl<T> Handle for Scalar<T> {
    fn raw(self) -> ValueHandle {
        self.raw
    }
    fn from_raw(raw: ValueHandle) -> Self {
        Scalar { raw, element: PhantomData }
    }
}

impl<T: Element, const R: usize> Tile<T, R> {
    /// Returns the extents, in elements: host numbers, known during tracing.
    ///
    /// # Panics
    /// Outside of a kernel.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let [rows, columns] = ct::zeros::<f32, 2>([2, 4]).shape(); // ordinary numbers
    /// assert_eq!((rows, columns), (2, 4));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn shape(self) -> [usize; R] {
        let shape = record(|t| t.shape(self.raw));
        std::array::from_fn(|d| shape[d] as usize)
    }

    /// Returns the number of elements.
    ///
    /// # Panics
    /// Outside of a kernel.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// assert_eq!(ct::zeros::<f32, 2>([2, 4]).len(), 8);
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn len(self) -> usize {
        self.shape().iter().product()
    }

    /// Returns false: a tile has at least one element.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// assert!(!ct::zeros::<f32, 1>([1]).is_empty());
    /// # });
    /// ```
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }
}
