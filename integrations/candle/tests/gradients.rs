//! Backward passes, compared with those of candle's own operations, on the CPU, or with the feature
//! `cuda` on the first GPU; and the operations of `KernelOp`.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{D, DType, Device, Module, Result, Tensor, Var};
use candle_nn::{ops, rotary_emb};
use cutlet as ct;
use cutlet::prelude::*;
use cutlet_candle::{
    Bits, GgufWeight, KernelOp, Pairs, QuantizedWeight, attention, layer_norm, rms_norm, rotary, softmax,
};

fn device() -> Result<Device> {
    Device::cuda_if_available(0)
}

fn variable(shape: &[usize]) -> Result<Var> {
    Var::randn(0f32, 1.0, shape, &device()?)
}

/// Results and gradients of two functions of the same variables are equal but for some units in the
/// last place.
fn same(what: &str, of: &[&Var], ours: &Tensor, theirs: &Tensor) -> Result<()> {
    let close = |part: &str, got: &Tensor, want: &Tensor| -> Result<()> {
        assert_eq!(got.dims(), want.dims(), "{what}: {part}");
        let (error, largest) = ((got - want)?.abs()?.max_all()?, want.abs()?.max_all()?);
        let (error, largest) = (error.to_scalar::<f32>()?, largest.to_scalar::<f32>()?);
        assert!(error <= 2e-5 * largest.max(1e-3), "{what}: {part}: error {error}, largest {largest}");
        Ok(())
    };
    close("result", ours, theirs)?;
    // Not the sum of all: that of softmax has no gradient.
    let weights = Tensor::randn(0f32, 1.0, ours.shape(), ours.device())?;
    let [got, want] = [(ours * &weights)?.sum_all()?.backward()?, (theirs * &weights)?.sum_all()?.backward()?];
    for (number, x) in of.iter().enumerate() {
        let (Some(got), Some(want)) = (got.get(x), want.get(x)) else {
            panic!("{what}: no gradient of operand {number}")
        };
        close(&format!("gradient of operand {number}"), got, want)?;
    }
    Ok(())
}

#[test]
fn gradients_are_those_of_candle() -> Result<()> {
    let x = variable(&[2, 3, 77])?;
    same("softmax", &[&x], &softmax(&x)?, &ops::softmax(&x, D::Minus1)?)?;
    let (weight, bias) = (variable(&[77])?, variable(&[77])?);
    let scale = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-3)?.sqrt()?;
    let wanted = x.broadcast_div(&scale)?.broadcast_mul(&weight)?;
    same("rms_norm", &[&x, &weight], &rms_norm(&x, &weight, 1e-3)?, &wanted)?;
    let wanted = ops::layer_norm_slow(&x, &weight, &bias, 1e-3)?;
    same("layer_norm", &[&x, &weight, &bias], &layer_norm(&x, &weight, &bias, 1e-3)?, &wanted)
}

#[test]
fn gradients_of_attention() -> Result<()> {
    let (q, k, v) = (variable(&[2, 4, 9, 24])?, variable(&[2, 2, 13, 24])?, variable(&[2, 2, 13, 24])?);
    for causal in [false, true] {
        let spread =
            |x: &Tensor| x.unsqueeze(2)?.broadcast_as((2, 2, 2, 13, 24))?.contiguous()?.reshape((2, 4, 13, 24));
        let mut scores = (q.matmul(&spread(&k)?.t()?.contiguous()?)? * 0.25)?;
        if causal {
            let mask: Vec<f32> =
                (0..117).map(|at| if at % 13 > at / 13 + 4 { f32::NEG_INFINITY } else { 0.0 }).collect();
            scores = scores.broadcast_add(&Tensor::from_vec(mask, (9, 13), &device()?)?)?;
        }
        let wanted = ops::softmax(&scores, D::Minus1)?.matmul(&spread(&v)?)?;
        same("attention", &[&q, &k, &v], &attention(&q, &k, &v, 0.25, causal)?, &wanted)?;
    }
    Ok(())
}

