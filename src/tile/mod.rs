//! What a kernel author holds: [`Tile`], [`Scalar`], [`Array`], [`ArrayMut`]; and the trace that they record into.
//!
//! Each of them is a handle of a value in the trace of this thread, with its element type and rank as
//! Rust types. What can be done with them is in [`crate::ops`]. Records into `ir`, knows no back end.

mod array;
mod broadcast;
mod context;
mod declare;
mod tracer;

use std::marker::PhantomData;

pub(crate) use array::ArrayHandle;
pub use array::{Array, ArrayMut};
pub(crate) use broadcast::{Arg, ElementwiseBody};
pub use context::is_tracing;
pub(crate) use context::{Place, Raw, Region, Source, Trace, here, record};
pub use tracer::Tracer;
pub(crate) use tracer::trace_into_module;

use crate::element::Element;

/// A tile: a block of `R` dimensions of elements of type `T`, held by one tile block.
///
/// A tile is an immutable value, recorded while the kernel is traced; every operation gives a new one.
/// Its extents are powers of two, at most 2^24 elements in all, and known while tracing
/// ([`Tile::shape`]). `Copy`: handing it on costs nothing.
#[derive(Debug)]
pub struct Tile<T, const R: usize> {
    raw: Raw,
    element: PhantomData<T>,
}

/// A single value of type `T` inside a kernel: a block index, an extent, a loop counter.
///
/// Works in arithmetic with scalars, tiles and host literals, and wherever a tile is wanted by
/// broadcasting.
#[derive(Debug)]
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

pub(crate) use sealed::Handle;

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
    pub fn shape(self) -> [usize; R] {
        let shape = record(|t| t.shape(self.raw));
        std::array::from_fn(|d| shape[d] as usize)
    }

    /// The number of elements.
    ///
    /// # Panics
    /// Outside of a kernel.
    #[track_caller]
    pub fn len(self) -> usize {
        self.shape().iter().product()
    }

    /// False: a tile has at least one element.
    pub fn is_empty(self) -> bool {
        false
    }
}
