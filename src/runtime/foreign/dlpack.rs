//! DLPack: exchange of tensors between libraries, as in torch, JAX, CuPy and numpy.
//!
//! A tensor is exchanged as a pointer to a [`ManagedTensor`], which has the place of its elements
//! and its deleter. The exchange transfers ownership: [`import`] acquires a tensor, [`export`]
//! releases an array.
//!
//! The pointer does not name the stream of the work on the tensor. The libraries agree on it
//! separately, in Python by `__dlpack__(stream=…)`. Both functions therefore have the stream of the
//! other library as a parameter.
//!
//! ```
//! use cutlet as ct;
//! use cutlet::foreign::dlpack;
//!
//! let device = ct::Device::cpu();
//! let a = device.array(&[1i32, 2, 3, 4, 5, 6], [2, 3])?;
//! let tensor = dlpack::export(a, &device.default_stream())?; // for a capsule of Python, say
//! // SAFETY: it was just made, and nobody else takes it.
//! let b = unsafe { dlpack::import::<i32, 2>(tensor, &device.default_stream()) }?;
//! assert_eq!(b.to_vec()?, [1, 2, 3, 4, 5, 6]);
//! # Ok::<(), ct::Error>(())
//! ```
//!
//! The structures are those up to version 1, without their version (`DLManagedTensor` in
//! `dlpack.h`), which every library accepts. In Python, such a capsule has the name `dltensor`.

use crate::util::collect::CollectVec as _;
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;

use crate::dtype::DType;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::runtime::array::array::DeviceArray;
use crate::runtime::array::stream_order::Access;
use crate::runtime::device::stream::Stream;

/// Kinds of devices that arrays of this crate can be on.
const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const CUDA_MANAGED: i32 = 13;

/// `DLDevice`: the device of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TensorDevice {
    /// The kind: 1 for host memory, 2 for a CUDA device.
    pub kind: i32,
    /// The number of the device among those of its kind.
    pub ordinal: i32,
}

/// `DLDataType`: the element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TensorType {
    /// Signed integer 0, unsigned integer 1, IEEE float 2, bf16 4, bool 6; small floats from 10 on.
    pub code: u8,
    /// The number of bits of an element.
    pub bits: u8,
    /// The number of values of an element: 1 except for vector types.
    pub lanes: u16,
}

/// `DLTensor`: the place of the elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Tensor {
    /// The address of the memory.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: TensorDevice,
    /// The number of axes.
    pub rank: i32,
    /// The type of the elements.
    pub dtype: TensorType,
    /// The `rank` extents.
    pub shape: *mut i64,
    /// The `rank` strides in elements, or null for row-major.
    pub strides: *mut i64,
    /// The offset of the first element from `data`, in bytes.
    pub byte_offset: u64,
}

/// `DLManagedTensor`: a tensor and its deleter.
#[derive(Debug)]
#[repr(C)]
pub struct ManagedTensor {
    /// The tensor.
    pub tensor: Tensor,
    /// Data of the exporting library for the deleter.
    pub context: *mut c_void,
    /// Frees the tensor, including this structure. Null if there is nothing to free.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// The owner of an imported tensor. Its drop calls the deleter.
struct Imported(NonNull<ManagedTensor>);

// SAFETY: a deleter may be called on any thread, as importers may move tensors to other threads.
unsafe impl Send for Imported {}
// SAFETY: a shared reference permits no operation.
unsafe impl Sync for Imported {}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: guaranteed to `import`: the tensor is alive, and is deleted once.
        unsafe {
            if let Some(delete) = self.0.as_ref().deleter {
                delete(self.0.as_ptr());
            }
        }
    }
}

