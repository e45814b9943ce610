//! Views of arrays: other shapes and parts of the same memory, shared or unique.
//!
//! A [`DeviceView`] corresponds to `&[T]` of a `Vec<T>`, a [`DeviceViewMut`] to `&mut [T]`. The
//! borrow checker excludes launches that write elements in use elsewhere.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::memory::Memory;
use super::pack_host;
use super::strided::Strided;
use super::transfer::{check_packed, download, span_bytes, upload};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::runtime::device::device::Device;
use crate::runtime::graph::recorder;

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
    element: PhantomData<T>,
}

/// A unique view of (a part of) a `DeviceArray`. In a kernel: `ArrayMut`.
///
/// ```
/// let mut a = cutlet::Device::cpu().zeros::<i32, 2>([2, 3])?;
/// a.view_mut().slice(1, 1..2)?.copy_from(&[7, 8])?;
/// assert_eq!(a.to_vec()?, [0, 7, 0, 0, 8, 0]);
/// # Ok::<(), cutlet::Error>(())
/// ```
pub struct DeviceViewMut<'a, T, const R: usize> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) layout: Strided<R>,
    element: PhantomData<T>,
}

impl<T, const R: usize> Clone for DeviceView<'_, T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const R: usize> Copy for DeviceView<'_, T, R> {}

/// Methods of both kinds of view; `$name` is rebuilt around the same memory.
macro_rules! view_methods {
    ($name:ident) => {
        impl<'a, T: Element, const R: usize> $name<'a, T, R> {
            /// Returns the device of the view.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// assert_eq!(ct::Device::cpu().full([3], 1.5f32)?.view().device(), ct::Device::cpu());
            /// # Ok::<(), ct::Error>(())
            /// ```
            pub fn device(&self) -> Device {
                self.memory.device()
            }

            pub(crate) fn layout(&self) -> Strided<R> {
                self.layout
            }

            /// Returns the extents in elements.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// assert_eq!(ct::Device::cpu().zeros::<f32, 2>([2, 3])?.slice(1, 1..)?.shape(), [2, 2]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            pub fn shape(&self) -> [usize; R] {
                self.layout.shape
            }

            /// Returns the strides in elements.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// assert_eq!(ct::Device::cpu().zeros::<f32, 2>([2, 3])?.transpose()?.strides(), [1, 3]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            pub fn strides(&self) -> [usize; R] {
                self.layout.strides
            }

            /// Returns the number of elements.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// assert_eq!(ct::Device::cpu().zeros::<f32, 2>([2, 3])?.slice(1, 1..)?.len(), 4);
            /// # Ok::<(), ct::Error>(())
            /// ```
            pub fn len(&self) -> usize {
                self.layout.len()
            }

            /// Returns true if the view has no elements.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// assert!(ct::Device::cpu().zeros::<f32, 1>([3])?.slice(0, 3..)?.is_empty());
            /// # Ok::<(), ct::Error>(())
            /// ```
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns the address of the first element on its device.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// let x = ct::Device::cpu().zeros::<f32, 1>([4])?;
            /// assert_eq!(x.slice(0, 1..)?.address(), x.address() + 4);
            /// # Ok::<(), ct::Error>(())
            /// ```
            pub fn address(&self) -> u64 {
                self.memory.address() + pack_host::byte_offset::<T>(self.layout.offset) as u64
            }

            /// Returns the elements in row-major order, after the work that writes them.
            ///
            /// # Errors
            /// [`Error::Driver`] if this work failed, [`Error::Argument`] if the host has not
            /// enough memory.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// let x = ct::Device::cpu().array(&[1, 2, 3, 4], [2, 2])?;
            /// assert_eq!(x.slice(1, ..1)?.to_vec()?, [1, 3]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            pub fn to_vec(&self) -> Result<Vec<T>> {
                download(self.memory, &self.layout)
            }

            /// Returns the part whose index along `axis` is in `range`.
            ///
            /// # Errors
            /// [`Error::Argument`] if the axis does not exist or the range is outside of its
            /// extent. For elements of four bits, also if the part begins in the middle of a byte.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// let x = ct::Device::cpu().array(&[1, 2, 3, 4], [4])?;
            /// assert_eq!(x.view().slice(0, 1..)?.slice(0, ..2)?.to_vec()?, [2, 3]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            pub fn slice(self, axis: usize, range: impl RangeBounds<usize>) -> Result<Self> {
                let layout = self.layout.slice(axis, range)?;
                self.with(layout)
            }

            /// Returns every `step`-th element along `axis`, beginning with the first one.
            ///
            /// # Errors
            /// [`Error::Argument`] if the axis does not exist or `step` is 0. For elements of four
            /// bits, also along the axis of stride 1.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// let x = ct::Device::cpu().array(&[1, 2, 3, 4], [4])?;
            /// assert_eq!(x.slice(0, 1..)?.step(0, 2)?.to_vec()?, [2, 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            pub fn step(self, axis: usize, step: usize) -> Result<Self> {
                let layout = self.layout.step(axis, step)?;
                self.with(layout)
            }

            /// Returns the view with its axes in another order: axis `d` of the result is axis
            /// `order[d]`.
            ///
            /// # Errors
            /// [`Error::Argument`] if `order` is no permutation of the axes.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// let x = ct::Device::cpu().array(&[1, 2, 3, 4], [2, 2])?;
            /// assert_eq!(x.view().permute([1, 0])?.to_vec()?, [1, 3, 2, 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            pub fn permute(self, order: [usize; R]) -> Result<Self> {
                let layout = self.layout.permute(order)?;
                self.with(layout)
            }

            /// Returns the elements in row-major order with another shape.
            ///
            /// # Errors
            /// [`Error::Argument`] if the shape has another number of elements, or if strides
            /// cannot express it without a copy.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// let x = ct::Device::cpu().array(&[1, 2, 3, 4], [4])?;
            /// assert_eq!(x.slice(0, 2..)?.reshape([2, 1])?.shape(), [2, 1]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            pub fn reshape<const Q: usize>(self, shape: [usize; Q]) -> Result<$name<'a, T, Q>> {
                let layout = self.layout.reshape(shape)?;
                self.with(layout)
            }

            #[track_caller]
            fn with<const Q: usize>(self, layout: Strided<Q>) -> Result<$name<'a, T, Q>> {
                check_packed::<T, Q>(&layout)?;
                Ok($name::new(self.memory, layout))
            }
        }

        impl<T: Element> $name<'_, T, 2> {
            /// Returns the view with its two axes exchanged.
            ///
            /// # Errors
            /// None at present.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// let x = ct::Device::cpu().array(&[1, 2, 3, 4], [2, 2])?;
            /// assert_eq!(x.view().transpose()?.transpose()?.to_vec()?, [1, 2, 3, 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            pub fn transpose(self) -> Result<Self> {
                self.permute([1, 0])
            }
        }

        impl<T: Element, const R: usize> fmt::Debug for $name<'_, T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (name, shape, strides) = (stringify!($name), self.shape(), self.strides());
                write!(f, "{name}<{}>({shape:?}, strides {strides:?}, on {})", T::NAME, self.device())
            }
        }
    };
}

