//! RMSNorm over the last axis.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, Error};
#[cfg(feature = "cuda")]
use cutlet::foreign::cudarc::{with, write};

use crate::cpu;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::gradients;
use crate::number::{by_dtype, same_dtype};
use crate::place::{Place, reachable};

/// RMSNorm over the last axis, of f32, f16 or bf16: an operation for `Tensor::apply_op2`, with a
/// weight for each element of a row.
///
/// Rows may have any length; sums are made in f32, and the result is rounded once. See
/// [`rms_norm`].
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm {
    /// Number that is added to the mean of the squares.
    pub epsilon: f32,
}

/// Places of operand and weight.
fn places(name: &str, layout: &Layout, weight: &Layout) -> Result<(Place<4>, Place<1>)> {
    let (x, w) = (Place::rows(name, layout)?, Place::<1>::of(name, weight)?);
    if x.shape[3] != w.shape[0] {
        bail!("{name}: rows of a tensor of shape {:?}, and a weight of {} elements", layout.dims(), w.shape[0])
    }
    Ok((x, w))
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "cutlet-rms-norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, weight: &CpuStorage, lw: &Layout) -> Result<(CpuStorage, Shape)> {
        let (place, of_weight) = places(self.name(), lx, lw)?;
        let y = by_dtype!(self.name(), same_dtype(self.name(), x.dtype(), weight.dtype())?, T => {
            let (x, weight) = (cpu::read::<T, 4>(x, &place)?, cpu::read::<T, 1>(weight, &of_weight)?);
            cpu::run(place.shape, |stream, y| cutlet_kernels::rms_norm(stream, x.view(), weight.view(), y, self.epsilon))
        })?;
        Ok((y, lx.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let [of_x, of_weight] = gradients::rms_norm(x, weight, grad, self.epsilon)?;
        Ok((Some(of_x), Some(of_weight)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        lx: &Layout,
        weight: &CudaStorage,
        lw: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (place, of_weight) = places(self.name(), lx, lw)?;
        let (device, stream) = (&x.device, x.device.cuda_stream());
        let y = by_dtype!(self.name(), same_dtype(self.name(), x.dtype(), weight.dtype())?, T => {
            let mut y = cuda::result::<T>(device, lx.shape().elem_count())?;
            let x = cuda::read::<T, 4>(self.name(), x, &place)?;
            let weight = cuda::read::<T, 1>(self.name(), weight, &of_weight)?;
            let operands = (x, weight, write(&mut y, place.shape).map_err(Error::wrap)?);
            with(&stream, operands, |stream, (x, weight, y)| cutlet_kernels::rms_norm(stream, x, weight, y, self.epsilon)).map_err(Error::wrap)?;
            Ok(CudaStorage::wrap_cuda_slice(y, device.clone()))
        })?;
        Ok((y, lx.shape().clone()))
    }
}

/// RMSNorm over the last axis of a tensor of any shape: x / √(mean of x² + epsilon) · weight.
///
/// f32, f16, bf16, the weight of the same type; any strides, as [`softmax`](crate::softmax). The
/// result is contiguous.
///
/// ```
/// # use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[3f32, -4.0], [0.5, 0.5]], &Device::Cpu)?;
/// let weight = Tensor::new(&[1f32, 10.0], &Device::Cpu)?;
/// let y = cutlet_candle::rms_norm(&x, &weight, 0.0)?.to_vec2::<f32>()?;
/// assert!((y[0][1] + 40.0 / 12.5f32.sqrt()).abs() < 1e-5 && (y[1][1] - 10.0).abs() < 1e-5);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// For a weight of another length, rank or type, for other element types and tensors of rank 0;
/// errors of the kernel's launch.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f32) -> Result<Tensor> {
    let x = reachable(x, |layout| Place::rows("rms_norm", layout))?;
    x.apply_op2(&reachable(weight, |layout| Place::<1>::of("rms_norm", layout))?, RmsNorm { epsilon })
}
