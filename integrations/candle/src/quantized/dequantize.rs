//! Quantised weights as numbers, on the host.

use candle_core::{DType, Device, Result, Tensor};
use cutlet_kernels::quantized::Bits;

/// The weights of shape (outputs, inputs), of the type of the scales, each the code times the scale.
pub(super) fn dequantized(codes: &Tensor, scales: &Tensor, outputs: usize, bits: Bits, group: usize) -> Result<Tensor> {
    let ((inputs, words), device, dtype) = (codes.dims2()?, codes.device(), scales.dtype());
    let codes = codes.to_device(&Device::Cpu)?.flatten_all()?.to_vec1::<u32>()?;
    let (per_word, width) = (bits.per_word(), 32 / bits.per_word());
    let code = |index: usize| {
        let (input, output) = (index / outputs, index % outputs);
        let word = codes[input * words + output / per_word];
        let above = 32 - width * (output % per_word + 1);
        ((word << above) as i32 >> (32 - width)) as f32
    };
    let codes: Vec<f32> = (0..inputs * outputs).map(code).collect();
    let codes = Tensor::from_vec(codes, (inputs, outputs), &Device::Cpu)?;
    let rows = Tensor::from_vec((0..inputs).map(|i| (i / group) as u32).collect(), inputs, &Device::Cpu)?;
    let scales = scales.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.index_select(&rows, 0)?;
    (codes * scales)?.to_dtype(dtype)?.t()?.contiguous()?.to_device(device)
}
