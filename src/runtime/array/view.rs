//! Views of arrays: other shapes and parts of the same memory, shared or unique.
//!
//! A [`DeviceView`] corresponds to `&[T]` of a `Vec<T>`, a [`DeviceViewMut`] to `&mut [T]`. The
//! borrow checker excludes launches that write elements in use elsewhere.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::memory::Memory;
use super::pack_host;
use super::stream_order::Access;
use super::strided::Strided;
use super::transfer::{check_packed, download, span_bytes, upload};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::runtime::device::device::Device;
use crate::runtime::graph::recorder;
use crate::sealed::Sealed;

/// A shared view of (a part of) a `DeviceArray`. In a kernel: `Array`, loads only.
///
/// ```
/// let a = cutlet::Device::cpu().array(&[0, 1, 2, 3, 4, 5, 6, 7], [2, 4])?;
/// let odd = a.slice(1, 1..)?.step(1, 2)?;
/// assert_eq!((odd.shape(), odd.strides()), ([2, 2], [4, 2]));
/// assert_eq!(odd.to_vec()?, [1, 3, 5, 7]);
/// # Ok::<(), cutlet::Error>(())
/// ```
pub struct DeviceView<'a, T, const R: usize> {
    pub(crate) memory: &'a Memory,
    pub(crate) layout: Strided<R>,
    /// True if other elements of the memory may be written at the same time.
    pub(crate) part: bool,
    element: PhantomData<T>,
}

/// A unique view of (a part of) a `DeviceArray`. In a kernel: `ArrayMut`.
///
/// [`DeviceViewMut::split_at_mut`] returns two disjoint parts, both of which one launch can write.
///
/// ```
/// let mut a = cutlet::Device::cpu().zeros::<i32, 2>([2, 3])?;
/// a.view_mut().slice(1, 1..2)?.copy_from(&[7, 8])?;
/// assert_eq!(a.to_vec()?, [0, 7, 0, 0, 8, 0]);
/// # Ok::<(), cutlet::Error>(())
/// ```
pub struct DeviceViewMut<'a, T, const R: usize> {
    /// Only the elements of the layout are borrowed uniquely if `part`, else all bytes.
    pub(crate) memory: &'a Memory,
    pub(crate) layout: Strided<R>,
    /// True if other elements of the memory may be written at the same time.
    pub(crate) part: bool,
    element: PhantomData<&'a mut T>,
}

impl<T, const R: usize> Sealed for DeviceView<'_, T, R> {}
impl<T, const R: usize> Sealed for DeviceViewMut<'_, T, R> {}

impl<T, const R: usize> Clone for DeviceView<'_, T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const R: usize> Copy for DeviceView<'_, T, R> {}

/// An example of a method: the call and its result for an array or view of four elements, or all
/// lines.
macro_rules! example {
    ($view:literal $call:literal $result:literal) => {
        example!(
            "let device = ct::Device::cpu();\nassert_eq!(device.array(&[1, 2, 3, 4], [2, 2])?",
            $view, $call, ", ", $result, ");"
        )
    };
    ($($part:expr),+) => {
        concat!("```\n# use cutlet as ct;\n# use cutlet::prelude::*;\n", $($part),+, "\n# Ok::<(), ct::Error>(())\n```")
    };
}
pub(super) use example;

