//! Memory and streams of other libraries: arrays over them without a copy, kernels in their order.
//!
//! * [`Stream::foreign_array`]: an array over memory that somebody else allocated, any strides, its owner kept alive;
//! * [`Device::foreign_stream`]: a stream that somebody else made, to queue on and to order arrays by;
#![cfg_attr(
    feature = "cudarc",
    doc = "* [`cudarc`]: both without `unsafe`, for the slices, views and streams of cudarc (and so of candle);"
)]
#![cfg_attr(
    not(feature = "cudarc"),
    doc = "* with the feature `cudarc`, both without `unsafe` for cudarc (and so for candle);"
)]
//! * [`dlpack`]: tensors that go from one library to another by the protocol of that name, as torch, JAX and numpy speak it.
//!
//! The other way round [`DeviceArray::address`], [`Stream::raw`] and
//! [`CompiledKernel::raw`](crate::CompiledKernel::raw) hand out what is here.
//!
//! All of it is of the primary context of a GPU, which cudarc, candle, torch and the CUDA runtime use as this crate does.

#[cfg(feature = "cudarc")]
pub mod cudarc;
pub mod dlpack;

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

impl Device {
    /// A stream of another library (a `CUstream` or `cudaStream_t`; null for the legacy default stream), for launches and
    /// for the arrays of [`Stream::foreign_array`]. `owner` is dropped when nothing here needs the stream any more.
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
    /// [`Error::Argument`] on the cpu device, which has no streams of others, and for a stream of another context than
    /// the primary one of this GPU; [`Error::Driver`] when earlier work on the device failed.
    ///
    /// # Safety
    /// `raw` is a stream of this process, and stays one until `owner` is dropped.
    #[track_caller]
    pub unsafe fn foreign_stream(&self, raw: *mut c_void, owner: impl Any + Send + Sync) -> Result<Stream> {
        let Some(gpu) = self.as_gpu() else {
            return Err(Error::argument("a stream of another library on the cpu device, which has none"));
        };
        // SAFETY: promised by the caller.
        unsafe { StreamHandle::foreign(gpu, raw.cast(), Box::new(owner)) }.map(Stream::of)
    }
}

impl Stream {
    /// An array over memory of another library, whose own work on it is queued on this stream.
    ///
    /// Element `i` lies at `address` plus the sum of `i[d] * strides[d]` elements. Launches and copies here come after
    /// what is queued on this stream now, on whichever stream they are. When the array goes, this stream is put behind
    /// all of them, and then `owner` is dropped: it may free the memory, or use it again, in the order of this stream.
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
    /// [`Error::Argument`] for a null address, one that is no multiple of the size of an element, strides with which
    /// elements overlap (a stride of 0 along an axis of several elements among them), and for more elements than memory
    /// can have. The owner is dropped then.
    ///
    /// # Safety
    /// From the first element to the last, gaps included, the bytes are on the device of this stream, in memory that the
    /// primary context of a GPU reaches, and are values of `T`. Until `owner` is dropped they stay so, and nobody else
    /// uses them, except for work that was queued on this stream before, and work that comes on it after the array has
    /// gone. On the cpu device `address` comes from a pointer with exposed provenance. Atomics on elements of 16 bits
    /// touch the whole words of 32 bits around them, whose other half may be a neighbour's.
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
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::foreign(self.as_gpu(), address, bytes, Box::new(owner)) };
        Ok(DeviceArray::of(memory, layout))
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

/// The layout with these strides in elements, and its bytes from the first element to the last.
#[track_caller]
fn layout<T: Element, const R: usize>(shape: [usize; R], strides: [usize; R]) -> Result<(Strided<R>, usize)> {
    // No stride is 0, not even where it is never used.
    let unused = |d: usize| shape[d] <= 1 || shape.contains(&0);
    let strides = std::array::from_fn(|d| if unused(d) { strides[d].max(1) } else { strides[d] });
    let layout = Strided { offset: 0, shape, strides };
    let Some(room) = room(&layout) else {
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

/// Elements from the first to the last one; `None` if two are in one place (as far as strides in order of their size tell),
/// or if there are too many.
fn room<const R: usize>(layout: &Strided<R>) -> Option<usize> {
    let count = layout.shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent.max(1)));
    count.filter(|&count| i64::try_from(count).is_ok())?;
    if layout.shape.contains(&0) {
        return Some(0);
    }
    let mut axes: Vec<usize> = (0..R).filter(|&d| layout.shape[d] > 1).collect();
    axes.sort_by_key(|&d| layout.strides[d]);
    axes.into_iter().try_fold(1usize, |room, d| {
        let stride = layout.strides[d];
        let all = room.checked_add((layout.shape[d] - 1).checked_mul(stride)?)?;
        (stride >= room && i64::try_from(all).is_ok()).then_some(all)
    })
}

#[cfg(test)]
mod tests;
