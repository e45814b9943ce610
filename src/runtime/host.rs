//! Between host values and the bytes of an array: packing, gathering, scattering.
//!
//! Host values are in row-major logical order. Elements of four bits lie two in a byte, the first in
//! the low half; all others lie as the host holds them. Knows no device.

use bytemuck::Zeroable;

use super::strided::Strided;
use crate::element::Element;
use crate::error::Result;

/// Do two elements share a byte?
pub fn is_packed<T: Element>() -> bool {
    T::DTYPE.storage_bits() == 4
}

/// Byte offset of an element; of the byte that holds it, when packed.
pub fn byte_offset<T: Element>(elements: usize) -> usize {
    if is_packed::<T>() { elements / 2 } else { elements * size_of::<T>() }
}

/// Bytes of a contiguous array of these values.
pub fn to_bytes<T: Element>(values: &[T]) -> std::borrow::Cow<'_, [u8]> {
    if is_packed::<T>() {
        let pack = |pair: &[T]| {
            let high = pair.get(1).map_or(0, |v| v.to_bits() as u8 & 0xf);
            pair[0].to_bits() as u8 & 0xf | high << 4
        };
        values.chunks(2).map(pack).collect::<Vec<u8>>().into()
    } else {
        bytemuck::cast_slice(values).into()
    }
}

/// The values of an array: `bytes` start with the byte of its first element and hold its span.
pub fn gather<T: Element, const R: usize>(bytes: &[u8], layout: &Strided<R>) -> Vec<T> {
    let mut values = Vec::with_capacity(layout.len());
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
    values
}

/// `count` values without gaps, whose bytes `read` writes; not for packed elements.
pub fn collect<T: Element>(count: usize, read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Vec<T>> {
    let mut bits = vec![<T::Bits as Zeroable>::zeroed(); count];
    // SAFETY: every byte of the vector is initialised, and any bytes are a value of `T::Bits`, which
    // has the size of `T` and so no padding.
    read(unsafe { std::slice::from_raw_parts_mut(bits.as_mut_ptr().cast::<u8>(), count * size_of::<T>()) })?;
    if bits.iter().all(T::is_valid_bit_pattern) {
        let mut bits = std::mem::ManuallyDrop::new(bits);
        // SAFETY: `CheckedBitPattern` promises equal layout of `T::Bits` and `T`, and validity of what
        // was checked; the vector is taken apart once.
        return Ok(unsafe { Vec::from_raw_parts(bits.as_mut_ptr().cast::<T>(), count, bits.capacity()) });
    }
    // SAFETY: as above, shared.
    let bytes = unsafe { std::slice::from_raw_parts(bits.as_ptr().cast::<u8>(), count * size_of::<T>()) };
    Ok(bytes.chunks(size_of::<T>()).map(from_bytes::<T>).collect())
}

/// Writes values into the bytes of an array; the inverse of [`gather`]. Other bytes stay.
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
                bytes[at * size..][..size].copy_from_slice(bytemuck::bytes_of(value));
            }
        }
    });
}

fn unpack<T: Element>(bytes: &[u8], at: usize) -> T {
    T::from_bits(u64::from(bytes[at / 2] >> (at % 2 * 4) & 0xf))
}

/// A value from its bytes. A byte that is no bool (kernels write none, other programs may) is true.
fn from_bytes<T: Element>(bytes: &[u8]) -> T {
    match bytemuck::checked::try_pod_read_unaligned(bytes) {
        Ok(value) => value,
        Err(_) => T::from_bits(u64::from(bytes.iter().any(|&byte| byte != 0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::f4e2m1fn;

    #[test]
    fn four_bit_elements_share_bytes() {
        let values: Vec<f4e2m1fn> = (0..7).map(f4e2m1fn::from_bits).collect();
        let bytes = to_bytes(&values);
        assert_eq!(*bytes, [0x10, 0x32, 0x54, 0x06]);
        let layout = Strided::contiguous([7]).unwrap();
        assert_eq!(gather::<f4e2m1fn, 1>(&bytes, &layout), values);
        let mut other = vec![0xff; 4];
        scatter(&values, &mut other, &layout);
        assert_eq!(other, [0x10, 0x32, 0x54, 0xf6]);
    }

    #[test]
    fn scatter_undoes_gather_and_leaves_the_rest() {
        let all: Vec<i32> = (0..60).collect();
        let layout = Strided::contiguous([3, 4, 5]).unwrap().step(2, 2).unwrap().permute([2, 1, 0]).unwrap();
        let mut bytes = to_bytes(&all).into_owned();
        let mut values = gather::<i32, 3>(&bytes, &layout);
        assert_eq!(values[..4], [0, 20, 40, 5]);
        values.iter_mut().for_each(|v| *v = -1 - *v);
        scatter(&values, &mut bytes, &layout);
        assert_eq!(gather::<i32, 3>(&bytes, &layout), values);
        let changed = gather::<i32, 1>(&bytes, &Strided::contiguous([60]).unwrap());
        assert!((0..60).all(|i| changed[i as usize] == if i % 5 % 2 == 0 { -1 - i } else { i }));
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        assert_eq!(gather::<bool, 1>(&[0, 1, 2], &Strided::contiguous([3]).unwrap()), [false, true, true]);
    }
}
