//! Operands and results in candle's memory on a GPU: kernels run on candle's own stream, and
//! nothing is copied.

use candle_core::cuda_backend::cudarc::driver::CudaSlice;
use candle_core::{CudaDevice, CudaStorage, Error, Result, bail};
use cutlet::foreign::cudarc::{Read, read_strided};

use crate::number::Stored;
use crate::place::Place;

/// The elements of an operand where they are.
pub fn read<'a, T: Stored + cutlet::element::Element, const R: usize>(
    name: &str,
    storage: &'a CudaStorage,
    place: &Place<R>,
) -> Result<Read<'a, T, R>> {
    let slice = storage.as_cuda_slice::<T>()?;
    let Place { start, shape, strides } = *place;
    if !place.is_apart() {
        bail!(
            "{name}: elements of a tensor of shape {shape:?} and strides {strides:?} lie in one place: `contiguous` takes them apart"
        )
    }
    match slice.try_slice(start..) {
        Some(slice) => read_strided(slice, shape, strides).map_err(Error::wrap),
        None => bail!("{name}: a tensor that starts at {start} in a storage of {} elements", slice.len()),
    }
}

/// Allocates memory for a result of `len` elements, all of which the kernel writes.
pub fn result<T: Stored>(device: &CudaDevice, len: usize) -> Result<CudaSlice<T>> {
    // SAFETY: every value of bits is a number of these types; the kernel of the caller writes every
    // element; without a launch, the slice is dropped unread.
    #[allow(unsafe_code)]
    unsafe {
        device.alloc(len)
    }
}
