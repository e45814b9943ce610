//! Memory and streams of other libraries: arrays over them without a copy, and launches in their
//! order.
//!
//! * [`Stream::foreign_array`]: an array over memory of another library, with any strides, which
//!   keeps the owner alive;
//! * [`Device::foreign_stream`]: a stream of another library, for launches and for the order of
//!   arrays;
#![cfg_attr(
    feature = "cudarc",
    doc = "* [`cudarc`]: both without `unsafe`, for the slices, views and streams of cudarc (and so of candle);"
)]
#![cfg_attr(
    not(feature = "cudarc"),
    doc = "* with the feature `cudarc`, both without `unsafe` for cudarc (and so for candle);"
)]
#![cfg_attr(feature = "ndarray", doc = "* [`ndarray`]: arrays and views of ndarray on the host, with strides;")]
#![cfg_attr(feature = "safetensors", doc = "* [`safetensors`]: tensors of files;")]
//! * [`dlpack`]: tensors that are exchanged between libraries by the DLPack protocol, as in torch,
//!   JAX and numpy.
//!
//! In the other direction, [`DeviceArray::address`], [`Stream::raw`] and
//! [`CompiledKernel::raw`](crate::CompiledKernel::raw) return the handles of this crate.
//!
//! All resources belong to the primary context of a GPU, which cudarc, candle, torch and the CUDA
//! runtime also use.

#[cfg(feature = "cudarc")]
pub mod cudarc;
pub mod dlpack;
#[cfg(any(feature = "ndarray", feature = "safetensors"))]
mod host;
#[cfg(feature = "ndarray")]
pub mod ndarray;
#[cfg(feature = "safetensors")]
pub mod safetensors;

use crate::util::collect::CollectVec as _;
use std::any::Any;
use std::ffi::c_void;

use super::array::array::DeviceArray;
use super::array::memory::Memory;
use super::array::pack_host;
use super::array::strided::Strided;
use super::array::transfer::{check_packed, span_bytes};
use super::device::device::Device;
use super::device::gpu::StreamHandle;
use super::device::stream::Stream;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::util::sort;

impl Device {
    /// Returns a stream of another library, for launches and for the arrays of
    /// [`Stream::foreign_array`]. `raw` is a `CUstream` or `cudaStream_t`; null is the legacy
    /// default stream. `owner` is dropped after the last use of the stream.
    ///
    /// ```no_run
    /// # fn stream_of_torch() -> *mut std::ffi::c_void { unimplemented!() }
    /// let raw = stream_of_torch();
    /// // SAFETY: torch keeps its streams as long as the process runs.
    /// let stream = unsafe { cutlet::Device::gpu(0)?.foreign_stream(raw, ()) }?;
    /// stream.synchronize()?;
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] on the cpu device, which has no foreign streams, and for a stream of
    /// another context than the primary one of this GPU. [`Error::Driver`] if earlier work on the
    /// device failed.
    ///
    /// # Safety
    /// `raw` is a stream of this process, and remains valid until `owner` is dropped.
    #[track_caller]
    pub unsafe fn foreign_stream(&self, raw: *mut c_void, owner: impl Any + Send + Sync) -> Result<Stream> {
        let Some(gpu) = self.as_gpu() else {
            return Err(Error::argument("a stream of another library on the cpu device, which has none"));
        };
        // SAFETY: guaranteed by the caller.
        unsafe { StreamHandle::foreign(gpu, raw.cast(), Box::new(owner)) }.map(Stream::from_handle)
    }
}

