//! Tensors of Python, which arrive as capsules of DLPack.

use std::ffi::CStr;
use std::ptr::NonNull;

use cutlet as ct;
use cutlet::element::Element;
use cutlet::foreign::dlpack::{ManagedTensor, TensorType};
use cutlet::{Device, DeviceArray, Stream};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

const NAME: &CStr = c"dltensor";
const USED: &CStr = c"used_dltensor";

/// Kinds of devices of DLPack whose memory the host reads.
const HOST: [i32; 2] = [1, 3];

/// A tensor of DLPack that belongs to this library. Its drop releases it.
struct Owned(NonNull<ManagedTensor>);

// SAFETY: a deleter may be called on any thread.
unsafe impl Send for Owned {}
// SAFETY: a shared reference permits no operation but reads of the description.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the capsule has transferred this tensor, and it is deleted once.
        unsafe {
            if let Some(delete) = self.0.as_ref().deleter {
                delete(self.0.as_ptr());
            }
        }
    }
}

/// A tensor of Python as a parameter of a `#[pyfunction]`: a capsule of `__dlpack__`, which is used
/// up.
///
/// [`Tensor::array`] and [`Tensor::rows`] make an array of it, in its own memory.
pub struct Tensor {
    owned: Owned,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl<'a, 'py> FromPyObject<'a, 'py> for Tensor {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Tensor> {
        let object = object.cast::<PyCapsule>().map_err(|_| {
            PyTypeError::new_err("a capsule of DLPack is needed: call the function through `cutlet.op`")
        })?;
        let pointer = object
            .pointer_checked(Some(NAME))
            .map_err(|_| PyTypeError::new_err("a capsule that is no tensor of DLPack, or that was used before"))?;
        // SAFETY: a capsule of this name holds such a tensor, which belongs to the first that
        // renames the capsule.
        unsafe {
            if pyo3::ffi::PyCapsule_SetName(object.as_ptr(), USED.as_ptr()) != 0 {
                return Err(PyErr::fetch(object.py()));
            }
            Tensor::new(Owned(pointer.cast()))
        }
    }
}

impl Tensor {
    /// # Safety
    /// The tensor is one of `dlpack.h`.
    unsafe fn new(owned: Owned) -> PyResult<Tensor> {
        // SAFETY: guaranteed by the caller.
        let tensor = unsafe { owned.0.as_ref() }.tensor;
        let rank = usize::try_from(tensor.rank).unwrap_or(0);
        let numbers = |from: *mut i64| -> PyResult<Option<Vec<usize>>> {
            if from.is_null() || rank == 0 {
                return Ok((rank == 0).then(Vec::new));
            }
            // SAFETY: guaranteed by the caller: a number for each axis.
            let numbers = unsafe { std::slice::from_raw_parts(from, rank) };
            let whole = |&n: &i64| usize::try_from(n);
            let numbers = numbers.iter().map(whole).collect::<Result<_, _>>();
            numbers.map(Some).map_err(|_| PyValueError::new_err("a tensor with a negative stride: make a copy of it"))
        };
        let shape = numbers(tensor.shape)?.unwrap_or_default();
        let strides = numbers(tensor.strides)?.unwrap_or_else(|| {
            let mut strides = vec![1; shape.len()];
            for d in (1..shape.len()).rev() {
                strides[d - 1] = strides[d] * shape[d].max(1);
            }
            strides
        });
        Ok(Tensor { owned, shape, strides })
    }

    fn description(&self) -> ct::foreign::dlpack::Tensor {
        // SAFETY: the tensor is alive as long as its owner.
        unsafe { self.owned.0.as_ref() }.tensor
    }

    /// Returns the extents.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the element type, as DLPack codes it.
    #[must_use]
    pub fn dtype(&self) -> TensorType {
        self.description().dtype
    }

    /// Returns the device.
    ///
    /// # Errors
    /// For devices that are neither the host nor a GPU of CUDA.
    pub fn device(&self) -> PyResult<Device> {
        let device = self.description().device;
        match device.kind {
            kind if HOST.contains(&kind) => Ok(Device::cpu()),
            2 | 13 => Device::gpu(device.ordinal as usize).map_err(failed),
            kind => Err(PyValueError::new_err(format!(
                "a tensor on a device of kind {kind} of DLPack: neither host nor CUDA"
            ))),
        }
    }

    /// Returns an array over the elements, of `R` axes.
    ///
    /// # Errors
    /// For another element type or number of axes.
    pub fn array<T: Element, const R: usize>(self, stream: &Stream) -> PyResult<DeviceArray<T, R>> {
        let (Ok(shape), Ok(strides)) = (self.shape.clone().try_into(), self.strides.clone().try_into()) else {
            return Err(PyValueError::new_err(format!(
                "a tensor of shape {:?} has {} axes, not {R}",
                self.shape,
                self.shape.len()
            )));
        };
        self.placed(stream, shape, strides)
    }

