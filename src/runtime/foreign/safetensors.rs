//! Tensors of [safetensors](https://docs.rs/safetensors) files as arrays, and arrays as such
//! tensors.
//!
//! | from | to | by |
//! |---|---|---|
//! | a tensor of a file | [`HostArray`] of the cpu device, without a copy if it is aligned | [`read`] |
//! | a tensor of a file | [`DeviceArray`] of any device, directly from the bytes | [`array()`] |
//! | an array | a tensor that `safetensors::serialize` writes | [`tensor`] |
//!
//! ```
//! use cutlet as ct;
//! use cutlet::foreign::safetensors::{array, read, tensor};
//! use safetensors::SafeTensors;
//!
//! let weight = ct::Device::cpu().array(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
//! let file = safetensors::serialize([("weight", tensor(&weight.view())?)], None)?;
//! let file = SafeTensors::deserialize(&file)?; // of `fs::read`, or a memory-mapped file
//! assert_eq!(array::<f32, 2>(ct::Device::cpu(), &file.tensor("weight")?)?.to_vec()?, weight.to_vec()?);
//! assert_eq!(read::<f32, 2>(&file.tensor("weight")?)?.view().shape(), [2, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The header of a file has any length, so whether its tensors are aligned depends on the writer.
//! The crate safetensors pads it, so that a page-aligned file has aligned tensors.

use std::borrow::Cow;

use ::safetensors::Dtype;
use ::safetensors::tensor::{TensorView, View};

pub use super::host::HostArray;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::runtime::array::array::DeviceArray;
use crate::runtime::array::pack_host;
use crate::runtime::array::stream_order::Access;
use crate::runtime::array::strided::Strided;
use crate::runtime::array::view::DeviceView;
use crate::runtime::device::device::Device;

/// An array in the form that `safetensors::serialize` writes; made by [`tensor`].
#[derive(Clone, Debug)]
pub struct HostTensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for HostTensor {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Returns the type of elements in a file.
#[track_caller]
fn dtype_of<T: Element>() -> Result<Dtype> {
    Ok(match T::NAME {
        "bool" => Dtype::BOOL,
        "u8" => Dtype::U8,
        "u16" => Dtype::U16,
        "u32" => Dtype::U32,
        "u64" => Dtype::U64,
        "i8" => Dtype::I8,
        "i16" => Dtype::I16,
        "i32" => Dtype::I32,
        "i64" => Dtype::I64,
        "f16" => Dtype::F16,
        "bf16" => Dtype::BF16,
        "f32" => Dtype::F32,
        "f64" => Dtype::F64,
        "f8e4m3fn" => Dtype::F8_E4M3,
        "f8e5m2" => Dtype::F8_E5M2,
        "f8e8m0fnu" => Dtype::F8_E8M0,
        name => return Err(Error::argument(format!("files of safetensors have no type for {name}"))),
    })
}

/// Returns the shape of a tensor whose bytes are elements of `T`.
#[track_caller]
fn shape_of<T: Element, const R: usize>(tensor: &TensorView<'_>) -> Result<[usize; R]> {
    let (found, shape) = (tensor.dtype(), tensor.shape());
    if found != dtype_of::<T>()? {
        return Err(Error::argument(format!("a tensor of {found:?}, of shape {shape:?}, is no array of {}", T::NAME)));
    }
    if T::NAME == "bool" && tensor.data().iter().any(|&byte| byte > 1) {
        return Err(Error::argument("a tensor of BOOL with bytes that are neither 0 nor 1"));
    }
    let Ok(dims) = <[usize; R]>::try_from(shape) else {
        return Err(Error::argument(format!("a tensor of shape {shape:?} has {} axes, not {R}", shape.len())));
    };
    Ok(dims)
}

/// Returns a tensor of a file as an array of the cpu device: without a copy if its bytes are
/// aligned for `T`, else with one.
///
/// # Errors
/// [`Error::Argument`] for another element type or number of axes.
#[track_caller]
pub fn read<'data, T: Element, const R: usize>(tensor: &TensorView<'data>) -> Result<HostArray<'data, T, R>> {
    let shape = shape_of::<T, R>(tensor)?;
    let address = tensor.data().as_ptr().expose_provenance() as u64;
    if tensor.data().is_empty() || !address.is_multiple_of(align_of::<T>() as u64) {
        return array(Device::cpu(), tensor).map(HostArray::owned);
    }
    let Some(layout) = Strided::contiguous(shape) else {
        return Err(Error::argument(format!("a tensor of shape {shape:?} fits in no memory")));
    };
    // SAFETY: the file checks the number of bytes against shape and type; they are borrowed for
    // `'data`, and every value of them is an element.
    unsafe { HostArray::new(address, shape, layout.strides) }
}