impl Stream {
    /// Returns an array over memory of another library, whose work on the memory is queued on this
    /// stream.
    ///
    /// The offset of element `i` from `address` is the sum of `i[d] * strides[d]`, in elements.
    /// Launches and copies of this crate, on any stream, are ordered after the work that is queued
    /// on this stream now. The drop of the array orders this stream after all of them, and then
    /// drops `owner`. The owner may free or reuse the memory in the order of this stream.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let mut rows = vec![1i32, 2, 3, 0, 4, 5, 6, 0]; // two rows of three numbers, and a gap after each
    /// let address = rows.as_mut_ptr().expose_provenance() as u64;
    /// let stream = ct::Device::cpu().default_stream();
    /// // SAFETY: the vector has these elements, goes with the array, and is not touched before.
    /// let a = unsafe { stream.foreign_array::<i32, 2>(address, [2, 3], [4, 1], rows) }?;
    /// assert_eq!(a.transpose()?.to_vec()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a null address, an address that is no multiple of the size of an
    /// element, and more elements than memory can have. The same error for strides that make
    /// elements overlap, including a stride of 0 along an axis of several elements. After an error
    /// the owner is dropped.
    ///
    /// # Safety
    /// * From the first element to the last one, including gaps, the bytes are values of `T`. They
    ///   are on the device of this stream, in memory that the primary context of a GPU can access.
    ///   This holds until `owner` is dropped.
    /// * Until then, no other code uses the bytes. Exceptions are work that was queued on this
    ///   stream before, and work on it after the drop of the array.
    /// * On the cpu device, `address` is derived from a pointer with exposed provenance.
    /// * Atomics on elements of 16 bits access the whole words of 32 bits that contain them. The
    ///   other half of a word may be outside of the array.
    #[track_caller]
    pub unsafe fn foreign_array<T: Element, const R: usize>(
        &self,
        address: u64,
        shape: [usize; R],
        strides: [usize; R],
        owner: impl Any + Send + Sync,
    ) -> Result<DeviceArray<T, R>> {
        let (layout, bytes) = layout::<T, R>(shape, strides)?;
        check_address::<T>(address, bytes)?;
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { Memory::foreign(self.as_gpu(), address, bytes, Box::new(owner)) };
        Ok(DeviceArray::from_memory(memory, layout))
    }
}

#[track_caller]
fn check_address<T: Element>(address: u64, bytes: usize) -> Result<()> {
    let align = if pack_host::is_packed::<T>() { 1 } else { align_of::<T>() as u64 };
    if bytes > 0 && (address == 0 || !address.is_multiple_of(align)) {
        return Err(Error::argument(format!(
            "an array of {} at the address {address:#x}: it has to be a multiple of {align}, and not 0",
            T::NAME
        )));
    }
    Ok(())
}

/// Returns the layout with these strides in elements, and the bytes from its first to its last
/// element.
#[track_caller]
fn layout<T: Element, const R: usize>(shape: [usize; R], strides: [usize; R]) -> Result<(Strided<R>, usize)> {
    // No stride is 0, even if it is unused.
    let unused = |d: usize| shape[d] <= 1 || shape.contains(&0);
    let strides = std::array::from_fn(|d| if unused(d) { strides[d].max(1) } else { strides[d] });
    let layout = Strided { offset: 0, shape, strides };
    let Some(room) = element_span(&layout) else {
        return Err(Error::argument(format!(
            "an array of shape {shape:?} and strides {strides:?} has elements in one place, or too many for any memory"
        )));
    };
    check_packed::<T, R>(&layout)?;
    match T::DTYPE.bytes_of(room).filter(|&bytes| isize::try_from(bytes).is_ok()) {
        Some(_) => Ok((layout, span_bytes::<T, R>(&layout))),
        None => Err(Error::argument(format!("an array of shape {shape:?} and strides {strides:?} fits in no memory"))),
    }
}

/// Returns the number of elements from the first to the last one. `None` if two elements overlap
/// (as far as strides in order of their size show), or if the number is too large.
fn element_span<const R: usize>(layout: &Strided<R>) -> Option<usize> {
    let count = layout.shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent.max(1)));
    count.filter(|&count| i64::try_from(count).is_ok())?;
    if layout.shape.contains(&0) {
        return Some(0);
    }
    let mut axes: Vec<usize> = (0..R).filter(|&d| layout.shape[d] > 1).collect_vec();
    sort::by_key(&mut axes, |&d| layout.strides[d]);
    axes.into_iter().try_fold(1usize, |room, d| {
        let stride = layout.strides[d];
        let all = room.checked_add((layout.shape[d] - 1).checked_mul(stride)?)?;
        (stride >= room && i64::try_from(all).is_ok()).then_some(all)
    })
}

#[cfg(test)]
mod tests;
