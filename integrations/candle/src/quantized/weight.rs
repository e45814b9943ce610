//! Weights of 4 or 8 bits with a scale for each group.

use candle_core::{DType, Device, Module, Result, Tensor, bail};

use cutlet_kernels::quantized::Bits;

use super::matmul::QuantizedMatmul;
use crate::place::{Place, reachable};

/// A matrix of weights of 4 or 8 bits: `group` consecutive inputs of each output share a scale.
///
/// Made of the weight of a linear layer; as a `Module` it multiplies with its transpose, as
/// `candle_nn::Linear` does.
///
/// ```
/// # use candle_core::{DType, Device, Module, Tensor};
/// use cutlet_candle::{Bits, QuantizedWeight};
///
/// let weight = Tensor::randn(0f32, 1.0, (30, 64), &Device::Cpu)?; // 30 outputs, 64 inputs
/// let quantized = QuantizedWeight::quantize(&weight, Bits::Four, 32, DType::F32)?;
/// let x = Tensor::randn(0f32, 1.0, (5, 64), &Device::Cpu)?;
/// let wanted = x.matmul(&quantized.dequantize()?.t()?)?;
/// let error = (quantized.forward(&x)? - wanted)?.abs()?.max_all()?.to_scalar::<f32>()?;
/// assert!(error < 1e-4);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct QuantizedWeight {
    /// u32, of shape (inputs, words of a row of outputs): for each input the codes of all outputs,
    /// from the low bits on, and rows padded to 128 of them.
    codes: Tensor,
    /// Scales of shape (groups of inputs, outputs).
    scales: Tensor,
    outputs: usize,
    bits: Bits,
    group: usize,
}

impl QuantizedWeight {
    /// Rounds a weight of shape (outputs, inputs): the largest magnitude of a group becomes the
    /// largest code. `group` inputs share a scale of type `dtype`, which is that of the
    /// activations: f32, f16 or bf16. On the host; the result is on the device of `weight`.
    ///
    /// # Errors
    /// For a tensor that is no matrix, not finite, or too large for scales of this type. For a
    /// group that is not a power of two from 16 on, and another type of scales.
    pub fn quantize(weight: &Tensor, bits: Bits, group: usize, dtype: DType) -> Result<QuantizedWeight> {
        let (outputs, inputs) = weight.dims2()?;
        if !group.is_power_of_two() || group < 16 {
            bail!("weights of shape {:?} in groups of {group}: a power of two from 16 on", weight.dims())
        }
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(crate::number::unsupported("quantize", dtype));
        }
        let device = weight.device();
        let weight = weight.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
        let weight = weight.t()?.contiguous()?.flatten_all()?.to_vec1::<f32>()?;
        if let Some(at) = weight.iter().position(|x| !x.is_finite()) {
            let [input, output] = [at / outputs, at % outputs];
            bail!(
                "the weight of output {output} and input {input} is {}: only finite ones can be quantised",
                weight[at]
            )
        }

        let groups = inputs.div_ceil(group);
        let mut scales = vec![0f32; groups * outputs];
        for (index, x) in weight.iter().enumerate() {
            let scale = &mut scales[index / outputs / group * outputs + index % outputs];
            *scale = scale.max(x.abs() / bits.max_code());
        }
        // As they will be read.
        let scales = Tensor::from_vec(scales, (groups, outputs), &Device::Cpu)?.to_dtype(dtype)?;
        let rounded = scales.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;

        if let Some(at) = rounded.iter().position(|scale| !scale.is_finite()) {
            bail!("the weights of output {} need a scale that {dtype:?} has no number for", at % outputs)
        }

        let words = bits.words(outputs);
        let mut codes = vec![0u32; inputs * words];
        for (index, x) in weight.iter().enumerate() {
            let (input, output) = (index / outputs, index % outputs);
            let scale = rounded[input / group * outputs + output];
            let code =
                if scale == 0.0 { 0.0 } else { (x / scale).round_ties_even().clamp(-bits.max_code(), bits.max_code()) };
            let (per_word, width) = (bits.per_word(), 32 / bits.per_word());
            let field = (code as i32 as u32) & (u32::MAX >> (32 - width));
            codes[input * words + output / per_word] |= field << (output % per_word * width);
        }
        let codes = Tensor::from_vec(codes, (inputs, words), device)?;
        Ok(QuantizedWeight { codes, scales: scales.to_device(device)?, outputs, bits, group })
    }

    /// The weights as they are multiplied: of shape (outputs, inputs), of the type of the scales,
    /// each the code times the scale, rounded once.
    ///
    /// # Errors
    /// Errors of the launch.
    pub fn dequantize(&self) -> Result<Tensor> {
        self.op().dequantized(&self.codes, &self.scales)?.contiguous()
    }

    fn op(&self) -> QuantizedMatmul {
        QuantizedMatmul { outputs: self.outputs, bits: self.bits, group: self.group }
    }

    /// Number of outputs and inputs.
    pub fn shape(&self) -> (usize, usize) {
        (self.outputs, self.codes.dims()[0])
    }

    /// Bytes of codes and scales.
    pub fn bytes(&self) -> usize {
        4 * self.codes.elem_count() + self.scales.dtype().size_in_bytes() * self.scales.elem_count()
    }
}

impl Module for QuantizedWeight {
    /// `x` of shape (…, inputs) times the transpose of the weights: of shape (…, outputs).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = reachable(x, |layout| match Place::rows("quantized_matmul", layout)?.matrix() {
            Some(place) => Ok(place),
            None => bail!("rows that are no matrix"),
        })?;
        x.apply_op3(&self.codes, &self.scales, self.op())
    }
}
