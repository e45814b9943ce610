//! Transfers of the elements of an array or view between the host and the memory of the device.

use super::memory::Memory;
use super::pack_host;
use super::stream_order::Access;
use super::strided::Strided;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::util::collect::CollectVec as _;

/// Returns the elements in row-major order, after the work that writes them. `part`: other elements
/// of the memory may be written at the same time, and are not read.
///
/// # Errors
/// [`Error::Argument`] at the caller's place if the host has not enough memory, [`Error::Driver`]
/// if this work failed.
#[track_caller]
pub(super) fn download<T: Element, const R: usize>(memory: &Memory, layout: &Strided<R>, part: bool) -> Result<Vec<T>> {
    if let Some(axis) = outer_axis(layout).filter(|_| part) {
        let (count, inner) = rows(layout, axis);
        let mut host = vec![T::from_f64(0.0); layout.len()];
        for index in 0..count {
            let values = download(memory, &layout.slice(axis, index..index + 1)?, part)?;
            for (outer, values) in values.chunks(inner).enumerate() {
                host[(outer * count + index) * inner..][..inner].copy_from_slice(values);
            }
        }
        return Ok(host);
    }
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
///
/// # Safety
/// The caller has the only borrow of the elements, and that of all bytes for `Access::Write`.
#[track_caller]
pub(super) unsafe fn upload<T: Element, const R: usize>(
    memory: &Memory,
    layout: &Strided<R>,
    host: &[T],
    access: Access,
) -> Result<()> {
    if let Some(axis) = outer_axis(layout).filter(|_| access == Access::WritePart) {
        let (count, inner) = rows(layout, axis);
        for index in 0..count {
            let values = host.chunks(inner).skip(index).step_by(count).flatten().copied();
            let values: Vec<T> = values.collect_vec();
            // SAFETY: guaranteed by the caller.
            unsafe { upload(memory, &layout.slice(axis, index..index + 1)?, &values, access) }?;
        }
        return Ok(());
    }
    let first = pack_host::byte_offset::<T>(layout.offset);
    // A packed view may end in the middle of a byte, whose other half is outside of the view.
    let whole = !pack_host::is_packed::<T>() || memory.len() == first + span_bytes::<T, R>(layout);
    if layout.is_contiguous() && whole {
        // SAFETY: guaranteed by the caller.
        return unsafe { memory.write(first, &pack_host::to_bytes(host)?, access) };
    }
    let mut bytes = pack_host::zeros(span_bytes::<T, R>(layout))?;
    memory.read(first, &mut bytes)?;
    pack_host::scatter(host, &mut bytes, layout);
    // SAFETY: guaranteed by the caller: the layout of a part has no gaps here.
    unsafe { memory.write(first, &bytes, access) }
}

/// Returns the axis of the largest stride if elements of other views are between those of the
/// layout. The slices along this axis are transferred one by one.
fn outer_axis<const R: usize>(layout: &Strided<R>) -> Option<usize> {
    let axis = (0..R).filter(|&d| layout.shape[d] > 1).max_by_key(|&d| layout.strides[d])?;
    // The other half of the last byte belongs to the same part, or to none.
    (layout.span() > layout.len()).then_some(axis)
}

/// Returns the number of slices along an axis, and the number of consecutive elements of each in
/// row-major order.
fn rows<const R: usize>(layout: &Strided<R>, axis: usize) -> (usize, usize) {
    (layout.shape[axis], layout.shape[axis + 1..].iter().product())
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
