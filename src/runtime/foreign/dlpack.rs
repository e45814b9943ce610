//! DLPack: tensors from one library to another, as torch, JAX, CuPy and numpy hand them out.
//!
//! A tensor travels as a pointer to a [`ManagedTensor`], which tells where its elements lie and how it is given back. What
//! travels is owned: [`import`] takes the tensor over, [`export`] gives an array away.
//!
//! Which stream its work is on the pointer does not say; that is agreed beside it (in Python by `__dlpack__(stream=…)`). So
//! both functions take the stream on which the other side works.
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
//! These are the structures of version 1 and before without their version (`DLManagedTensor` in `dlpack.h`), which every
//! library takes; in Python such a capsule has the name `dltensor`.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::dtype::DType;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::runtime::array::array::DeviceArray;
use crate::runtime::device::stream::Stream;

/// Kinds of devices, as far as arrays here lie on them.
const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const CUDA_MANAGED: i32 = 13;

/// `DLDevice`: where a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TensorDevice {
    /// Its kind: 1 for host memory, 2 for a CUDA device.
    pub kind: i32,
    /// Its number among those of this kind.
    pub ordinal: i32,
}

/// `DLDataType`: what the elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TensorType {
    /// Signed integer 0, unsigned integer 1, IEEE float 2, bf16 4, bool 6; from 10 on the kinds of small floats.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// Numbers of an element; 1 but for vector types.
    pub lanes: u16,
}

/// `DLTensor`: where the elements are.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Tensor {
    /// The memory.
    pub data: *mut c_void,
    /// Where that is.
    pub device: TensorDevice,
    /// Number of axes.
    pub rank: i32,
    /// Type of the elements.
    pub dtype: TensorType,
    /// Extents, `rank` of them.
    pub shape: *mut i64,
    /// Strides in elements, `rank` of them, or null for row-major.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensor`: a tensor that travels, with the way to give it back.
#[derive(Debug)]
#[repr(C)]
pub struct ManagedTensor {
    /// The tensor.
    pub tensor: Tensor,
    /// What its maker needs to free it.
    pub context: *mut c_void,
    /// Frees it, this structure included; null if there is nothing to free.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// The owner of an imported tensor: gives it back.
struct Imported(NonNull<ManagedTensor>);

// SAFETY: a deleter may be called on any thread, as consumers hand tensors on to other threads.
unsafe impl Send for Imported {}
// SAFETY: there is nothing that can be done with a shared one.
unsafe impl Sync for Imported {}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: promised to `import`: a tensor that is alive, and given back once.
        unsafe {
            if let Some(delete) = self.0.as_ref().deleter {
                delete(self.0.as_ptr());
            }
        }
    }
}

/// Takes a tensor over as an array, without a copy; it is given back when the array goes. `stream` is the one on which
/// the other side has queued its work on the tensor (in Python the one that `__dlpack__` was given), of the device that
/// the tensor is on: the default stream of the cpu device for host memory.
///
/// # Errors
/// [`Error::Argument`] for a null pointer and for a tensor of another type, number of axes or device, with negative
/// strides, or with strides with which elements overlap. The caller still owns the tensor then.
///
/// # Safety
/// `tensor` is null or a tensor of `dlpack.h` as it is before version 1, or without a version. Nobody else uses it any
/// more, or gives it back. Its elements may be written (a flag for read-only there is from version 1 on), are values of
/// `T`, and are used by nobody else as long as the array lives, but for work that is on `stream` now.
#[track_caller]
pub unsafe fn import<T: Element, const R: usize>(
    tensor: *mut ManagedTensor,
    stream: &Stream,
) -> Result<DeviceArray<T, R>> {
    let Some(managed) = NonNull::new(tensor) else {
        return Err(Error::argument("a null pointer for a tensor of DLPack"));
    };
    // SAFETY: promised by the caller.
    let tensor = unsafe { managed.as_ref() }.tensor;
    check_kind::<T, R>(&tensor, stream)?;
    // SAFETY: promised by the caller: so many numbers, or null.
    let numbers = |numbers: *mut i64| unsafe { read_numbers::<R>(numbers) };
    let Some(shape) = numbers(tensor.shape)? else {
        return Err(Error::argument("a tensor of DLPack without extents"));
    };
    let strides = numbers(tensor.strides)?.unwrap_or_else(|| row_major(shape));
    let address = (tensor.data.expose_provenance() as u64).wrapping_add(tensor.byte_offset);
    // What would be refused is refused before the tensor is taken over.
    let (_, bytes) = super::layout::<T, R>(shape, strides)?;
    super::check_address::<T>(address, bytes)?;
    // SAFETY: promised by the caller.
    unsafe { stream.foreign_array(address, shape, strides, Imported(managed)) }
}

