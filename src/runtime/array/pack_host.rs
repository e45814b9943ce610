//! Conversion between host values and the bytes of an array: packing, gathering, scattering.
//!
//! Host values are in row-major logical order. Two elements of four bits share a byte, the first in
//! the low half. All other elements have the representation of the host. The code does not depend
//! on devices.
//!
//! Lists of host values are reserved before they are filled. If the host has not enough memory, the
//! result is an error.

use std::borrow::Cow;

use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_vec;

use super::strided::Strided;
use crate::element::Element;
use crate::error::{Error, Result};

/// The bytes on the host of one part of an array that is made or copied in parts.
pub const CHUNK_BYTES: usize = 16 << 20;

/// Returns an empty list with capacity for this number of values.
///
/// # Errors
/// [`Error::Argument`] at the caller's place if the host has not enough memory.
#[track_caller]
pub fn reserved<T>(count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    match values.try_reserve_exact(count) {
        Ok(()) => Ok(values),
        Err(_) => Err(out_of_memory::<T>(count)),
    }
}

/// Returns a list of this number of zeros.
///
/// # Errors
/// As [`reserved`].
#[track_caller]
pub fn zeros<T: Zeroable>(count: usize) -> Result<Vec<T>> {
    match try_zeroed_vec(count) {
        Ok(values) => Ok(values),
        Err(()) => Err(out_of_memory::<T>(count)),
    }
}

#[track_caller]
fn out_of_memory<T>(count: usize) -> Error {
    let bytes = count as u128 * size_of::<T>() as u128;
    Error::argument(format!(
        "{bytes} bytes do not fit into the free memory of the host: copy the array in parts, by slices, or free others first"
    ))
}

/// Returns true if two elements share a byte.
pub fn is_packed<T: Element>() -> bool {
    T::DTYPE.storage_bits() == 4
}

/// Returns the byte offset of an element; for packed elements, of the byte that contains it.
pub fn byte_offset<T: Element>(elements: usize) -> usize {
    if is_packed::<T>() { elements / 2 } else { elements * size_of::<T>() }
}

/// Returns the bytes of a contiguous array of these values.
///
/// # Errors
/// As [`reserved`].
#[track_caller]
pub fn to_bytes<T: Element>(values: &[T]) -> Result<Cow<'_, [u8]>> {
    if is_packed::<T>() {
        let pack = |pair: &[T]| {
            let high = pair.get(1).map_or(0, |v| v.to_bits() as u8 & 0xf);
            pair[0].to_bits() as u8 & 0xf | high << 4
        };
        let mut bytes = reserved(values.len().div_ceil(2))?;
        bytes.extend(values.chunks(2).map(pack));
        Ok(Cow::Owned(bytes))
    } else {
        Ok(Cow::Borrowed(bytes_of(values)))
    }
}

/// Returns the shortest pattern of bytes whose repetition is an array of this value: at most the
/// bytes of one element.
pub fn pattern<T: Element>(value: &T) -> Vec<u8> {
    if is_packed::<T>() {
        let code = value.to_bits() as u8 & 0xf;
        return vec![code | code << 4];
    }
    let mut bytes = bytes_of(std::slice::from_ref(value));
    while bytes.len().is_multiple_of(2) && bytes[..bytes.len() / 2] == bytes[bytes.len() / 2..] {
        bytes = &bytes[..bytes.len() / 2];
    }
    bytes.to_vec()
}

/// Returns the values of an array: `bytes` begin with the byte of its first element and contain its
/// span.
///
/// # Errors
/// As [`reserved`].
#[track_caller]
pub fn gather<T: Element, const R: usize>(bytes: &[u8], layout: &Strided<R>) -> Result<Vec<T>> {
    let mut values = reserved(layout.len())?;
    let nibble = layout.offset % 2;
    layout.for_each_run(|first, stride, count| {
        if is_packed::<T>() {
            values.extend((0..count).map(|i| unpack::<T>(bytes, nibble + first + i * stride)));
        } else {
            let size = size_of::<T>();
            let run = bytes[first * size..].chunks(size).step_by(stride);
            values.extend(run.take(count).map(from_bytes::<T>));
        }
    });
    Ok(values)
}

fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: every byte of the list is initialized, because elements have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}

/// Returns the values of bit patterns without gaps; not for packed elements.
///
/// # Errors
/// As [`reserved`].
#[track_caller]
pub fn values_of<T: Element>(patterns: Vec<T::Pattern>) -> Result<Vec<T>> {
    if patterns.iter().all(T::is_value) {
        let mut list = std::mem::ManuallyDrop::new(patterns);
        // SAFETY: `T::Pattern` has the layout of `T`, and each pattern is a value. The vector is
        // decomposed once.
        return Ok(unsafe { Vec::from_raw_parts(list.as_mut_ptr().cast::<T>(), list.len(), list.capacity()) });
    }
    let mut values = reserved(patterns.len())?;
    values.extend(patterns.into_iter().map(value_of::<T>));
    Ok(values)
}