/// Imports a tensor as an array, without a copy. The drop of the array calls the deleter. `stream`
/// is the stream on which the other library has queued its work on the tensor (in Python, the
/// argument of `__dlpack__`). It belongs to the device of the tensor: the default stream of the cpu
/// device for host memory.
///
/// # Errors
/// [`Error::Argument`] for a null pointer, for a tensor of another type, number of axes or device,
/// with negative strides, or with strides that make elements overlap. After an error the caller
/// still owns the tensor.
///
/// # Safety
/// * `tensor` is null or a tensor of `dlpack.h` before version 1, or without a version.
/// * No other code uses the tensor afterwards, or calls its deleter.
/// * Its elements are values of `T` and may be written. (A flag for read-only tensors exists from
///   version 1 on.)
/// * During the life of the array, no other code uses the elements, except for work that is on
///   `stream` now.
#[track_caller]
pub unsafe fn import<T: Element, const R: usize>(
    tensor: *mut ManagedTensor,
    stream: &Stream,
) -> Result<DeviceArray<T, R>> {
    let Some(managed) = NonNull::new(tensor) else {
        return Err(Error::argument("a null pointer for a tensor of DLPack"));
    };
    // SAFETY: guaranteed by the caller.
    let tensor = unsafe { managed.as_ref() }.tensor;
    // SAFETY: guaranteed by the caller: as many numbers as the tensor has axes, or null.
    check_kind::<T, R>(&tensor, || unsafe { text_of(&tensor) }, stream)?;
    // SAFETY: guaranteed by the caller: `R` numbers, or null.
    let numbers = |numbers: *mut i64| unsafe { read_numbers::<R>(numbers) };
    let Some(shape) = numbers(tensor.shape)? else {
        return Err(Error::argument("a tensor of DLPack without extents"));
    };
    let strides = numbers(tensor.strides)?.unwrap_or_else(|| row_major(shape));
    let address = (tensor.data.expose_provenance() as u64).wrapping_add(tensor.byte_offset);
    // All checks precede the transfer of ownership.
    let (_, bytes) = super::layout::<T, R>(shape, strides)?;
    super::check_address::<T>(address, bytes)?;
    // SAFETY: guaranteed by the caller.
    unsafe { stream.foreign_array(address, shape, strides, Imported(managed)) }
}

/// Checks type, number of axes and device.
#[track_caller]
fn check_kind<T: Element, const R: usize>(tensor: &Tensor, text: impl Fn() -> String, stream: &Stream) -> Result<()> {
    if tensor.dtype != type_of::<T>()? {
        let message = format!("a tensor of {} is no array of {}", text(), T::NAME);
        return Err(Error::argument(format!("{message}: import it as its type, or convert it in the other library")));
    }
    if usize::try_from(tensor.rank) != Ok(R) {
        let message = format!("a tensor of {} has {} axes, the array has {R}", text(), tensor.rank);
        return Err(Error::argument(format!("{message}: reshape it in the other library, or import it with its rank")));
    }
    let fits = match (stream.device().as_gpu(), tensor.device.kind) {
        (None, CPU | CUDA_HOST) => true,
        (Some(gpu), CUDA) => usize::try_from(tensor.device.ordinal) == Ok(gpu.ordinal),
        (Some(_), CUDA_MANAGED) => true,
        _ => false,
    };
    match fits {
        true => Ok(()),
        false => {
            let (TensorDevice { kind, ordinal }, device) = (tensor.device, stream.device());
            let its = match kind {
                CPU => "host memory".to_string(),
                CUDA => format!("GPU {ordinal}"),
                _ => format!("device {ordinal} of kind {kind} of DLPack"),
            };
            Err(Error::argument(format!("a tensor in the memory of {its} is not on {device}, whose stream was given")))
        }
    }
}

/// Returns the element type and the extents of a tensor for a message: `f64 [4, 4]`.
///
/// # Safety
/// The extents are null, or point to as many numbers as the tensor has axes.
unsafe fn text_of(tensor: &Tensor) -> String {
    let rank = usize::try_from(tensor.rank).unwrap_or(0);
    let shape: Vec<i64> = match tensor.shape.is_null() {
        true => Vec::new(),
        // SAFETY: guaranteed by the caller.
        false => (0..rank).map(|d| unsafe { tensor.shape.add(d).read() }).collect_vec(),
    };
    format!("{} {shape:?}", tensor.dtype)
}

/// The name of the element type: `f32`, `u8`, `bf16`.
impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits;
        match self.code {
            0 => write!(f, "i{bits}"),
            1 => write!(f, "u{bits}"),
            2 => write!(f, "f{bits}"),
            4 => write!(f, "bf{bits}"),
            5 => write!(f, "complex numbers of {bits} bits"),
            6 => write!(f, "bool"),
            10 => write!(f, "f8e4m3fn"),
            12 => write!(f, "f8e5m2"),
            14 => write!(f, "f8e8m0fnu"),
            code => write!(f, "type {code} of DLPack of {bits} bits"),
        }?;
        if self.lanes == 1 { Ok(()) } else { write!(f, " (vectors of {})", self.lanes) }
    }
}

/// Returns the numbers of a list of a tensor, none of them negative; `None` for a null list.
///
/// # Safety
/// `from` is null, or points to `R` numbers.
#[track_caller]
unsafe fn read_numbers<const R: usize>(from: *mut i64) -> Result<Option<[usize; R]>> {
    if R == 0 {
        return Ok(Some([0; R]));
    }
    if from.is_null() {
        return Ok(None);
    }
    let mut to = [0; R];
    for (d, to) in to.iter_mut().enumerate() {
        // SAFETY: guaranteed by the caller.
        let number = unsafe { from.add(d).read() };
        *to = usize::try_from(number).map_err(|_| {
            Error::argument(format!("a tensor of DLPack with an extent or stride of {number}: none is negative here"))
        })?;
    }
    Ok(Some(to))
}

