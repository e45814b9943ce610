//! Softmax over the last axis.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, Error};
use cutlet as ct;
#[cfg(feature = "cuda")]
use cutlet::foreign::cudarc::{with, write};
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, LoadOptions, Stream};

use crate::cpu;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::number::{Number, by_dtype};
use crate::place::{Place, reachable};

/// Softmax over the last axis, of f32, f16 or bf16: an operation for `Tensor::apply_op1`.
///
/// Rows may have any length; sums are made in f32. See [`softmax`].
#[derive(Clone, Copy, Debug)]
pub struct Softmax;

/// Elements of a row that are in registers at a time.
const LONGEST_TILE: usize = 16384;
/// Of longer rows.
const TILE: usize = 8192;

/// A row a block, in one tile.
fn rows<T: Number>(x: Array<T, 4>, y: ArrayMut<T, 4>, tile: usize) {
    let row = (ct::bid(2), ct::bid(1), ct::bid(0), 0);
    let x = x.load_with(row, [1, 1, 1, tile], LoadOptions::new().padding(Padding::NegInf)).cast::<f32>();
    let e = (x - x.reduce_max(3)).exp();
    y.store(row, (e / e.sum(3)).cast::<T>());
}

/// A row a block, in many tiles: once for maximum and sum, and once for the results.
fn long_rows<T: Number>(x: Array<T, 4>, y: ArrayMut<T, 4>, tile: usize) {
    let shape = [1, 1, 1, tile];
    let place = |j: Scalar<i32>| (ct::bid(2), ct::bid(1), ct::bid(0), j);
    let load = |j| x.load_with(place(j), shape, LoadOptions::new().padding(Padding::NegInf)).cast::<f32>();
    let tiles = x.num_tiles(3, shape);
    // Not from -inf on: a tile of nothing but -inf adds nothing.
    let start = (ct::full([1, 1, 1, 1], f32::MIN), ct::zeros([1, 1, 1, 1]));
    let (max, sum) = ct::fold(..tiles, start, |(max, sum): (Tile<f32, 4>, Tile<f32, 4>), j| {
        let x = load(j);
        let above = max.max(x.reduce_max(3));
        (above, sum * (max - above).exp() + (x - above).exp().sum(3))
    });
    ct::fold(..tiles, (), |(), j| y.store(place(j), ((load(j) - max).exp() / sum).cast::<T>()));
}

fn launch<T: Number>(stream: &Stream, x: DeviceView<T, 4>, y: DeviceViewMut<T, 4>, place: &Place<4>) -> ct::Result<()> {
    if place.is_empty() {
        return Ok(());
    }
    let launch = ct::Launch::new(place.grid()).stream(stream);
    match place.shape[3].next_power_of_two() {
        tile if tile <= LONGEST_TILE => launch.launch(rows::<T>, (x, y, ct::Constant(tile))),
        _ => launch.launch(long_rows::<T>, (x, y, ct::Constant(TILE))),
    }
}

impl CustomOp1 for Softmax {
    fn name(&self) -> &'static str {
        "cutlet-softmax"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let place = Place::rows(self.name(), layout)?;
        let y = by_dtype!(self.name(), x.dtype(), T => {
            let x = cpu::read::<T, 4>(x, &place)?;
            cpu::run(place.shape, |stream, y| launch::<T>(stream, x.view(), y, &place))
        })?;
        Ok((y, layout.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let place = Place::rows(self.name(), layout)?;
        let (device, stream) = (&x.device, x.device.cuda_stream());
        let y = by_dtype!(self.name(), x.dtype(), T => {
            let mut y = cuda::result::<T>(device, layout.shape().elem_count())?;
            let operands = (cuda::read::<T, 4>(self.name(), x, &place)?, write(&mut y, place.shape).map_err(Error::wrap)?);
            with(&stream, operands, |stream, (x, y)| launch::<T>(stream, x, y, &place)).map_err(Error::wrap)?;
            Ok(CudaStorage::wrap_cuda_slice(y, device.clone()))
        })?;
        Ok((y, layout.shape().clone()))
    }
}

/// Softmax over the last axis of a tensor of any shape: exponentials over their sum.
///
/// f32, f16, bf16; any strides (a tensor whose rows no grid reaches, or that was broadcast, is copied first). The result is
/// contiguous. There is no backward pass: candle says so when one is asked for.
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
/// For other element types and tensors of rank 0; what the kernel's launch gives.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    reachable(x, |layout| Place::rows("softmax", layout))?.apply_op1(Softmax)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generates<T: Number>() -> ct::Result<()> {
        let x = ct::ArraySpec::<T, 4>::new([1, 2, 30, 1024]);
        for target in [ct::Target::SM_80, ct::Target::SM_90A] {
            ct::inspect(rows::<T>, (x, x.mutable(), ct::Constant(1024))).target(target).ptx()?;
            ct::inspect(rows::<T>, (x, x.mutable(), ct::Constant(LONGEST_TILE))).target(target).ptx()?;
            ct::inspect(long_rows::<T>, (x, x.mutable(), ct::Constant(TILE))).target(target).ptx()?;
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> ct::Result<()> {
        generates::<f32>()?;
        generates::<f16>()?;
        generates::<bf16>()
    }
}