/// Copies a tensor of a file to a device, directly from the bytes of the file.
///
/// # Errors
/// [`Error::Argument`] for another element type or number of axes; else as [`Device::array`].
#[track_caller]
pub fn array<T: Element, const R: usize>(device: Device, tensor: &TensorView<'_>) -> Result<DeviceArray<T, R>> {
    let shape = shape_of::<T, R>(tensor)?;
    let array = device.unspecified(shape)?;
    // SAFETY: the array is borrowed nowhere else.
    unsafe { array.memory.write(0, tensor.data(), Access::Write) }?;
    Ok(array)
}

/// Copies an array or view of any device to a tensor that `safetensors::serialize` writes, after
/// the work that writes it.
///
/// # Errors
/// [`Error::Argument`] for element types that files do not have; [`Error::Driver`] if this work
/// failed.
#[track_caller]
pub fn tensor<T: Element, const R: usize>(of: &DeviceView<'_, T, R>) -> Result<HostTensor> {
    let dtype = dtype_of::<T>()?;
    let bytes = pack_host::to_bytes(&of.to_vec()?)?.into_owned();
    Ok(HostTensor { dtype, shape: of.shape().to_vec(), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{bf16, f8e4m3fn, f16, tf32};
    use ::safetensors::{SafeTensors, serialize};

    #[test]
    fn tensors_are_read_where_they_are() -> Result<()> {
        let device = Device::cpu();
        let (a, b) = (device.from_fn([3, 5], |[i, j]| f16::from_f32((i * 5 + j) as f32))?, device.full([7], true)?);
        let c = device.full([2, 2, 2], f8e4m3fn::from_bits(0x38))?;
        let tensors = [("a", tensor(&a.transpose()?)?), ("b", tensor(&b.view())?), ("c", tensor(&c.view())?)];
        let bytes = serialize(tensors, None).expect("a file");
        // In memory that is aligned, and at the following byte.
        for shift in [0, 1] {
            let mut room = vec![0u64; bytes.len() / 8 + 2];
            let room: &mut [u8] = bytemuck::cast_slice_mut(&mut room);
            room[shift..shift + bytes.len()].copy_from_slice(&bytes);
            let file = SafeTensors::deserialize(&room[shift..shift + bytes.len()]).expect("a file");
            let found = file.tensor("a").expect("a tensor");
            let read = read::<f16, 2>(&found)?;
            assert_eq!(read.view().to_vec()?, a.transpose()?.to_vec()?);
            assert_eq!(read.view().address() == found.data().as_ptr().addr() as u64, shift == 0);
            assert_eq!(array::<bool, 1>(device, &file.tensor("b").expect("a tensor"))?.to_vec()?, [true; 7]);
            assert_eq!(array::<f8e4m3fn, 3>(device, &file.tensor("c").expect("a tensor"))?.to_vec()?, c.to_vec()?);
            let text = array::<bf16, 2>(device, &found).expect_err("another type").to_string();
            assert!(text.contains("a tensor of F16, of shape [5, 3], is no array of bf16"), "{text}");
            let text = array::<f16, 1>(device, &found).expect_err("another rank").to_string();
            assert!(text.contains("has 2 axes, not 1") && text.contains("safetensors.rs"), "{text}");
        }
        assert!(tensor(&device.zeros::<tf32, 1>([4])?.view()).is_err());
        Ok(())
    }
}