view_methods!(DeviceView);
view_methods!(DeviceViewMut);

impl<'a, T: Element, const R: usize> DeviceView<'a, T, R> {
    pub(crate) fn new(memory: &'a Memory, layout: Strided<R>) -> Self {
        DeviceView { memory, layout, element: PhantomData }
    }
}

impl<'a, T: Element, const R: usize> DeviceViewMut<'a, T, R> {
    pub(crate) fn new(memory: &'a mut Memory, layout: Strided<R>) -> Self {
        DeviceViewMut { memory, layout, element: PhantomData }
    }

    /// Returns the same view for reading.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().array(&[1, 2], [2])?;
    /// assert_eq!(x.view_mut().as_view().to_vec()?, [1, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn as_view(&self) -> DeviceView<'_, T, R> {
        DeviceView::new(self.memory, self.layout)
    }

    /// Returns the same view for a shorter time, for a method that consumes it.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().zeros([2])?;
    /// let mut all = x.view_mut();
    /// all.reborrow().slice(0, ..1)?.copy_from(&[1])?;
    /// all.reborrow().slice(0, 1..)?.copy_from(&[2])?;
    /// assert_eq!(x.to_vec()?, [1, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn reborrow(&mut self) -> DeviceViewMut<'_, T, R> {
        DeviceViewMut::new(self.memory, self.layout)
    }

    /// Overwrites all elements with host values in row-major order. The host values may be changed
    /// after the return.
    ///
    /// # Errors
    /// [`Error::Argument`] for another number of values, [`Error::Driver`] if earlier work failed.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().zeros([2, 2])?;
    /// x.view_mut().slice(1, 1..)?.copy_from(&[1, 2])?;
    /// assert_eq!(x.to_vec()?, [0, 1, 0, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn copy_from(&mut self, host: &[T]) -> Result<()> {
        if host.len() != self.len() {
            return Err(Error::argument(format!(
                "{} values for an array of shape {:?}, which has {} elements",
                host.len(),
                self.shape(),
                self.len()
            )));
        }
        upload(self.memory, &self.layout, host)
    }

    /// Overwrites all elements with those of an array of the same shape, on any device.
    ///
    /// # Errors
    /// [`Error::Argument`] for another shape, [`Error::Driver`] if earlier work failed.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2], [2, 1])?, ct::Device::cpu().zeros([2, 2])?);
    /// y.view_mut().slice(1, ..1)?.copy_from_array(&x.view())?;
    /// assert_eq!(y.to_vec()?, [1, 0, 2, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn copy_from_array(&mut self, other: &DeviceView<'_, T, R>) -> Result<()> {
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
            return self.memory.copy_from(to, other.memory, from, bytes);
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
