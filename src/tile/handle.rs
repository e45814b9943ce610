//! [`Tile`] and [`Scalar`]: values of a trace with their element type and rank as Rust types.

use std::marker::PhantomData;

use super::context::{Raw, record};
use crate::element::Element;

use self::sealed::Handle;

/// A tile: a block of `R` dimensions of elements of type `T`, held by one tile block.
///
/// A tile is an immutable value, recorded while the kernel is traced; every operation gives a new one.
/// Its extents are powers of two, at most 2^24 elements in all, and known while tracing
/// ([`Tile::shape`]). `Copy`: handing it on costs nothing.
pub struct Tile<T, const R: usize> {
    raw: Raw,
    element: PhantomData<T>,
}

/// A single value of type `T` inside a kernel: a block index, an extent, a loop counter.
///
/// Works in arithmetic with scalars, tiles and host literals, and wherever a tile is wanted by
/// broadcasting.
pub struct Scalar<T> {
    raw: Raw,
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

/// [`Tile`] or [`Scalar`]: what elementwise operations work on.
pub trait TileLike: Copy + sealed::Handle {
    /// Element type.
    type Elem: Element;
    /// Number of dimensions; 0 for a scalar.
    const RANK: usize;
    /// The same form with another element type.
    type With<U: Element>: TileLike<Elem = U>;
}

pub(crate) mod sealed {
    use super::Raw;

    /// Conversion between typed handles and recorded values.
    pub trait Handle: Sized {
        #[doc(hidden)]
        fn raw(self) -> Raw;
        #[doc(hidden)]
        fn from_raw(raw: Raw) -> Self;
    }
}

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
    fn raw(self) -> Raw {
        self.raw
    }
    fn from_raw(raw: Raw) -> Self {
        Tile { raw, element: PhantomData }
    }
}

impl<T> Handle for Scalar<T> {
    fn raw(self) -> Raw {
        self.raw
    }
    fn from_raw(raw: Raw) -> Self {
        Scalar { raw, element: PhantomData }
    }
}

impl<T: Element, const R: usize> Tile<T, R> {
    /// The extents, in elements. Known while tracing: ordinary host numbers.
    ///
    /// # Panics
    /// Outside of a kernel.
    #[track_caller]
    #[must_use]
    pub fn shape(self) -> [usize; R] {
        let shape = record(|t| t.shape(self.raw));
        std::array::from_fn(|d| shape[d] as usize)
    }

    /// The number of elements.
    ///
    /// # Panics
    /// Outside of a kernel.
    #[track_caller]
    #[must_use]
    pub fn len(self) -> usize {
        self.shape().iter().product()
    }

    /// False: a tile has at least one element.
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }
}