/// Writes values into the bytes of an array; the inverse of [`gather`]. Other bytes are unchanged.
pub fn scatter<T: Element, const R: usize>(values: &[T], bytes: &mut [u8], layout: &Strided<R>) {
    let mut values = values.iter();
    let nibble = layout.offset % 2;
    layout.for_each_run(|first, stride, count| {
        for (i, value) in values.by_ref().take(count).enumerate() {
            let at = first + i * stride;
            if is_packed::<T>() {
                let (byte, shift) = ((nibble + at) / 2, (nibble + at) % 2 * 4);
                bytes[byte] = bytes[byte] & !(0xf << shift) | (value.to_bits() as u8 & 0xf) << shift;
            } else {
                let size = size_of::<T>();
                bytes[at * size..][..size].copy_from_slice(bytes_of(std::slice::from_ref(value)));
            }
        }
    });
}

fn unpack<T: Element>(bytes: &[u8], at: usize) -> T {
    T::from_bits(u64::from(bytes[at / 2] >> (at % 2 * 4) & 0xf))
}

/// Returns a value from its bytes. A byte that is no bool (of another program; kernels write none)
/// is true.
fn from_bytes<T: Element>(bytes: &[u8]) -> T {
    value_of(bytemuck::pod_read_unaligned(bytes))
}

fn value_of<T: Element>(pattern: T::Pattern) -> T {
    if T::is_value(&pattern) {
        // SAFETY: `T::Pattern` has the layout of `T`, and the pattern is a value.
        unsafe { std::mem::transmute_copy(&pattern) }
    } else {
        T::from_bits(u64::from(bytemuck::bytes_of(&pattern).iter().any(|&byte| byte != 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::f4e2m1fn;

    #[test]
    fn four_bit_elements_share_bytes() {
        let values: Vec<f4e2m1fn> = (0..7).map(f4e2m1fn::from_bits).collect();
        let bytes = to_bytes(&values).unwrap();
        assert_eq!(*bytes, [0x10, 0x32, 0x54, 0x06]);
        let layout = Strided::contiguous([7]).unwrap();
        assert_eq!(gather::<f4e2m1fn, 1>(&bytes, &layout).unwrap(), values);
        let mut other = vec![0xff; 4];
        scatter(&values, &mut other, &layout);
        assert_eq!(other, [0x10, 0x32, 0x54, 0xf6]);
    }

    #[test]
    fn scatter_undoes_gather_and_leaves_the_rest() {
        let all: Vec<i32> = (0..60).collect();
        let layout = Strided::contiguous([3, 4, 5]).unwrap().step(2, 2).unwrap().permute([2, 1, 0]).unwrap();
        let mut bytes = to_bytes(&all).unwrap().into_owned();
        let mut values = gather::<i32, 3>(&bytes, &layout).unwrap();
        assert_eq!(values[..4], [0, 20, 40, 5]);
        values.iter_mut().for_each(|v| *v = -1 - *v);
        scatter(&values, &mut bytes, &layout);
        assert_eq!(gather::<i32, 3>(&bytes, &layout).unwrap(), values);
        let changed = gather::<i32, 1>(&bytes, &Strided::contiguous([60]).unwrap()).unwrap();
        assert!((0..60).all(|i| changed[i as usize] == if i % 5 % 2 == 0 { -1 - i } else { i }));
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        let three = Strided::contiguous([3]).unwrap();
        assert_eq!(gather::<bool, 1>(&[0, 1, 2], &three).unwrap(), [false, true, true]);
    }

    #[test]
    fn patterns_are_as_short_as_they_can_be() {
        assert_eq!(pattern(&true), [1]);
        assert_eq!(pattern(&0x0707_0707u32), [7]);
        assert_eq!(pattern(&0x0102_0102u32), [2, 1]);
        assert_eq!(pattern(&0x0102_0304u32), [4, 3, 2, 1]);
        assert_eq!(pattern(&0x0102_0304_0102_0304u64), [4, 3, 2, 1]);
        assert_eq!(pattern(&1.5f64).len(), 8);
        assert_eq!(pattern(&f4e2m1fn::from_bits(7)), [0x77]);
    }

    #[test]
    fn too_large_arrays_are_errors_at_the_caller() {
        let lists =
            [reserved::<u64>(1 << 59).map(drop), zeros::<u64>(1 << 59).map(drop), zeros::<u8>(1 << 62).map(drop)];
        for list in lists {
            let error = list.expect_err("more than any memory").to_string();
            assert!(error.contains("host.rs:") && error.contains("do not fit into the free memory"), "{error}");
        }
    }
}