/// Methods of arrays and both kinds of view. The operands are:
///
/// * the type and its lifetime, and the type of its parts;
/// * `self` and its form as a receiver, and the view that it is;
/// * a flag of parts, and the expression in the examples, from an array.
macro_rules! array_methods {
    ($name:ident[$($life:tt)*], $part:ident<$part_life:lifetime>; $this:ident [$($borrow:tt)?] $view:expr, $is_part:expr; $make:literal) => {
        impl<$($life)* T: Element, const R: usize> $name<$($life)* T, R> {
            /// Returns the device of the array.
            ///
            #[doc = example!($make ".device()" "device")]
            pub fn device(&self) -> Device {
                self.memory.device()
            }

            /// Returns the extents in elements.
            ///
            #[doc = example!($make ".shape()" "[2, 2]")]
            pub fn shape(&self) -> [usize; R] {
                self.layout.shape
            }

            /// Returns the strides in elements.
            ///
            #[doc = example!($make ".strides()" "[2, 1]")]
            pub fn strides(&self) -> [usize; R] {
                self.layout.strides
            }

            /// Returns the number of elements.
            ///
            #[doc = example!($make ".len()" "4")]
            pub fn len(&self) -> usize {
                self.layout.len()
            }

            /// Returns true if there are no elements.
            ///
            #[doc = example!($make ".is_empty()" "false")]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns the address of the first element on its device. Work of other programs at
            /// this address is not ordered with launches, unless it is on the same stream.
            ///
            #[doc = example!($make ".address() % 16" "0")]
            pub fn address(&self) -> u64 {
                self.memory.expose();
                self.memory.address() + pack_host::byte_offset::<T>(self.layout.offset) as u64
            }

            /// Returns the elements in row-major order, after the work that writes them.
            ///
            /// # Errors
            /// [`Error::Driver`] if this work failed, [`Error::Argument`] if the host has not
            /// enough memory.
            ///
            #[doc = example!($make ".to_vec()?" "[1, 2, 3, 4]")]
            #[track_caller]
            pub fn to_vec(&$this) -> Result<Vec<T>> {
                download(&$this.memory, &$this.layout, $is_part)
            }

            /// Returns the part whose index along `axis` is in `range`.
            ///
            /// # Errors
            /// [`Error::Argument`] if the axis does not exist or the range is outside of its
            /// extent. For elements of four bits, also if the part begins in the middle of a byte.
            ///
            #[doc = example!($make ".slice(1, 1..)?.to_vec()?" "[2, 4]")]
            #[track_caller]
            pub fn slice(
                $($borrow)? $this,
                axis: usize,
                range: impl RangeBounds<usize>,
            ) -> Result<$part<$part_life, T, R>> {
                let view = $view;
                let layout = view.layout.slice(axis, range)?;
                view.with(layout)
            }

            /// Returns every `step`-th element along `axis`, beginning with the first one.
            ///
            /// # Errors
            /// [`Error::Argument`] if the axis does not exist or `step` is 0. For elements of four
            /// bits, also along the axis of stride 1.
            ///
            #[doc = example!($make ".step(1, 2)?.to_vec()?" "[1, 3]")]
            #[track_caller]
            pub fn step($($borrow)? $this, axis: usize, step: usize) -> Result<$part<$part_life, T, R>> {
                let view = $view;
                let layout = view.layout.step(axis, step)?;
                view.with(layout)
            }

            /// Returns a view with the axes in another order: axis `d` of the result is axis
            /// `order[d]`.
            ///
            /// # Errors
            /// [`Error::Argument`] if `order` is no permutation of the axes.
            ///
            #[doc = example!($make ".permute([1, 0])?.to_vec()?" "[1, 3, 2, 4]")]
            #[track_caller]
            pub fn permute($($borrow)? $this, order: [usize; R]) -> Result<$part<$part_life, T, R>> {
                let view = $view;
                let layout = view.layout.permute(order)?;
                view.with(layout)
            }

            /// Returns the elements in row-major order with another shape.
            ///
            /// # Errors
            /// [`Error::Argument`] if the shape has another number of elements, or if strides
            /// cannot express it without a copy. They can for an array that a [`Device`] made.
            ///
            #[doc = example!($make ".reshape([4])?.to_vec()?" "[1, 2, 3, 4]")]
            #[track_caller]
            pub fn reshape<const Q: usize>($($borrow)? $this, shape: [usize; Q]) -> Result<$part<$part_life, T, Q>> {
                let view = $view;
                let layout = view.layout.reshape(shape)?;
                view.with(layout)
            }
        }

        impl<$($life)* T: Element> $name<$($life)* T, 2> {
            /// Returns a view with the two axes exchanged.
            ///
            /// # Errors
            /// None at present.
            ///
            #[doc = example!($make ".transpose()?.to_vec()?" "[1, 3, 2, 4]")]
            #[track_caller]
            pub fn transpose($($borrow)? $this) -> Result<$part<$part_life, T, 2>> {
                $this.permute([1, 0])
            }
        }
    };
}
pub(super) use array_methods;