/// Type, axes and device.
#[track_caller]
fn check_kind<T: Element, const R: usize>(tensor: &Tensor, stream: &Stream) -> Result<()> {
    let want = type_of::<T>()?;
    if tensor.dtype != want {
        return Err(Error::argument(format!("a tensor of {:?} is no array of {} ({want:?})", tensor.dtype, T::NAME)));
    }
    if usize::try_from(tensor.rank) != Ok(R) {
        return Err(Error::argument(format!("a tensor of {} axes is no array of rank {R}", tensor.rank)));
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
            let (its, device) = (tensor.device, stream.device());
            Err(Error::argument(format!("a tensor on {its:?} of DLPack is not on {device}, whose stream was given")))
        }
    }
}

/// Numbers of a tensor, none of them negative; `None` if there is no list.
///
/// # Safety
/// There are `R` of them, or the pointer is null.
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
        // SAFETY: promised by the caller.
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

/// What an exported tensor holds: the array, and the numbers that the tensor points to.
struct Exported<T, const R: usize> {
    tensor: ManagedTensor,
    shape: [i64; R],
    strides: [i64; R],
    _array: DeviceArray<T, R>,
}

/// Gives an array away as a tensor; its deleter frees the array, in the order of its streams. `stream` is the one on which
/// the other side works: what is queued there from now on comes after the work on the array. What it queues on other
/// streams it orders itself, and what is still queued when it calls the deleter has to be on `stream`.
///
/// # Errors
/// [`Error::Argument`] for a stream of another device, and for elements of four bits; [`Error::Driver`] when earlier work
/// on the device failed. The array is dropped then.
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
        // The other side may write: so this is the use that all later ones come after, the end of the array too.
        array.memory.before_use(stream, true)?;
    }
    let data = std::ptr::with_exposed_provenance_mut(array.address() as usize);
    let (shape, strides) = (array.layout.shape.map(|n| n as i64), array.layout.strides.map(|n| n as i64));
    let none = std::ptr::null_mut();
    let tensor = Tensor { data, device, rank: R as i32, dtype, shape: none, strides: none, byte_offset: 0 };
    let tensor = ManagedTensor { tensor, context: std::ptr::null_mut(), deleter: Some(delete::<T, R>) };
    let exported = Box::into_raw(Box::new(Exported { tensor, shape, strides, _array: array }));
    // SAFETY: just made. All pointers are made from that of the whole, which is alive until `delete`.
    unsafe {
        (*exported).tensor.context = exported.cast();
        (*exported).tensor.tensor.shape = (&raw mut (*exported).shape).cast();
        (*exported).tensor.tensor.strides = (&raw mut (*exported).strides).cast();
        Ok(&raw mut (*exported).tensor)
    }
}

/// The deleter of [`export`].
unsafe extern "C" fn delete<T, const R: usize>(tensor: *mut ManagedTensor) {
    // SAFETY: called once, with what `export` has made.
    drop(unsafe { Box::from_raw((*tensor).context.cast::<Exported<T, R>>()) });
}

/// How DLPack names an element type.
///
/// # Errors
/// [`Error::Argument`] for one that it has no name for, and for those of four bits, which lie two in a byte only here.
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