fn row_major<const R: usize>(shape: [usize; R]) -> [usize; R] {
    let mut strides = [1usize; R];
    for d in (1..R).rev() {
        strides[d - 1] = strides[d].saturating_mul(shape[d].max(1));
    }
    strides
}

/// The context of an exported tensor: the array, and the numbers that the tensor points to.
struct Exported<T, const R: usize> {
    tensor: ManagedTensor,
    shape: [i64; R],
    strides: [i64; R],
    _array: DeviceArray<T, R>,
}

/// Exports an array as a tensor. The deleter frees the array, in the order of its streams. `stream`
/// is the stream of the other library: its later work there is ordered after the work on the array.
/// The other library orders its work on other streams. Work that is still queued at the call of the
/// deleter must be on `stream`.
///
/// # Errors
/// [`Error::Argument`] for a stream of another device, and for elements of four bits;
/// [`Error::Driver`] if earlier work on the device failed. After an error the array is dropped.
///
/// ```
/// use cutlet::foreign::dlpack;
/// let device = cutlet::Device::cpu();
/// let tensor = dlpack::export(device.array(&[1.0f32, 2.0], [2])?, &device.default_stream())?;
/// // SAFETY: it was just made, and nobody else takes it.
/// let array = unsafe { dlpack::import::<f32, 1>(tensor, &device.default_stream()) }?;
/// assert_eq!(array.to_vec()?, [1.0, 2.0]);
/// # Ok::<(), cutlet::Error>(())
/// ```
#[track_caller]
pub fn export<T: Element, const R: usize>(array: DeviceArray<T, R>, stream: &Stream) -> Result<*mut ManagedTensor> {
    let dtype = type_of::<T>()?;
    if array.device() != stream.device() {
        let (own, other) = (array.device(), stream.device());
        return Err(Error::argument(format!("the array is on {own}, the stream belongs to {other}")));
    }
    let device = match array.device().as_gpu() {
        None => TensorDevice { kind: CPU, ordinal: 0 },
        Some(gpu) => TensorDevice { kind: CUDA, ordinal: gpu.ordinal as i32 },
    };
    if let Some(stream) = stream.as_gpu() {
        // The other library may write. All later uses, including the drop of the array, are ordered
        // after this use.
        array.memory.before_use(stream, Access::Write)?;
    }
    let data = std::ptr::with_exposed_provenance_mut(array.address() as usize);
    let (shape, strides) = (array.layout.shape.map(|n| n as i64), array.layout.strides.map(|n| n as i64));
    let none = std::ptr::null_mut();
    let tensor = Tensor { data, device, rank: R as i32, dtype, shape: none, strides: none, byte_offset: 0 };
    let tensor = ManagedTensor { tensor, context: std::ptr::null_mut(), deleter: Some(delete::<T, R>) };
    let exported = Box::into_raw(Box::new(Exported { tensor, shape, strides, _array: array }));
    // SAFETY: just made. All pointers are derived from that of the whole, which is alive until
    // `delete`.
    unsafe {
        (*exported).tensor.context = exported.cast();
        (*exported).tensor.tensor.shape = (&raw mut (*exported).shape).cast();
        (*exported).tensor.tensor.strides = (&raw mut (*exported).strides).cast();
        Ok(&raw mut (*exported).tensor)
    }
}

/// The deleter of a tensor of [`export`].
unsafe extern "C" fn delete<T, const R: usize>(tensor: *mut ManagedTensor) {
    // SAFETY: called once, with a tensor that `export` has made.
    drop(unsafe { Box::from_raw((*tensor).context.cast::<Exported<T, R>>()) });
}

/// Returns DLPack's code of an element type.
///
/// # Errors
/// [`Error::Argument`] for a type without a code, and for those of four bits, of which only this
/// crate packs two into a byte.
#[track_caller]
fn type_of<T: Element>() -> Result<TensorType> {
    let code = match T::DTYPE {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => u8::from(!T::SIGNED),
        DType::F16 | DType::F32 | DType::TF32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::I1 => 6,
        DType::F8E4M3FN => 10,
        DType::F8E5M2 => 12,
        DType::F8E8M0FNU => 14,
        DType::I4 | DType::F4E2M1FN | DType::F8E5M3FNU => {
            let name = T::NAME;
            return Err(Error::argument(format!("tensors of DLPack have no elements of type {name}: use u8")));
        }
    };
    Ok(TensorType { code, bits: T::DTYPE.storage_bits() as u8, lanes: 1 })
}

#[cfg(test)]
mod tests;