array_methods! { DeviceView['a,], DeviceView<'a>; self [] self, self.part; ".view()" }
array_methods! { DeviceViewMut['a,], DeviceViewMut<'a>; self [] self, self.part; ".view_mut()" }

/// Methods of arrays and views that overwrite the elements: the type, `self`, and the view that it
/// is.
macro_rules! copy_methods {
    ($name:ident[$($life:tt)*], $this:ident $view:expr; $make:literal) => {
        impl<$($life)* T: Element, const R: usize> $name<$($life)* T, R> {
            /// Overwrites all elements with host values in row-major order. The host values may be
            /// changed after the return.
            ///
            /// # Errors
            /// [`Error::Argument`] for another number of values, [`Error::Driver`] if earlier work
            /// failed.
            ///
            #[doc = example!(
                "let mut x = ct::Device::cpu().zeros([3])?;\nx", $make, ".copy_from(&[1, 2, 3])?;\nassert!(x", $make,
                ".copy_from(&[1, 2]).is_err());\nassert_eq!(x.to_vec()?, [1, 2, 3]);"
            )]
            #[track_caller]
            pub fn copy_from(&mut $this, host: &[T]) -> Result<()> {
                $view.upload(host)
            }

            /// Overwrites all elements with those of an array of the same shape, on any device.
            ///
            /// # Errors
            /// [`Error::Argument`] for another shape, [`Error::Driver`] if earlier work failed.
            ///
            #[doc = example!(
                "let (x, mut y) = (ct::Device::cpu().array(&[1, 2], [2])?, ct::Device::cpu().zeros([2])?);\ny", $make,
                ".copy_from_array(&x.view())?;\nassert_eq!(y.to_vec()?, [1, 2]);"
            )]
            #[track_caller]
            pub fn copy_from_array(&mut $this, other: &DeviceView<'_, T, R>) -> Result<()> {
                $view.copy(other)
            }
        }
    };
}
pub(super) use copy_methods;

copy_methods! { DeviceViewMut['a,], self self; ".view_mut()" }

/// The construction and the text of both kinds of view.
macro_rules! views {
    ($($name:ident)+) => {$(
        impl<'a, T: Element, const R: usize> $name<'a, T, R> {
            pub(crate) fn layout(&self) -> Strided<R> {
                self.layout
            }

            /// Returns the same view, whose transfers access its own elements only.
            #[cfg(any(feature = "ndarray", feature = "safetensors"))]
            #[cfg_attr(not(feature = "ndarray"), allow(dead_code))]
            pub(crate) fn into_part(self) -> Self {
                $name { part: true, ..self }
            }

            /// Returns true if other elements of the memory may be written at the same time.
            pub(crate) fn is_part(&self) -> bool {
                self.part
            }

            #[track_caller]
            pub(super) fn with<const Q: usize>(self, layout: Strided<Q>) -> Result<$name<'a, T, Q>> {
                check_packed::<T, Q>(&layout)?;
                Ok($name { memory: self.memory, layout, part: self.part, element: PhantomData })
            }
        }

        impl<T: Element, const R: usize> fmt::Debug for $name<'_, T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (name, shape, strides) = (stringify!($name), self.shape(), self.strides());
                write!(f, "{name}<{}>({shape:?}, strides {strides:?}, on {})", T::NAME, self.device())
            }
        }
    )+};
}
views!(DeviceView DeviceViewMut);

impl<'a, T: Element, const R: usize> DeviceView<'a, T, R> {
    pub(crate) fn new(memory: &'a Memory, layout: Strided<R>) -> Self {
        DeviceView { memory, layout, part: false, element: PhantomData }
    }

    /// Returns the part with the indices below `at` along `axis`, and the part from `at` on.
    ///
    /// # Errors
    /// [`Error::Argument`] if the axis does not exist or `at` is greater than its extent. For
    /// elements of four bits, also if the second part begins in the middle of a byte.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::Device::cpu().array(&[1, 2, 3, 4], [2, 2])?;
    /// let (left, right) = x.view().split_at(1, 1)?;
    /// assert_eq!((left.to_vec()?, right.to_vec()?), (vec![1, 3], vec![2, 4]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn split_at(self, axis: usize, at: usize) -> Result<(DeviceView<'a, T, R>, DeviceView<'a, T, R>)> {
        let (low, high) = self.layout.split_at(axis, at)?;
        Ok((self.with(low)?, self.with(high)?))
    }
}

impl<'a, T: Element, const R: usize> DeviceViewMut<'a, T, R> {
    pub(crate) fn new(memory: &'a mut Memory, layout: Strided<R>) -> Self {
        DeviceViewMut { memory, layout, part: false, element: PhantomData }
    }

    /// Returns a unique view of the elements of a view.
    ///
    /// # Safety
    /// During the life of the result, nothing else uses the memory.
    #[cfg(feature = "cudarc")]
    pub(crate) unsafe fn assume_unique(view: DeviceView<'a, T, R>) -> Self {
        DeviceViewMut { memory: view.memory, layout: view.layout, part: view.part, element: PhantomData }
    }

    fn access(&self) -> Access {
        Access::of(true, self.part)
    }

