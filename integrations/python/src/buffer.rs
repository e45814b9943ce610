//! Memory of cutlet as tensors for libraries whose arrays cannot be written in place, such as JAX.

use std::ffi::c_void;

use cutlet::foreign::dlpack::{self, ManagedTensor, TensorType};
use cutlet::{Device, DeviceArray};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::tensor::failed;

/// A result in memory of cutlet, with `__dlpack__`. It is written once, by its `target`, and
/// exported once.
#[pyclass(module = "cutlet._native")]
pub struct Buffer {
    /// The bytes, until they are exported.
    bytes: Option<DeviceArray<u8, 1>>,
    dtype: TensorType,
    shape: Vec<usize>,
}

/// A tensor with a description of its own, over the memory of another one.
struct Described {
    tensor: ManagedTensor,
    shape: Vec<i64>,
    /// The owner of the memory, if the tensor owns it.
    memory: *mut ManagedTensor,
}

/// # Safety
/// `tensor` is that of a [`Described`], and is deleted once.
unsafe extern "C" fn delete(tensor: *mut ManagedTensor) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let described = Box::from_raw((*tensor).context.cast::<Described>());
        if let Some(memory) = described.memory.as_ref()
            && let Some(delete) = memory.deleter
        {
            delete(described.memory);
        }
    }
}

/// Returns a capsule, which deletes the tensor unless another library has used it.
fn capsule(py: Python<'_>, described: Box<Described>) -> PyResult<Bound<'_, PyCapsule>> {
    unsafe extern "C" fn end(capsule: *mut pyo3::ffi::PyObject) {
        // SAFETY: the capsule holds a tensor as long as it has this name.
        unsafe {
            if pyo3::ffi::PyCapsule_IsValid(capsule, c"dltensor".as_ptr()) == 1 {
                delete(pyo3::ffi::PyCapsule_GetPointer(capsule, c"dltensor".as_ptr()).cast());
            }
        }
    }
    let described = Box::into_raw(described);
    // SAFETY: the box is alive until `delete`; the name is static.
    unsafe {
        (*described).tensor.context = described.cast::<c_void>();
        (*described).tensor.tensor.shape = (*described).shape.as_mut_ptr();
        let tensor = (&raw mut (*described).tensor).cast::<c_void>();
        let made = pyo3::ffi::PyCapsule_New(tensor, c"dltensor".as_ptr(), Some(end));
        let made = Bound::from_owned_ptr_or_err(py, made)?;
        made.cast_into::<PyCapsule>().map_err(PyErr::from)
    }
}

#[pymethods]
impl Buffer {
    /// Allocates memory. `gpu`: the number of the GPU, else the host.
    #[new]
    #[pyo3(signature = (shape, code, bits, gpu=None))]
    fn new(shape: Vec<usize>, code: u8, bits: u8, gpu: Option<usize>) -> PyResult<Buffer> {
        let device = match gpu {
            Some(gpu) => Device::gpu(gpu).map_err(failed)?,
            None => Device::cpu(),
        };
        let bytes = shape.iter().try_fold(usize::from(bits / 8), |bytes, &extent| bytes.checked_mul(extent));
        let Some(bytes) = bytes else {
            return Err(PyValueError::new_err(format!("no memory has a tensor of shape {shape:?}")));
        };
        let bytes = device.zeros([bytes.max(1)]).map_err(failed)?;
        Ok(Buffer { bytes: Some(bytes), dtype: TensorType { code, bits, lanes: 1 }, shape })
    }

    /// Returns the tensor for the kernel, which writes it before the buffer is exported.
    fn target<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let Some(bytes) = &self.bytes else { return Err(PyBufferError::new_err("the buffer was exported before")) };
        let (kind, ordinal) = self.__dlpack_device__();
        let data = std::ptr::with_exposed_provenance_mut(bytes.address() as usize);
        let tensor = dlpack::Tensor {
            data,
            device: dlpack::TensorDevice { kind, ordinal },
            rank: self.shape.len() as i32,
            dtype: self.dtype,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        self.described(py, tensor, std::ptr::null_mut())
    }

    #[pyo3(signature = (**_options))]
    fn __dlpack__<'py>(
        &mut self,
        py: Python<'py>,
        _options: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let Some(bytes) = self.bytes.take() else {
            return Err(PyBufferError::new_err("the buffer was exported before"));
        };
        // The work is complete: the caller has waited for it.
        let stream = bytes.device().default_stream();
        let memory = dlpack::export(bytes, &stream).map_err(failed)?;
        // SAFETY: just exported.
        let tensor = unsafe { (*memory).tensor };
        let tensor = dlpack::Tensor {
            rank: self.shape.len() as i32,
            dtype: self.dtype,
            strides: std::ptr::null_mut(),
            ..tensor
        };
        self.described(py, tensor, memory)
    }

    /// Returns kind and number of the device.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = self.bytes.as_ref().map(DeviceArray::device);
        match device.and_then(|device| (0..Device::num_gpus()).find(|&n| Device::gpu(n).is_ok_and(|gpu| gpu == device)))
        {
            Some(ordinal) => (2, ordinal as i32),
            None => (1, 0),
        }
    }
}

impl Buffer {
    fn described<'py>(
        &self,
        py: Python<'py>,
        tensor: dlpack::Tensor,
        memory: *mut ManagedTensor,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let tensor = ManagedTensor { tensor, context: std::ptr::null_mut(), deleter: Some(delete) };
        let shape = self.shape.iter().map(|&extent| extent as i64).collect();
        capsule(py, Box::new(Described { tensor, shape, memory }))
    }
}