    /// Returns an array of four axes over the elements. The last axis remains the last one. The
    /// others are joined where their strides permit it.
    ///
    /// # Errors
    /// For another element type, a tensor without axes, and one whose rows have too many places for
    /// a grid.
    pub fn rows<T: Element>(self, stream: &Stream) -> PyResult<DeviceArray<T, 4>> {
        let (Some((&row, dims)), Some((&step, strides))) = (self.shape.split_last(), self.strides.split_last()) else {
            return Err(PyValueError::new_err("a tensor without axes has no rows"));
        };
        let mut axes: Vec<(usize, usize)> = Vec::new();
        for (&extent, &stride) in dims.iter().zip(strides).rev().filter(|(extent, _)| **extent != 1) {
            match axes.last_mut() {
                Some((inner, below)) if stride == *inner * *below => *inner *= extent,
                _ => axes.push((extent, stride)),
            }
        }
        if axes.len() > 3 || axes.iter().skip(1).any(|&(extent, _)| extent > 65535) {
            let (shape, strides) = (&self.shape, &self.strides);
            return Err(PyValueError::new_err(format!(
                "the rows of a tensor of shape {shape:?} and strides {strides:?} have too many places: make it contiguous"
            )));
        }
        let (mut shape, mut places, mut whole) = ([1, 1, 1, row], [1, 1, 1, step], (row * step).max(1));
        for d in 0..3 {
            (shape[2 - d], places[2 - d]) = axes.get(d).copied().unwrap_or((1, whole));
            whole = (shape[2 - d] * places[2 - d]).max(1);
        }
        self.placed(stream, shape, places)
    }

    /// Returns an array over the elements that is a matrix: its rows are those of the last axis.
    ///
    /// # Errors
    /// As [`Tensor::rows`], and for rows that are no single axis.
    pub fn matrix<T: Element>(self, stream: &Stream) -> PyResult<DeviceArray<T, 2>> {
        let shape = self.shape.clone();
        let rows = self.rows::<T>(stream)?;
        let [a, b, count, columns] = rows.shape();
        if a * b != 1 {
            return Err(PyValueError::new_err(format!(
                "the rows of a tensor of shape {shape:?} are no matrix: make it contiguous"
            )));
        }
        rows.into_shape([count, columns]).map_err(failed)
    }

    /// Returns words whose type in Python is i32 as u32, of two axes.
    #[cfg(feature = "module")]
    pub(crate) fn bits_of_i32(mut self, stream: &Stream) -> PyResult<DeviceArray<u32, 2>> {
        // SAFETY: the tensor is alive as long as its owner; both types have the same values of
        // bits.
        unsafe { self.owned.0.as_mut() }.tensor.dtype.code = 1;
        self.array::<u32, 2>(stream)
    }

    fn placed<T: Element, const R: usize>(
        self,
        stream: &Stream,
        shape: [usize; R],
        strides: [usize; R],
    ) -> PyResult<DeviceArray<T, R>> {
        let (tensor, wanted) = (self.description(), type_of::<T>());
        if tensor.dtype != wanted {
            return Err(PyTypeError::new_err(format!(
                "a tensor of {} where {} is needed",
                name_of(tensor.dtype),
                T::NAME
            )));
        }
        let address = (tensor.data.expose_provenance() as u64).wrapping_add(tensor.byte_offset);
        let address = if shape.contains(&0) { 256 } else { address };
        // SAFETY: the tensor is alive until its deleter is called, which the array owns. Its work
        // is on this stream, as the caller of `__dlpack__` states, and the framework does not use
        // it before the function returns.
        unsafe { stream.foreign_array(address, shape, strides, self.owned) }.map_err(failed)
    }
}

/// Returns the type of DLPack of an element type.
fn type_of<T: Element>() -> TensorType {
    let (code, bits) = match T::NAME {
        "bool" => (6, 8),
        "bf16" => (4, 16),
        name => {
            let bits = name[1..].parse().unwrap_or(0);
            (
                match &name[..1] {
                    "i" => 0,
                    "u" => 1,
                    _ => 2,
                },
                bits,
            )
        }
    };
    TensorType { code, bits, lanes: 1 }
}

/// Returns the name of a type of DLPack.
pub(crate) fn name_of(dtype: TensorType) -> String {
    let kind = match dtype.code {
        0 => "i",
        1 => "u",
        2 => "f",
        4 => "bf",
        6 => return "bool".into(),
        _ => return format!("{dtype:?}"),
    };
    format!("{kind}{}", dtype.bits)
}

/// Converts an error of cutlet to one of Python: `ValueError` for arguments, else `RuntimeError`.
pub fn failed(error: ct::Error) -> PyErr {
    match error {
        ct::Error::Argument(_) => PyValueError::new_err(error.to_string()),
        _ => pyo3::exceptions::PyRuntimeError::new_err(error.to_string()),
    }
}

/// Returns the stream of a call: that of the caller on the GPU of the tensor, given as the number
/// that `torch` and CuPy have for it, or the default stream of the device.
///
/// # Errors
/// As [`Tensor::device`]; for a stream of another GPU.
pub fn stream_of(tensor: &Tensor, raw: Option<usize>) -> PyResult<Stream> {
    let device = tensor.device()?;
    match raw {
        Some(raw) if device != Device::cpu() => {
            let raw = std::ptr::with_exposed_provenance_mut(raw);
            // SAFETY: the framework keeps its streams during the call, and frees none while work is
            // queued.
            unsafe { device.foreign_stream(raw, ()) }.map_err(failed)
        }
        _ => Ok(device.default_stream()),
    }
}