    /// Returns two disjoint parts, both for reading and writing: the part with the indices below
    /// `at` along `axis`, and the part from `at` on.
    ///
    /// One launch can write both. Launches on different streams that use parts of one array are
    /// executed one after the other. A [`Graph`](crate::Graph) holds whole arrays. Its closure may
    /// split them.
    ///
    /// # Errors
    /// [`Error::Argument`] if the axis does not exist or `at` is greater than its extent. For
    /// elements of four bits, also if the second part begins in the middle of a byte.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn halves(x: Array<f32, 1>, low: ArrayMut<f32, 1>, high: ArrayMut<f32, 1>) {
    ///     let (i, tile) = (ct::bid(0), [16]);
    ///     low.store(i, x.load(i, tile) + 1.0);
    ///     high.store(i, x.load(i, tile) * 2.0);
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.full([50], 3.0f32)?, device.zeros([2, 100])?);
    /// let (low, high) = y.view_mut().reshape([200])?.slice(0, 50..150)?.split_at_mut(0, 50)?;
    /// ct::launch(halves, 4, (&x, low, high))?;
    /// assert_eq!(y.to_vec()?, [[0.0; 50], [4.0; 50], [6.0; 50], [0.0; 50]].concat());
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn split_at_mut(self, axis: usize, at: usize) -> Result<(DeviceViewMut<'a, T, R>, DeviceViewMut<'a, T, R>)> {
        let (low, high) = self.layout.split_at(axis, at)?;
        check_packed::<T, R>(&low)?;
        check_packed::<T, R>(&high)?;
        self.memory.split();
        // The parts have no common element: strides of an array never make elements overlap.
        let part = |layout| DeviceViewMut { memory: self.memory, layout, part: true, element: PhantomData };
        Ok((part(low), part(high)))
    }

    /// Returns the same view for reading.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().array(&[1, 2], [2])?;
    /// assert_eq!(x.view_mut().as_view().to_vec()?, [1, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn as_view(&self) -> DeviceView<'_, T, R> {
        DeviceView { memory: self.memory, layout: self.layout, part: self.part, element: PhantomData }
    }

    /// Returns the same view for a shorter time, for a method that consumes it.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([2])?;
    /// let mut all = x.view_mut();
    /// all.reborrow().slice(0, ..1)?.copy_from(&[1])?;
    /// all.reborrow().slice(0, 1..)?.copy_from(&[2])?;
    /// assert_eq!(x.to_vec()?, [1, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn reborrow(&mut self) -> DeviceViewMut<'_, T, R> {
        DeviceViewMut { memory: self.memory, layout: self.layout, part: self.part, element: PhantomData }
    }

    #[track_caller]
    pub(super) fn upload(&mut self, host: &[T]) -> Result<()> {
        if host.len() != self.len() {
            return Err(Error::argument(format!(
                "{} values for an array of shape {:?}, which has {} elements",
                host.len(),
                self.shape(),
                self.len()
            )));
        }
        // SAFETY: the view borrows its elements uniquely, and all of the memory unless it is a
        // part.
        unsafe { upload(self.memory, &self.layout, host, self.access()) }
    }

    #[track_caller]
    pub(super) fn copy(&mut self, other: &DeviceView<'_, T, R>) -> Result<()> {
        if self.shape() != other.shape() {
            return Err(Error::argument(format!(
                "an array of shape {:?} cannot be copied into one of shape {:?}",
                other.shape(),
                self.shape()
            )));
        }
        if self.layout.is_contiguous() && other.layout.is_contiguous() && !pack_host::is_packed::<T>() {
            let (to, from) = (self.layout.offset, other.layout.offset);
            let bytes = span_bytes::<T, R>(&self.layout);
            let (to, from) = (pack_host::byte_offset::<T>(to), pack_host::byte_offset::<T>(from));
            // SAFETY: the view borrows its elements uniquely, and all of the memory unless it is a
            // part. The elements of `other` are therefore disjoint from them.
            return unsafe { self.memory.copy_from(to, other.memory, from, bytes, self.access()) };
        }
        if recorder::is_on() {
            let uses = [self.memory.used(true), other.memory.used(false)];
            if recorder::claim(&uses, || "a copy between arrays".to_owned()).is_some() {
                let message = "a copy of or into a view with gaps is no work of a graph: launch a kernel that copies, or copy \
                               between views without gaps";
                return Err(Error::argument(message));
            }
        }
        self.copy_from(&other.to_vec()?)
    }
}
