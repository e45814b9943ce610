//! Borrowed memory of the host as arrays of the cpu device.

use std::fmt;
use std::marker::PhantomData;

use crate::element::Element;
use crate::error::Result;
use crate::runtime::array::array::DeviceArray;
use crate::runtime::array::view::DeviceView;
#[cfg(feature = "ndarray")]
use crate::runtime::array::view::DeviceViewMut;
use crate::runtime::device::device::Device;

/// Memory of the host that is borrowed for reading: an array of the cpu device without a copy.
pub struct HostArray<'a, T, const R: usize> {
    array: DeviceArray<T, R>,
    borrow: PhantomData<&'a T>,
}

/// Memory of the host that is borrowed uniquely: an array of the cpu device without a copy.
#[cfg(feature = "ndarray")]
pub struct HostArrayMut<'a, T, const R: usize> {
    array: DeviceArray<T, R>,
    borrow: PhantomData<&'a mut T>,
}

impl<T: Element, const R: usize> HostArray<'_, T, R> {
    /// Returns an array of these elements. `strides` are in elements.
    ///
    /// # Safety
    /// The elements are initialized and borrowed for the life of the result. Their address has
    /// exposed provenance.
    #[track_caller]
    pub(super) unsafe fn new(address: u64, shape: [usize; R], strides: [usize; R]) -> Result<Self> {
        // SAFETY: guaranteed by the caller; views do not access the elements between.
        let array = unsafe { Device::cpu().default_stream().foreign_array(address, shape, strides, ()) }?;
        Ok(HostArray { array, borrow: PhantomData })
    }

    /// Returns an array that owns its elements.
    #[cfg(feature = "safetensors")]
    pub(super) fn owned(array: DeviceArray<T, R>) -> Self {
        HostArray { array, borrow: PhantomData }
    }

    /// Returns the view of the elements: an argument of a launch on the cpu device.
    #[must_use]
    pub fn view(&self) -> DeviceView<'_, T, R> {
        self.array.view().into_part()
    }
}

#[cfg(feature = "ndarray")]
impl<T: Element, const R: usize> HostArrayMut<'_, T, R> {
    /// Returns an array of these elements. `strides` are in elements.
    ///
    /// # Safety
    /// The elements are initialized and borrowed uniquely for the life of the result. Their address
    /// has exposed provenance.
    #[track_caller]
    pub(super) unsafe fn new(address: u64, shape: [usize; R], strides: [usize; R]) -> Result<Self> {
        // SAFETY: guaranteed by the caller; views do not access the elements between.
        let array = unsafe { Device::cpu().default_stream().foreign_array(address, shape, strides, ()) }?;
        Ok(HostArrayMut { array, borrow: PhantomData })
    }

    /// Returns the unique view of the elements: an argument of a launch on the cpu device.
    #[must_use]
    pub fn view_mut(&mut self) -> DeviceViewMut<'_, T, R> {
        self.array.view_mut().into_part()
    }
}

macro_rules! formats {
    ($($name:ident)+) => {$(
        impl<T: Element, const R: usize> fmt::Debug for $name<'_, T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (name, shape, strides) = (stringify!($name), self.array.shape(), self.array.strides());
                write!(f, "{name}<{}>({shape:?}, strides {strides:?})", T::NAME)
            }
        }
    )+};
}
formats!(HostArray);
#[cfg(feature = "ndarray")]
formats!(HostArrayMut);
