//! Softmax over the last axis.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, Error};
#[cfg(feature = "cuda")]
use cutlet::foreign::cudarc::{with, write};

use crate::cpu;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::gradients;
use crate::number::by_dtype;
use crate::place::{Place, reachable};

/// Softmax over the last axis, of f32, f16 or bf16: an operation for `Tensor::apply_op1`.
///
/// Rows may have any length; sums are made in f32. See [`softmax`].
#[derive(Clone, Copy, Debug)]
pub struct Softmax;

impl CustomOp1 for Softmax {
    fn name(&self) -> &'static str {
        "cutlet-softmax"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let place = Place::rows(self.name(), layout)?;
        let y = by_dtype!(self.name(), x.dtype(), T => {
            let x = cpu::read::<T, 4>(x, &place)?;
            cpu::run(place.shape, |stream, y| cutlet_kernels::softmax(stream, x.view(), y))
        })?;
        Ok((y, layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, y: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        gradients::softmax(y, grad).map(Some)
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let place = Place::rows(self.name(), layout)?;
        let (device, stream) = (&x.device, x.device.cuda_stream());
        let y = by_dtype!(self.name(), x.dtype(), T => {
            let mut y = cuda::result::<T>(device, layout.shape().elem_count())?;
            let operands = (cuda::read::<T, 4>(self.name(), x, &place)?, write(&mut y, place.shape).map_err(Error::wrap)?);
            with(&stream, operands, |stream, (x, y)| cutlet_kernels::softmax(stream, x, y)).map_err(Error::wrap)?;
            Ok(CudaStorage::wrap_cuda_slice(y, device.clone()))
        })?;
        Ok((y, layout.shape().clone()))
    }
}

/// Softmax over the last axis of a tensor of any shape: exponentials over their sum.
///
/// f32, f16, bf16; any strides (a tensor whose rows no grid reaches, or that was broadcast, is
/// copied first). The result is contiguous.
///
/// ```
/// # use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[0f32, 0.0], [0.0, 3f32.ln()]], &Device::Cpu)?;
/// let y = cutlet_candle::softmax(&x.t()?)?;
/// assert_eq!(y.to_vec2::<f32>()?[0], [0.5, 0.5]);
/// assert!((y.to_vec2::<f32>()?[1][1] - 0.75).abs() < 1e-6);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// For other element types and tensors of rank 0; errors of the kernel's launch.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    reachable(x, |layout| Place::rows("softmax", layout))?.apply_op1(Softmax)
}