#[test]
fn rotary_embedding() -> Result<()> {
    let x = variable(&[2, 3, 37, 24])?;
    let angles = (0..37 * 12).map(|i| (i / 12) as f32 / 10f32.powf((i % 12) as f32 / 6.0)).collect::<Vec<_>>();
    let angles = Tensor::from_vec(angles, (37, 12), &device()?)?;
    let (cos, sin) = (angles.cos()?, angles.sin()?);
    let wanted = rotary_emb::rope_slow(&x, &cos, &sin)?;
    same("halves", &[&x], &rotary(&x, &cos, &sin, Pairs::Halves)?, &wanted)?;
    let wanted = rotary_emb::rope_i_slow(&x, &cos, &sin)?;
    same("adjacent", &[&x], &rotary(&x, &cos, &sin, Pairs::Adjacent)?, &wanted)?;
    let transposed = x.transpose(1, 2)?.contiguous()?.transpose(1, 2)?;
    assert_eq!(
        rotary(&transposed, &cos, &sin, Pairs::Halves)?.flatten_all()?.to_vec1::<f32>()?,
        rotary(&x, &cos, &sin, Pairs::Halves)?.flatten_all()?.to_vec1::<f32>()?
    );
    assert!(rotary(&x, &sin, &cos.narrow(0, 0, 5)?, Pairs::Halves).unwrap_err().to_string().contains("[5, 12]"));
    Ok(())
}

#[test]
fn weights_of_gguf_files() -> Result<()> {
    let device = device()?;
    let x = variable(&[2, 5, 512])?;
    for dtype in [GgmlDType::Q8_0, GgmlDType::Q4K] {
        let weight = Tensor::randn(0f32, 1.0, (70, 512), &Device::Cpu)?;
        let quantized = QTensor::quantize(&weight, dtype)?;
        let ours = GgufWeight::new(&quantized, &device)?;
        let weight = quantized.dequantize(&Device::Cpu)?.to_device(&device)?;
        assert_eq!(ours.shape(), (70, 512));
        assert!((ours.dequantize(DType::F32)? - &weight)?.abs()?.max_all()?.to_scalar::<f32>()? < 1e-6);
        same(&format!("{dtype:?}"), &[&x], &ours.forward(&x)?, &x.broadcast_matmul(&weight.t()?)?)?;
        let half = x.to_dtype(DType::F16)?;
        let error = (ours.forward(&half)?.to_dtype(DType::F32)? - x.broadcast_matmul(&weight.t()?)?)?;
        assert!(error.abs()?.max_all()?.to_scalar::<f32>()? < 0.2);
    }
    let message = GgufWeight::new(
        &QTensor::quantize(&Tensor::zeros((4, 256), DType::F32, &Device::Cpu)?, GgmlDType::Q6K)?,
        &device,
    );
    assert!(message.unwrap_err().to_string().contains("q8_0 and q4_K"));
    Ok(())
}

#[test]
fn gradients_through_quantised_weights() -> Result<()> {
    let x = variable(&[2, 5, 64])?;
    for bits in [Bits::Four, Bits::Eight] {
        let weight = Tensor::randn(0f32, 1.0, (30, 64), &device()?)?;
        let quantized = QuantizedWeight::quantize(&weight, bits, 32, DType::F32)?;
        same("quantised", &[&x], &quantized.forward(&x)?, &x.broadcast_matmul(&quantized.dequantize()?.t()?)?)?;
    }
    Ok(())
}

/// Row sums of a · b: a kernel of two operands with a result of another shape.
fn dots(a: Array<f32, 2>, b: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
    let at = (ct::bid(0), 0);
    y.store(at, (a.load(at, [1, tile]) * b.load(at, [1, tile])).sum(1));
}

#[test]
fn own_kernels_of_two_operands() -> Result<()> {
    let op = KernelOp::new("dots", |stream, [a, b], y| {
        let [rows, columns] = a.shape();
        let tile = ct::Constant(columns.next_power_of_two());
        ct::Launch::new(rows).stream(stream).launch(dots, (a, b, y, tile))
    })
    .shape(|[a, _]| {
        let mut dims = a.dims().to_vec();
        *dims.last_mut().expect("an axis") = 1;
        Ok(dims.into())
    })
    .backward(|[a, b], _, grad| Ok([Some(b.broadcast_mul(grad)?), Some(a.broadcast_mul(grad)?)]));
    let (a, b) = (variable(&[3, 5, 50])?, variable(&[3, 5, 50])?);
    same("dots", &[&a, &b], &op.apply(&a, &b)?, &(a.as_tensor() * b.as_tensor())?.sum_keepdim(D::Minus1)?)?;
    // Tensors in other orders are copied.
    let turned = a.transpose(0, 1)?;
    let wanted = turned.contiguous()?;
    let [got, want] = [op.apply(&turned, &wanted)?, wanted.sqr()?.sum_keepdim(D::Minus1)?];
    assert!((got - want)?.abs()?.max_all()?.to_scalar::<f32>()? < 1e-4);
    let message = op.apply(&a.to_dtype(DType::F64)?, &b).unwrap_err().to_string();
    assert!(message.contains("dots: a tensor of F64, for a kernel of F32"), "{message}");
    Ok(())
}
