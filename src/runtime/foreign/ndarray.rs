//! Conversions from and to [ndarray](https://docs.rs/ndarray), with strides.
//!
//! | from | to | by | copy |
//! |---|---|---|---|
//! | an array or view of ndarray | [`HostArray`], [`HostArrayMut`] on the cpu device | [`read`], [`write()`] | no |
//! | an array or view of ndarray | [`DeviceArray`] on any device | [`array()`] | yes |
//! | an array of the cpu device | a view of ndarray | [`view`], [`view_mut`] | no |
//! | an array of any device | an array of ndarray | [`to_array`] | yes |
//!
//! A copy keeps the order of the axes in memory: an array in column-major order remains one.
//!
//! ```
//! use cutlet as ct;
//! use cutlet::foreign::ndarray::{read, write};
//! use cutlet::prelude::*;
//!
//! fn row_sums(x: Array<f32, 2>, sums: ArrayMut<f32, 1>, tile: usize) {
//!     let row = x.load((ct::bid(0), 0), [1, tile]);
//!     sums.store(ct::bid(0), row.sum(1).reshape([1]));
//! }
//!
//! let x = ndarray::Array2::from_shape_fn((30, 50), |(i, j)| (i + j) as f32);
//! let mut sums = ndarray::Array1::zeros(50);
//! let columns = x.t(); // by strides: nothing is copied
//! let (given, mut out) = (read(&columns)?, write(&mut sums)?);
//! ct::launch(row_sums, 50, (given.view(), out.view_mut(), ct::Constant(32)))?;
//! assert_eq!(sums, x.sum_axis(ndarray::Axis(0)));
//! # Ok::<(), ct::Error>(())
//! ```

use ::ndarray::{ArrayRef, ArrayView, ArrayViewMut, Dimension, IntoDimension, IxDyn, ShapeBuilder};

pub use super::host::{HostArray, HostArrayMut};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::runtime::array::array::DeviceArray;
use crate::runtime::array::pack_host;
use crate::runtime::array::strided::Strided;
use crate::runtime::array::view::{DeviceView, DeviceViewMut};
use crate::runtime::device::device::Device;

/// The dimension type of ndarray for `R` axes.
type Axes<const R: usize> = <[usize; R] as IntoDimension>::Dim;

/// Borrows an array or view of ndarray for kernels on the cpu device. No element is copied.
///
/// # Errors
/// [`Error::Argument`] for another number of axes, negative strides, and elements of four bits;
/// for strides that make elements overlap, as those of a broadcast view.
#[track_caller]
pub fn read<T: Element, D: Dimension, const R: usize>(from: &ArrayRef<T, D>) -> Result<HostArray<'_, T, R>> {
    let (shape, strides) = layout_of(from)?;
    let address = from.as_ptr().expose_provenance() as u64;
    // SAFETY: these are the elements of the array, which remains borrowed.
    unsafe { HostArray::new(address_of(address, &shape), shape, strides) }
}

/// Borrows an array or view of ndarray for kernels on the cpu device that write it, as [`read`].
///
/// # Errors
/// As [`read`].
#[track_caller]
pub fn write<T: Element, D: Dimension, const R: usize>(to: &mut ArrayRef<T, D>) -> Result<HostArrayMut<'_, T, R>> {
    let (shape, strides) = layout_of(to)?;
    let address = to.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: these are the elements of the array, which remains borrowed uniquely.
    unsafe { HostArrayMut::new(address_of(address, &shape), shape, strides) }
}

/// Returns the address, or an aligned one for an array without elements.
fn address_of<const R: usize>(address: u64, shape: &[usize; R]) -> u64 {
    if shape.contains(&0) { crate::runtime::ALIGNMENT as u64 } else { address }
}

/// Returns shape and strides in elements.
#[track_caller]
fn layout_of<T: Element, D: Dimension, const R: usize>(of: &ArrayRef<T, D>) -> Result<([usize; R], [usize; R])> {
    refuse_packed::<T>()?;
    let (Ok(shape), Ok(given)) = (<[usize; R]>::try_from(of.shape()), <[isize; R]>::try_from(of.strides())) else {
        return Err(Error::argument(format!(
            "an array of ndarray of shape {:?} has {} axes, not {R}",
            of.shape(),
            of.ndim()
        )));
    };
    let mut strides = [1; R];
    for axis in 0..R {
        match usize::try_from(given[axis]) {
            _ if shape[axis] <= 1 => {}
            Ok(stride) => strides[axis] = stride,
            Err(_) => {
                return Err(Error::argument(format!(
                    "an array of ndarray of shape {shape:?} and strides {given:?}: kernels have no negative strides; \
                     `foreign::ndarray::array` copies it"
                )));
            }
        }
    }
    Ok((shape, strides))
}

/// Rejects elements that share bytes.
#[track_caller]
fn refuse_packed<T: Element>() -> Result<()> {
    match pack_host::is_packed::<T>() {
        true => {
            Err(Error::argument(format!("an array of ndarray of {}, two of which share a byte here: use u8", T::NAME)))
        }
        false => Ok(()),
    }
}

/// Returns the axes in descending order of their strides, and the inverse of this order.
fn memory_order<const R: usize>(stride: impl Fn(usize) -> isize) -> ([usize; R], [usize; R]) {
    let mut order = std::array::from_fn(|d| d);
    crate::util::sort::by_key(&mut order, |&d| std::cmp::Reverse(stride(d)));
    let mut inverse = [0; R];
    order.iter().enumerate().for_each(|(position, &axis)| inverse[axis] = position);
    (order, inverse)
}

