//! Operands and results in candle's memory on the host, for the interpreter. Operands are copied:
//! it takes far longer over them than that.

use candle_core::{CpuStorage, Error, Result, WithDType};
use cutlet as ct;
use cutlet::element::Element;
use cutlet::{Device, DeviceArray, DeviceViewMut, Stream};

use crate::place::Place;

/// The elements of an operand, in order.
pub fn read<T: WithDType + Element, const R: usize>(
    storage: &CpuStorage,
    place: &Place<R>,
) -> Result<DeviceArray<T, R>> {
    let all = storage.as_slice::<T>()?;
    let at = |index: [usize; R]| all[place.start + (0..R).map(|d| index[d] * place.strides[d]).sum::<usize>()];
    Device::cpu().from_fn(place.shape, at).map_err(Error::wrap)
}

/// A result of this shape, which `work` writes.
pub fn run<T: WithDType + Element + Default, const R: usize>(
    shape: [usize; R],
    work: impl FnOnce(&Stream, DeviceViewMut<'_, T, R>) -> ct::Result<()>,
) -> Result<CpuStorage> {
    let device = Device::cpu();
    let mut result = device.zeros(shape).map_err(Error::wrap)?;
    work(&device.default_stream(), result.view_mut()).map_err(Error::wrap)?;
    Ok(T::to_cpu_storage_owned(result.to_vec().map_err(Error::wrap)?))
}
