//! Products with the quantised weights of GGUF files.

use candle_core::backend::BackendStorage;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{CpuStorage, CustomOp2, DType, Device, Layout, Module, Result, Shape, Tensor, bail};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, Error};
#[cfg(feature = "cuda")]
use cutlet::foreign::cudarc::{with, write};
use cutlet_kernels::gguf::{Blocks, product_with};

use crate::cpu;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::number::{by_dtype, unsupported};
use crate::place::{Place, reachable};

/// A weight in the blocks q8_0 or q4_K of a GGUF file, of shape (outputs, inputs). As a `Module` it
/// multiplies with its transpose, as candle's `QMatMul` does. The bytes of the file are the operand
/// of the kernel.
///
/// ```
/// # use candle_core::{Device, Module, Tensor};
/// use candle_core::quantized::{GgmlDType, QTensor};
/// use cutlet_candle::GgufWeight;
///
/// let weight = Tensor::randn(0f32, 1.0, (30, 256), &Device::Cpu)?;
/// let quantized = QTensor::quantize(&weight, GgmlDType::Q4K)?; // or a tensor of a file
/// let x = Tensor::randn(0f32, 1.0, (5, 256), &Device::Cpu)?;
/// let wanted = x.matmul(&quantized.dequantize(&Device::Cpu)?.t()?)?;
/// let y = GgufWeight::new(&quantized, &Device::Cpu)?.forward(&x)?;
/// assert!((y - wanted)?.abs()?.max_all()?.to_scalar::<f32>()? < 1e-3);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GgufWeight {
    /// u8, of shape (outputs, bytes of a row).
    bytes: Tensor,
    op: GgufMatmul,
}

impl GgufWeight {
    /// Returns the weight on a device, from its bytes.
    ///
    /// # Errors
    /// For other types of blocks than q8_0 and q4_K, and tensors that are no matrices.
    pub fn new(weight: &QTensor, device: &Device) -> Result<GgufWeight> {
        let blocks = match weight.dtype() {
            GgmlDType::Q8_0 => Blocks::Q8_0,
            GgmlDType::Q4K => Blocks::Q4K,
            other => bail!("a weight of {other:?}: q8_0 and q4_K are possible"),
        };
        let (outputs, inputs) = weight.shape().dims2()?;
        if inputs % blocks.weights() != 0 {
            bail!("a weight of shape {:?}: rows are no multiple of a block", weight.shape().dims())
        }
        let row = inputs / blocks.weights() * blocks.bytes();
        let bytes = Tensor::from_vec(weight.data()?.into_owned(), (outputs, row), device)?;
        Ok(GgufWeight { bytes, op: GgufMatmul { blocks } })
    }

    /// Returns the numbers of outputs and inputs.
    #[must_use]
    pub fn shape(&self) -> (usize, usize) {
        let (outputs, row) = (self.bytes.dims()[0], self.bytes.dims()[1]);
        (outputs, row / self.op.blocks.bytes() * self.op.blocks.weights())
    }

    /// Returns the weights as numbers, of shape (outputs, inputs): the product with the unit
    /// matrix.
    ///
    /// # Errors
    /// For other types than f32, f16 and bf16; errors of the kernel's launch.
    pub fn dequantize(&self, dtype: DType) -> Result<Tensor> {
        dequantized(&self.bytes, self.op, dtype)
    }
}

fn dequantized(bytes: &Tensor, op: GgufMatmul, dtype: DType) -> Result<Tensor> {
    let inputs = bytes.dim(1)? / op.blocks.bytes() * op.blocks.weights();
    Tensor::eye(inputs, dtype, bytes.device())?.apply_op2_no_bwd(bytes, &op)?.t()
}

impl Module for GgufWeight {
    /// `x` of shape (…, inputs) times the transpose of the weight: of shape (…, outputs).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = reachable(x, |layout| match Place::rows("gguf_matmul", layout)?.matrix() {
            Some(place) => Ok(place),
            None => bail!("rows that are no matrix"),
        })?;
        x.apply_op2(&self.bytes, self.op)
    }
}

/// A product with the blocks of a GGUF file: an operation for `Tensor::apply_op2`, of activations
/// of shape (…, inputs) and the bytes of the weight, of shape (outputs, bytes of a row).
#[derive(Clone, Copy, Debug)]
pub struct GgufMatmul {
    /// The form of the blocks.
    pub blocks: Blocks,
}

impl GgufMatmul {
    /// Returns the layouts of the operands and the shape of the result.
    fn plan(&self, x: &Layout, bytes: &Layout) -> Result<(Place<2>, Place<2>, Shape)> {
        let (name, bytes) = (self.name(), Place::<2>::of(self.name(), bytes)?);
        let Some(place) = Place::rows(name, x)?.matrix() else {
            bail!("{name}: the rows of a tensor of shape {:?} are no matrix: `contiguous` makes one", x.dims())
        };
        let (inputs, [outputs, row]) = (place.shape[1], bytes.shape);
        if inputs % self.blocks.weights() != 0 || row != inputs / self.blocks.weights() * self.blocks.bytes() {
            bail!(
                "{name}: activations of shape {:?}, and a weight of {:?} bytes in blocks {:?}",
                x.dims(),
                bytes.shape,
                self.blocks
            )
        }
        let mut dims = x.dims().to_vec();
        dims.pop();
        dims.push(outputs);
        Ok((place, bytes, Shape::from(dims)))
    }
}

impl CustomOp2 for GgufMatmul {
    fn name(&self) -> &'static str {
        "cutlet-gguf-matmul"
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, bytes: &CpuStorage, lb: &Layout) -> Result<(CpuStorage, Shape)> {
        let (of_x, of_bytes, shape) = self.plan(lx, lb)?;
        if bytes.dtype() != DType::U8 {
            return Err(unsupported(self.name(), bytes.dtype()));
        }
        let dims = [of_x.shape[0], of_bytes.shape[0]];
        let y = by_dtype!(self.name(), x.dtype(), T => {
            let (x, bytes) = (cpu::read::<T, 2>(x, &of_x)?, cpu::read::<u8, 2>(bytes, &of_bytes)?);
            cpu::run(dims, |stream, y| product_with::<T>(stream, self.blocks, x.view(), bytes.view(), y))
        })?;
        Ok((y, shape))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, lx: &Layout, bytes: &CudaStorage, lb: &Layout) -> Result<(CudaStorage, Shape)> {
        let (of_x, of_bytes, shape) = self.plan(lx, lb)?;
        if bytes.dtype() != DType::U8 {
            return Err(unsupported(self.name(), bytes.dtype()));
        }
        let (dims, device) = ([of_x.shape[0], of_bytes.shape[0]], &x.device);
        let y = by_dtype!(self.name(), x.dtype(), T => {
            let mut y = cuda::result::<T>(device, shape.elem_count())?;
            let (x, bytes) = (cuda::read::<T, 2>(self.name(), x, &of_x)?, cuda::read::<u8, 2>(self.name(), bytes, &of_bytes)?);
            let operands = (x, bytes, write(&mut y, dims).map_err(Error::wrap)?);
            with(&device.cuda_stream(), operands, |stream, (x, bytes, y)| product_with::<T>(stream, self.blocks, x, bytes, y))
                .map_err(Error::wrap)?;
            Ok(CudaStorage::wrap_cuda_slice(y, device.clone()))
        })?;
        Ok((y, shape))
    }

    fn bwd(&self, x: &Tensor, bytes: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let weight = dequantized(bytes, *self, x.dtype())?;
        Ok((Some(grad.broadcast_matmul(&weight)?), None))
    }
}