/// Copies an array or view of ndarray to a device. The axes keep their order in memory if the
/// elements have no gaps, else the result is row-major.
///
/// ```
/// let x = ndarray::arr2(&[[1, 2, 3], [4, 5, 6]]);
/// let a = cutlet::foreign::ndarray::array::<_, _, 2>(cutlet::Device::cpu(), &x.t())?;
/// assert_eq!((a.shape(), a.strides()), ([3, 2], [1, 3]));
/// assert_eq!(a.to_vec()?, [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for another number of axes; else as [`Device::array`].
#[track_caller]
pub fn array<T: Element, D: Dimension, const R: usize>(
    device: Device,
    from: &ArrayRef<T, D>,
) -> Result<DeviceArray<T, R>> {
    let Ok(shape) = <[usize; R]>::try_from(from.shape()) else {
        let (shape, rank) = (from.shape(), from.ndim());
        return Err(Error::argument(format!("an array of ndarray of shape {shape:?} has {rank} axes, not {R}")));
    };
    let (order, inverse) = memory_order(|axis| from.strides()[axis]);
    let dense = from.view().into_dyn().permuted_axes(IxDyn(&order));
    match dense.to_slice().filter(|_| !pack_host::is_packed::<T>()) {
        Some(values) => {
            let array = device.array(values, order.map(|axis| shape[axis]))?;
            let layout = array.layout.permute(inverse)?;
            Ok(DeviceArray::from_memory(array.memory, layout))
        }
        None => device.array(&from.iter().copied().collect::<Vec<T>>(), shape),
    }
}

/// Copies an array or view of any device to an array of ndarray, after the work that writes it. The
/// axes keep their order in memory if the elements have no gaps, else the result is row-major.
///
/// ```
/// let a = cutlet::Device::cpu().array(&[1, 2, 3, 4, 5, 6], [2, 3])?;
/// let x = cutlet::foreign::ndarray::to_array(&a.transpose()?)?;
/// assert_eq!(x, ndarray::arr2(&[[1, 4], [2, 5], [3, 6]]));
/// assert_eq!(x.strides(), [1, 3]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`Error::Driver`] if this work failed.
#[track_caller]
pub fn to_array<T: Element, const R: usize>(of: &DeviceView<'_, T, R>) -> Result<::ndarray::Array<T, Axes<R>>>
where
    [usize; R]: IntoDimension,
{
    let (order, inverse) = memory_order(|axis| of.strides()[axis] as isize);
    let dense = of.permute(order).ok().filter(|view| view.layout.is_contiguous());
    let (values, shape, inverse) = match dense {
        Some(view) => (view.to_vec()?, view.shape(), inverse),
        None => (of.to_vec()?, of.shape(), std::array::from_fn(|d| d)),
    };
    let array = ::ndarray::ArrayD::from_shape_vec(IxDyn(&shape), values).expect("a value for each element");
    Ok(array.permuted_axes(IxDyn(&inverse)).into_dimensionality().expect("as many axes"))
}

/// Returns a view of ndarray over an array or view of the cpu device. No element is copied.
///
/// ```
/// let a = cutlet::Device::cpu().array(&[1, 2, 3, 4, 5, 6], [2, 3])?;
/// assert_eq!(cutlet::foreign::ndarray::view(a.slice(1, 1..)?)?.sum(), 16);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for an array of a GPU, which [`to_array`] copies, and for elements of four
/// bits.
#[track_caller]
pub fn view<'a, T: Element, const R: usize>(of: impl Into<DeviceView<'a, T, R>>) -> Result<ArrayView<'a, T, Axes<R>>>
where
    [usize; R]: IntoDimension,
{
    let of = of.into();
    let pointer = host_pointer(of.device(), of.address(), &of.layout())?;
    let shape = of.shape().into_dimension().strides(of.strides().into_dimension());
    // SAFETY: the elements are borrowed for `'a`. Work on the cpu device is complete when its call
    // returns.
    Ok(unsafe { ArrayView::from_shape_ptr(shape, pointer) })
}

/// Returns a unique view of ndarray over an array or view of the cpu device, as [`view`].
///
/// # Errors
/// As [`view`].
#[track_caller]
pub fn view_mut<'a, T: Element, const R: usize>(
    of: impl Into<DeviceViewMut<'a, T, R>>,
) -> Result<ArrayViewMut<'a, T, Axes<R>>>
where
    [usize; R]: IntoDimension,
{
    let of = of.into();
    let pointer = host_pointer(of.device(), of.address(), &of.layout())?;
    let shape = of.shape().into_dimension().strides(of.strides().into_dimension());
    // SAFETY: the elements are borrowed uniquely for `'a`. Work on the cpu device is complete when
    // its call returns.
    Ok(unsafe { ArrayViewMut::from_shape_ptr(shape, pointer) })
}

#[track_caller]
fn host_pointer<T: Element, const R: usize>(device: Device, address: u64, layout: &Strided<R>) -> Result<*mut T> {
    refuse_packed::<T>()?;
    if device != Device::cpu() {
        return Err(Error::argument(format!(
            "a view of ndarray over an array on {device}: only the cpu device has its arrays in memory of the host; \
             `foreign::ndarray::to_array` copies"
        )));
    }
    debug_assert!(layout.len() == 0 || address.is_multiple_of(align_of::<T>() as u64));
    Ok(std::ptr::with_exposed_provenance_mut(address as usize))
}

#[cfg(test)]
mod tests;
