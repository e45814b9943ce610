//! Transfers of the elements of an array or view between the host and the memory of the device.

use super::memory::Memory;
use super::pack_host;
use super::strided::Strided;
use crate::element::Element;
use crate::error::{Error, Result};

/// Returns the elements in row-major order, after the work that writes them.
///
/// # Errors
/// [`Error::Argument`] at the caller's place if the host has not enough memory, [`Error::Driver`]
/// if this work failed.
#[track_caller]
pub(super) fn download<T: Element, const R: usize>(memory: &Memory, layout: &Strided<R>) -> Result<Vec<T>> {
    let first = pack_host::byte_offset::<T>(layout.offset);
    if layout.is_contiguous() && !pack_host::is_packed::<T>() {
        let mut patterns = pack_host::zeros::<T::Pattern>(layout.len())?;
        memory.read(first, bytemuck::cast_slice_mut(&mut patterns))?;
        return pack_host::values_of(patterns);
    }
    let mut bytes = pack_host::zeros(span_bytes::<T, R>(layout))?;
    memory.read(first, &mut bytes)?;
    pack_host::gather(&bytes, layout)
}

/// Overwrites the elements with those of `host`, in row-major order.
///
/// # Errors
/// As [`download`].
#[track_caller]
pub(super) fn upload<T: Element, const R: usize>(memory: &mut Memory, layout: &Strided<R>, host: &[T]) -> Result<()> {
    let first = pack_host::byte_offset::<T>(layout.offset);
    // A packed view may end in the middle of a byte, whose other half is outside of the view.
    let whole = !pack_host::is_packed::<T>() || memory.len() == first + span_bytes::<T, R>(layout);
    if layout.is_contiguous() && whole {
        return memory.write(first, &pack_host::to_bytes(host)?);
    }
    let mut bytes = pack_host::zeros(span_bytes::<T, R>(layout))?;
    memory.read(first, &mut bytes)?;
    pack_host::scatter(host, &mut bytes, layout);
    memory.write(first, &bytes)
}

/// Returns the bytes from the first to the last element, including gaps.
pub(crate) fn span_bytes<T: Element, const R: usize>(layout: &Strided<R>) -> usize {
    let nibble = if pack_host::is_packed::<T>() { layout.offset % 2 } else { 0 };
    match layout.span() {
        0 => 0,
        span => T::DTYPE.bytes_of(span + nibble).expect("the bytes of an allocation"),
    }
}

/// Checks a view of elements that share bytes. It needs an even first element, an axis of stride 1,
/// and even strides along the other axes.
#[track_caller]
pub(crate) fn check_packed<T: Element, const R: usize>(layout: &Strided<R>) -> Result<()> {
    if !pack_host::is_packed::<T>() {
        return Ok(());
    }
    let mut strides = (0..R).filter(|&d| layout.shape[d] > 1).map(|d| layout.strides[d]).peekable();
    let dense = strides.peek().is_none() || layout.strides.contains(&1);
    if dense && layout.offset.is_multiple_of(2) && strides.all(|stride| stride == 1 || stride % 2 == 0) {
        return Ok(());
    }
    Err(Error::argument(format!(
        "{} elements lie two in a byte: an array of them needs an axis of stride 1, even strides along the \
         others and an even first element; this one has shape {:?}, strides {:?} and starts at element {}",
        T::NAME,
        layout.shape,
        layout.strides,
        layout.offset
    )))
}
