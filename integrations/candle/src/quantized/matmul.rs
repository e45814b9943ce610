//! The product of activations with packed weights.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp2, CustomOp3, DType, Error, Layout, Result, Shape, Tensor, bail};
use cutlet as ct;
#[cfg(feature = "cuda")]
use cutlet::foreign::cudarc::{with, write};
use cutlet_kernels::quantized::{Bits, Product, Tiles};

use crate::cpu;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::number::{Number, by_dtype, same_dtype, unsupported};
use crate::place::Place;

/// A product with quantised weights: an operation for `Tensor::apply_op3`, of activations of shape
/// (…, inputs), codes and scales as a [`QuantizedWeight`](super::QuantizedWeight) holds them; the
/// result is of shape (…, outputs). Activations, scales and result are f32, f16 or bf16, all of one
/// type; sums are f32.
#[derive(Clone, Copy, Debug)]
pub struct QuantizedMatmul {
    /// Columns of the weights.
    pub outputs: usize,
    /// Bits of a weight.
    pub bits: Bits,
    /// Inputs that share a scale: a power of two from 16 on.
    pub group: usize,
}

impl QuantizedMatmul {
    /// The weights of shape (outputs, inputs), of the type of the scales.
    pub(super) fn dequantized(self, codes: &Tensor, scales: &Tensor) -> Result<Tensor> {
        codes.apply_op2_no_bwd(scales, &Dequantize(self))?.t()
    }

    fn product(self) -> Product {
        Product { bits: self.bits, group: self.group }
    }
}

/// The weights as numbers, of shape (inputs, outputs): an operation of codes and scales.
struct Dequantize(QuantizedMatmul);

impl CustomOp2 for Dequantize {
    fn name(&self) -> &'static str {
        "cutlet-dequantize"
    }

    fn cpu_fwd(
        &self,
        codes: &CpuStorage,
        lc: &Layout,
        scales: &CpuStorage,
        ls: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (of_codes, of_scales) = (Place::<2>::of(self.name(), lc)?, Place::<2>::of(self.name(), ls)?);
        let shape = [of_codes.shape[0], self.0.outputs];
        let y = by_dtype!(self.name(), scales.dtype(), T => {
            let (codes, scales) = (cpu::read::<u32, 2>(codes, &of_codes)?, cpu::read::<T, 2>(scales, &of_scales)?);
            cpu::run(shape, |stream, y| self.0.product().dequantize::<T>(stream, codes.view(), scales.view(), y))
        })?;
        Ok((y, Shape::from(&shape[..])))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        codes: &CudaStorage,
        lc: &Layout,
        scales: &CudaStorage,
        ls: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let name = self.name();
        let (of_codes, of_scales) = (Place::<2>::of(name, lc)?, Place::<2>::of(name, ls)?);
        let (shape, device) = ([of_codes.shape[0], self.0.outputs], &codes.device);
        let y = by_dtype!(name, scales.dtype(), T => {
            let mut y = cuda::result::<T>(device, shape.iter().product())?;
            let codes = cuda::read::<u32, 2>(name, codes, &of_codes)?;
            let scales = cuda::read::<T, 2>(name, scales, &of_scales)?;
            let operands = (codes, scales, write(&mut y, shape).map_err(Error::wrap)?);
            with(&device.cuda_stream(), operands, |stream, (codes, scales, y)| {
                self.0.product().dequantize::<T>(stream, codes, scales, y)
            })
            .map_err(Error::wrap)?;
            Ok(CudaStorage::wrap_cuda_slice(y, device.clone()))
        })?;
        Ok((y, Shape::from(&shape[..])))
    }
}

/// Places of the operands.
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

    /// Returns the shape of the result.
    fn shape(&self) -> [usize; 2] {
        [self.x.shape[0], self.op.outputs]
    }

    fn product(&self) -> Product {
        self.op.product()
    }

    /// Division of the work on this device.
    fn tiles<T: Number>(&self, device: ct::Device) -> Tiles {
        self.product().tiles::<T>(device, self.shape(), self.x.shape[1])
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
            let mut parts = ct::Device::cpu().zeros(tiles.scratch(plan.shape())).map_err(Error::wrap)?;
            cpu::run(plan.shape(), |stream, y| plan.product().launch::<T>(tiles, stream, operands, parts.view_mut(), y))
        })?;
        Ok((y, plan.result(lx)))
    }

    fn bwd(
        &self,
        _: &Tensor,
        codes: &Tensor,
        scales: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let weight = self.dequantized(codes, scales)?;
        Ok((Some(grad.broadcast_matmul(&weight)?), None, None))
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
            let shape = tiles.scratch(plan.shape());
            let mut parts = cuda::result::<f32>(device, shape.iter().product())?;
            let (x, scales) = (cuda::read::<T, 2>(name, x, &plan.x)?, cuda::read::<T, 2>(name, scales, &plan.scales)?);
            let codes = cuda::read::<u32, 2>(name, codes, &plan.codes)?;
            let parts = write(&mut parts, shape).map_err(Error::wrap)?;
            let operands = (x, codes, scales, parts, write(&mut y, plan.shape()).map_err(Error::wrap)?);
            with(&stream, operands, |stream, (x, codes, scales, parts, y)| plan.product().launch::<T>(tiles, stream, (x, codes, scales), parts, y))
                .map_err(Error::wrap)?;
            Ok(CudaStorage::wrap_cuda_slice(y, device.clone()))
        })?;
        Ok((y, plan.result(lx)))
    }
}
