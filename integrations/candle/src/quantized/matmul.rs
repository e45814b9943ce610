//! The product of activations with packed weights.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp3, DType, Layout, Result, Shape, bail};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, Error};
use cutlet as ct;
#[cfg(feature = "cuda")]
use cutlet::foreign::cudarc::{with, write};
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Narrow, PackedArray, PackedView, Stream, i4};

use super::weight::Bits;
use crate::cpu;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::number::{Number, by_dtype, same_dtype, unsupported};
use crate::place::Place;

/// A product with quantised weights: an operation for `Tensor::apply_op3`, of activations of shape (…, inputs), codes and
/// scales as a [`QuantizedWeight`](super::QuantizedWeight) holds them; the result is of shape (…, outputs). Activations,
/// scales and result are f32, f16 or bf16, all of one type; sums are f32.
#[derive(Clone, Copy, Debug)]
pub struct QuantizedMatmul {
    /// Columns of the weights.
    pub outputs: usize,
    /// Of a weight.
    pub bits: Bits,
    /// Inputs that share a scale: a power of two from 16 on.
    pub group: usize,
}

/// Extents of a tile: rows, outputs, inputs; and how many of these tiles of inputs share scales.
type Extents = ([usize; 3], usize);

/// A tile of the result a block.
fn kernel<T: Number, F: Narrow>(
    x: Array<T, 2>,
    weights: PackedArray<F, 2>,
    scales: Array<T, 2>,
    y: ArrayMut<T, 2>,
    ([tm, tn, tk], tiles): Extents,
) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let sum = ct::for_each(..x.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |k, sum| {
        let weights = weights.load((k, j), [tk, tn]).cast::<T>() * scales.load((k / tiles, j), [1, tn]);
        ct::mma(x.load((i, k), [tm, tk]), weights, sum)
    });
    y.store((i, j), sum.cast::<T>());
}

/// Where the operands are.
struct Plan {
    x: Place<2>,
    codes: Place<2>,
    scales: Place<2>,
    op: QuantizedMatmul,
}

impl Plan {
    fn new(op: QuantizedMatmul, x: &Layout, codes: &Layout, scales: &Layout) -> Result<Plan> {
        let name = op.name();
        let QuantizedMatmul { outputs, bits, group } = op;
        if !group.is_power_of_two() || group < 16 {
            bail!("{name}: groups of {group} inputs: a power of two from 16 on")
        }
        let Some(place) = Place::rows(name, x)?.matrix() else {
            let (dims, strides) = (x.dims(), x.stride());
            bail!(
                "{name}: the rows of a tensor of shape {dims:?} and strides {strides:?} are no matrix: `contiguous` makes one"
            )
        };
        let inputs = place.shape[1];
        let wanted = [[inputs, bits.words(outputs)], [inputs.div_ceil(group), outputs]];
        if codes.dims() != wanted[0] || scales.dims() != wanted[1] || !codes.is_contiguous() {
            bail!(
                "{name}: activations of shape {:?}, codes of {:?} and strides {:?}, scales of {:?}: for {outputs} outputs \
                 in groups of {group} these are {:?}, contiguous, and {:?}",
                x.dims(),
                codes.dims(),
                codes.stride(),
                scales.dims(),
                wanted[0],
                wanted[1]
            )
        }
        Ok(Plan { x: place, codes: Place::of(name, codes)?, scales: Place::of(name, scales)?, op })
    }

    /// Of the result.
    fn shape(&self) -> [usize; 2] {
        [self.x.shape[0], self.op.outputs]
    }

