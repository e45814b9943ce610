//! The product of activations with packed weights.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp3, DType, Error, Layout, Result, Shape, bail};
use cutlet as ct;
#[cfg(feature = "cuda")]
use cutlet::foreign::cudarc::{with, write};
use cutlet::packed::{Narrow, PackedView, i4};
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::bits::Bits;
use super::kernels::{Extents, part, sum_of_parts, whole};
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

/// Maximum number of parts of a sum.
const MAX_PARTS: usize = 16;

/// How a product is divided into blocks.
#[derive(Clone, Copy)]
struct Tiles {
    extents: Extents,
    /// Of each sum over the inputs: with few rows there are few tiles of the result, and one block each would leave most of a
    /// GPU without work.
    parts: usize,
}

/// The shape of the parts' sums, if there are several parts.
fn parts_shape(parts: usize, [rows, outputs]: [usize; 2]) -> [usize; 3] {
    if parts > 1 { [parts, rows, outputs] } else { [1, 1, 1] }
}

/// Launches what `tiles` says.
fn run<T: Number, F: Narrow>(
    Tiles { extents, parts: count }: Tiles,
    stream: &Stream,
    (x, scales): (DeviceView<T, 2>, DeviceView<T, 2>),
    weights: PackedView<F, 2>,
    mut parts: DeviceViewMut<f32, 3>,
    y: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    let ([tm, tn, _], _) = extents;
    let [rows, outputs] = y.shape();
    if rows * outputs == 0 {
        return Ok(());
    }
    let grid = [rows.div_ceil(tm), outputs.div_ceil(tn), count];
    let launch = ct::Launch::new(grid).stream(stream);
    if count == 1 {
        return launch.launch(whole::<T, F>, (x, weights, scales, y, ct::Constant(extents)));
    }
    launch.launch(part::<T, F>, (x, weights, scales, &mut parts, ct::Constant(extents)))?;
    let tile = [count.next_power_of_two(), rows.next_power_of_two().min(16), 64];
    let grid = [rows.div_ceil(tile[1]), outputs.div_ceil(tile[2])];
    ct::Launch::new(grid).stream(stream).launch(sum_of_parts::<T>, (parts.as_view(), y, ct::Constant(tile)))
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

    /// How the work is divided on this device.
    fn tiles<T: Number>(&self, device: ct::Device) -> Tiles {
        let ([rows, outputs], inputs, group) = (self.shape(), self.x.shape[1], self.op.group);
        let ([tm, tn], depth) = match (rows, size_of::<T>()) {
            (0..=16, _) => ([16, 128], 128),
            (_, 4) => ([64, 64], 64),
            (17..=64, _) => ([64, 128], 128),
            (65..=128, _) => ([128, 128], 64),
            // Each weight is unpacked once for so many rows.
            (_, _) => ([256, 128], 64),
        };
        let blocks = rows.div_ceil(tm) * outputs.div_ceil(tn);
        // Weights arrive faster the more blocks ask for them; a block has four tiles of inputs to have some on their way.
        let wanted = 2 * device.num_multiprocessors() / blocks.max(1);
        let parts = wanted.min(inputs / (4 * depth)).clamp(1, MAX_PARTS);
        // As many as have something to do.
        let steps = inputs.div_ceil(depth);
        let parts = steps.div_ceil(steps.div_ceil(1 << parts.ilog2()).max(1)).max(1);
        Tiles { extents: ([tm, tn, depth], group), parts }
    }

    fn launch<T: Number>(
        &self,
        tiles: Tiles,
        stream: &Stream,
        (x, codes, scales): (DeviceView<T, 2>, DeviceView<u32, 2>, DeviceView<T, 2>),
        parts: DeviceViewMut<f32, 3>,
        y: DeviceViewMut<T, 2>,
    ) -> ct::Result<()> {
        let shape = [self.x.shape[1], self.op.outputs];
        let operands = (x, scales);
        match self.op.bits {
            Bits::Four => run::<T, i4>(tiles, stream, operands, PackedView::new(codes, shape)?, parts, y),
            Bits::Eight => run::<T, i8>(tiles, stream, operands, PackedView::new(codes, shape)?, parts, y),
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
            let tiles = plan.tiles::<T>(ct::Device::cpu());
            let mut parts = ct::Device::cpu().zeros(parts_shape(tiles.parts, plan.shape())).map_err(Error::wrap)?;
            cpu::run(plan.shape(), |stream, y| plan.launch::<T>(tiles, stream, operands, parts.view_mut(), y))
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
            let tiles = plan.tiles::<T>(cutlet::foreign::cudarc::stream(&stream).map_err(Error::wrap)?.device());
            let shape = parts_shape(tiles.parts, plan.shape());
            let mut parts = cuda::result::<f32>(device, shape.iter().product())?;
            let (x, scales) = (cuda::read::<T, 2>(name, x, &plan.x)?, cuda::read::<T, 2>(name, scales, &plan.scales)?);
            let codes = cuda::read::<u32, 2>(name, codes, &plan.codes)?;
            let parts = write(&mut parts, shape).map_err(Error::wrap)?;
            let operands = (x, codes, scales, parts, write(&mut y, plan.shape()).map_err(Error::wrap)?);
            with(&stream, operands, |stream, (x, codes, scales, parts, y)| plan.launch::<T>(tiles, stream, (x, codes, scales), parts, y))
                .map_err(Error::wrap)?;
            Ok(CudaStorage::wrap_cuda_slice(y, device.clone()))
        })?;
        Ok((y, plan.result(lx)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutlet::element::{bf16, f16};
    use cutlet::packed::PackedSpec;

    fn generates<T: Number, F: Narrow>(tile: [usize; 3], group: usize) -> ct::Result<()> {
        let [x, scales, y] = [[100, 640], [640 / group, 384], [100, 384]].map(ct::ArraySpec::<T, 2>::new);
        let weights = PackedSpec::<F, 2>::new([640, 384]);
        let parts = ct::ArraySpec::<f32, 3>::new([4, 100, 384]);
        let extents = ct::Constant((tile, group));
        for target in [ct::Target::SM_80, ct::Target::SM_90A] {
            ct::inspect(part::<T, F>, (x, weights, scales, parts.mutable(), extents)).target(target).ptx()?;
            ct::inspect(whole::<T, F>, (x, weights, scales, y.mutable(), extents)).target(target).ptx()?;
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> ct::Result<()> {
        generates::<f16, i4>([256, 128, 64], 128)?;
        generates::<f16, i4>([128, 128, 64], 32)?;
        generates::<bf16, i8>([64, 128, 128], 128)?;
        generates::<f16, i4>([16, 128, 128], 32)?;
        generates::<f32, i8>([64, 64, 64], 16)
    }

    /// With every count of parts that the plan may come to, also more than there are tiles of inputs.
    #[test]
    fn parts_are_summed() -> Result<()> {
        let device = ct::Device::cpu();
        let stream = device.default_stream();
        let [rows, inputs, outputs, group] = [5, 300, 130, 32];
        let x = device.from_fn([rows, inputs], |[i, k]| (i * 31 + k * 17) as f32 % 7.0 - 3.0).map_err(Error::wrap)?;
        let scales = device.from_fn([10, outputs], |[g, j]| ((g + j) % 5) as f32 * 0.25).map_err(Error::wrap)?;
        let words = Bits::Four.words(outputs);
        let code = |k: usize, j: usize| (k * 5 + j * 3) as i32 % 15 - 7;
        let word = |[k, w]: [usize; 2]| (0..8).fold(0, |bits, b| bits | ((code(k, 8 * w + b) as u32 & 15) << (4 * b)));
        let codes = device.from_fn([inputs, words], word).map_err(Error::wrap)?;
        let exact = |i: usize, j: usize| -> f32 {
            let of = |k: usize| (i * 31 + k * 17) as f32 % 7.0 - 3.0;
            (0..inputs).map(|k| of(k) * code(k, j) as f32 * ((k / group + j) % 5) as f32 * 0.25).sum()
        };
        for parts in [1, 2, 3, 4, 16] {
            let tiles = Tiles { extents: ([16, 128, 128], group), parts };
            let mut y = device.zeros([rows, outputs]).map_err(Error::wrap)?;
            let mut sums = device.zeros(parts_shape(parts, [rows, outputs])).map_err(Error::wrap)?;
            let weights = PackedView::<i4, 2>::new(codes.view(), [inputs, outputs]).map_err(Error::wrap)?;
            run::<f32, i4>(tiles, &stream, (x.view(), scales.view()), weights, sums.view_mut(), y.view_mut())
                .map_err(Error::wrap)?;
            let y = y.to_vec().map_err(Error::wrap)?;
            for (at, y) in y.iter().enumerate() {
                assert_eq!(*y, exact(at / outputs, at % outputs), "{parts} parts, element {at}");
            }
        }
        Ok(())
    }
}