    fn launch<T: Number>(
        &self,
        stream: &Stream,
        (x, codes, scales): (DeviceView<T, 2>, DeviceView<u32, 2>, DeviceView<T, 2>),
        y: DeviceViewMut<T, 2>,
    ) -> ct::Result<()> {
        let ([rows, outputs], inputs) = (self.shape(), self.x.shape[1]);
        if rows * outputs == 0 {
            return Ok(());
        }
        let tile = match (rows, size_of::<T>()) {
            (0..=16, _) => [16, 64],
            (17..=64, _) | (_, 4) => [64, 64],
            (65..=128, _) => [128, 128],
            // Each weight is unpacked once for so many rows.
            (_, _) => [256, 128],
        };
        let depth = self.op.group.min(64);
        let extents = ct::Constant(([tile[0], tile[1], depth], self.op.group / depth));
        let launch = ct::Launch::new([rows.div_ceil(tile[0]), outputs.div_ceil(tile[1])]).stream(stream);
        let shape = [inputs, outputs];
        match self.op.bits {
            Bits::Four => {
                launch.launch(kernel::<T, i4>, (x, PackedView::<i4, 2>::new(codes, shape)?, scales, y, extents))
            }
            Bits::Eight => {
                launch.launch(kernel::<T, i8>, (x, PackedView::<i8, 2>::new(codes, shape)?, scales, y, extents))
            }
        }
    }

    /// The shape of the result, for activations of this one.
    fn result(&self, x: &Layout) -> Shape {
        let mut dims = x.dims().to_vec();
        dims.pop();
        dims.push(self.op.outputs);
        Shape::from(dims)
    }
}

/// The type of the numbers.
fn dtype(name: &'static str, x: DType, codes: DType, scales: DType) -> Result<DType> {
    match codes {
        DType::U32 => same_dtype(name, x, scales),
        other => Err(unsupported(name, other)),
    }
}

impl CustomOp3 for QuantizedMatmul {
    fn name(&self) -> &'static str {
        "cutlet-quantized-matmul"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        lx: &Layout,
        codes: &CpuStorage,
        lc: &Layout,
        scales: &CpuStorage,
        ls: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let plan = Plan::new(*self, lx, lc, ls)?;
        let y = by_dtype!(self.name(), dtype(self.name(), x.dtype(), codes.dtype(), scales.dtype())?, T => {
            let (x, scales) = (cpu::read::<T, 2>(x, &plan.x)?, cpu::read::<T, 2>(scales, &plan.scales)?);
            let codes = cpu::read::<u32, 2>(codes, &plan.codes)?;
            let operands = (x.view(), codes.view(), scales.view());
            cpu::run(plan.shape(), |stream, y| plan.launch::<T>(stream, operands, y))
        })?;
        Ok((y, plan.result(lx)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        lx: &Layout,
        codes: &CudaStorage,
        lc: &Layout,
        scales: &CudaStorage,
        ls: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let plan = Plan::new(*self, lx, lc, ls)?;
        let (name, device, stream) = (self.name(), &x.device, x.device.cuda_stream());
        let y = by_dtype!(name, dtype(name, x.dtype(), codes.dtype(), scales.dtype())?, T => {
            let mut y = cuda::result::<T>(device, plan.shape().iter().product())?;
            let (x, scales) = (cuda::read::<T, 2>(name, x, &plan.x)?, cuda::read::<T, 2>(name, scales, &plan.scales)?);
            let codes = cuda::read::<u32, 2>(name, codes, &plan.codes)?;
            let operands = (x, codes, scales, write(&mut y, plan.shape()).map_err(Error::wrap)?);
            with(&stream, operands, |stream, (x, codes, scales, y)| plan.launch::<T>(stream, (x, codes, scales), y)).map_err(Error::wrap)?;
            Ok(CudaStorage::wrap_cuda_slice(y, device.clone()))
        })?;
        Ok((y, plan.result(lx)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutlet::PackedSpec;

    fn generates<T: Number, F: Narrow>(tile: [usize; 3]) -> ct::Result<()> {
        let [x, scales, y] = [[100, 640], [5, 384], [100, 384]].map(ct::ArraySpec::<T, 2>::new);
        let weights = PackedSpec::<F, 2>::new([640, 384]);
        for target in [ct::Target::SM_80, ct::Target::SM_90A] {
            ct::code_ptx(kernel::<T, F>, (x, weights, scales, y.mutable(), ct::Constant((tile, 2))), target)?;
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> ct::Result<()> {
        generates::<f16, i4>([256, 128, 64])?;
        generates::<f16, i4>([128, 128, 64])?;
        generates::<bf16, i8>([64, 64, 64])?;
        generates::<f16, i4>([16, 64, 64])?;
        generates::<f32, i8>([64, 64, 16])
    }
}
