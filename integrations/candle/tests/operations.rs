//! Each operation, compared with candle's own, on the CPU, or with the feature `cuda` on the first
//! GPU: random numbers, odd sizes, tensors after `transpose`, `narrow` and `broadcast_as`.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::ops;
use cutlet_candle::{
    Attention, Bits, QuantizedMatmul, QuantizedWeight, RmsNorm, Softmax, attention, rms_norm, softmax,
};

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Tolerance relative to the largest magnitude: some units in the last place of the type.
fn tolerance(dtype: DType) -> f32 {
    match dtype {
        DType::F32 => 4e-6,
        DType::F16 => 2e-3,
        _ => 1.6e-2,
    }
}

/// One for each test: candle loads its kernels anew for each.
fn device() -> Result<Device> {
    thread_local! {
        static DEVICE: Result<Device> = Device::cuda_if_available(0);
    }
    DEVICE.with(|device| match device {
        Ok(device) => Ok(device.clone()),
        Err(error) => Err(candle_core::Error::msg(error.to_string())),
    })
}

fn random(shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::randn(0f32, 1.0, shape, &device()?)?.to_dtype(dtype)
}

fn wide(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(DType::F32)
}

/// `got` is `wanted`, the f32 result of the same numbers, rounded.
fn close(what: &str, got: &Tensor, wanted: &Tensor, tolerance: f32) -> Result<()> {
    assert_eq!(got.dims(), wanted.dims(), "{what}");
    if got.elem_count() == 0 {
        return Ok(());
    }
    let largest = wanted.abs()?.max_all()?.to_scalar::<f32>()?;
    let error = (wide(got)? - wanted)?.abs()?.max_all()?.to_scalar::<f32>()?;
    // Also false for NaN.
    assert!(error <= tolerance * largest, "{what}: error {error}, largest {largest}");
    Ok(())
}

/// Views of the same shape in different orders in memory.
fn views(dtype: DType) -> Result<Vec<(&'static str, Tensor)>> {
    Ok(vec![
        ("contiguous", random(&[5, 77], dtype)?),
        ("a vector", random(&[130], dtype)?),
        ("one column", random(&[9, 1], dtype)?),
        ("transposed", random(&[77, 5], dtype)?.t()?),
        ("narrowed", random(&[9, 100], dtype)?.narrow(0, 3, 4)?.narrow(1, 7, 77)?),
        ("heads", random(&[2, 3, 4 * 33], dtype)?.reshape((2, 3, 4, 33))?.transpose(1, 2)?),
        ("permuted", random(&[3, 5, 2, 4], dtype)?.permute((3, 1, 0, 2))?),
        ("broadcast rows", random(&[1, 33], dtype)?.broadcast_as((6, 33))?),
        ("broadcast columns", random(&[6, 1], dtype)?.broadcast_as((6, 33))?),
        ("five axes", random(&[2, 2, 2, 3, 5], dtype)?.permute((3, 1, 4, 0, 2))?),
        ("nothing", Tensor::zeros((0, 33), dtype, &device()?)?),
    ])
}

#[test]
fn softmax_is_that_of_candle() -> Result<()> {
    for dtype in DTYPES {
        for (what, x) in views(dtype)? {
            // candle has no softmax of nothing on a GPU, and converts nothing there.
            let wanted = match x.elem_count() {
                0 => x.clone(),
                _ => ops::softmax_last_dim(&wide(&x)?.contiguous()?)?,
            };
            close(what, &softmax(&x)?, &wanted, tolerance(dtype))?;
        }
    }
    let long = (random(&[3, 20000], DType::F32)? * 3.0)?;
    close("long rows", &softmax(&long)?, &ops::softmax_last_dim(&long)?, 1e-5)?;
    // As scores that a mask has hidden.
    let hidden = Tensor::full(f32::NEG_INFINITY, (3, 8192), &device()?)?;
    let long = Tensor::cat(&[hidden, long], 1)?;
    close("long rows, hidden", &softmax(&long)?, &ops::softmax_last_dim(&long)?, 1e-5)
}

#[test]
fn rms_norm_is_that_of_candle() -> Result<()> {
    for dtype in DTYPES {
        for (what, x) in views(dtype)? {
            let weight = random(&[2 * x.dim(D::Minus1)?], dtype)?.reshape(((), 2))?;
            let weight = weight.narrow(1, 0, 1)?.squeeze(1)?; // every other number
            let wanted = match x.elem_count() {
                0 => x.clone(),
                _ => ops::rms_norm(&wide(&x)?.contiguous()?, &wide(&weight)?.contiguous()?, 1e-5)?,
            };
            close(what, &rms_norm(&x, &weight, 1e-5)?, &wanted, tolerance(dtype))?;
        }
    }
    let (long, weight) = (random(&[2, 20001], DType::F32)?, random(&[20001], DType::F32)?);
    close("long rows", &rms_norm(&long, &weight, 1e-5)?, &ops::rms_norm(&long, &weight, 1e-5)?, 1e-5)
}

/// As candle's models compute it.
fn plain_attention(q: &Tensor, k: &Tensor, v: &Tensor, scale: f32, causal: bool) -> Result<Tensor> {
    let (heads, queries, keys) = (q.dim(1)?, q.dim(2)?, k.dim(2)?);
    let repeated = |x: &Tensor| -> Result<Tensor> {
        let (batch, key_heads, keys, dim) = x.dims4()?;
        let shape = (batch, key_heads, heads / key_heads, keys, dim);
        wide(x)?.unsqueeze(2)?.broadcast_as(shape)?.reshape((batch, heads, keys, dim))
    };
    let scores = (wide(q)?.contiguous()?.matmul(&repeated(k)?.t()?.contiguous()?)? * f64::from(scale))?;
    let mask: Vec<f32> = (0..queries * keys)
        .map(|i| if causal && i % keys > i / keys + keys - queries { f32::NEG_INFINITY } else { 0.0 })
        .collect();
    let scores = scores.broadcast_add(&Tensor::from_vec(mask, (queries, keys), &device()?)?)?;
    ops::softmax_last_dim(&scores)?.matmul(&repeated(v)?)
}

#[test]
fn attention_is_that_of_candle() -> Result<()> {
    // Batch, heads, key heads, queries, keys, dim.
    let cases = [
        ([1, 1, 1, 1, 1, 1], DType::F32),
        ([2, 4, 2, 37, 37, 16], DType::F32),
        ([1, 6, 2, 5, 70, 24], DType::F16),
        ([1, 2, 2, 1, 90, 80], DType::BF16),
        ([2, 2, 1, 130, 133, 32], DType::F16),
        ([1, 1, 1, 9, 20, 260], DType::F32),
        ([0, 2, 1, 4, 4, 8], DType::F32),
    ];
    for ([batch, heads, key_heads, queries, keys, dim], dtype) in cases {
        // In the order of the products: a row has all heads.
        let split = |rows: usize, heads: usize| -> Result<Tensor> {
            random(&[batch, rows, heads * dim], dtype)?.reshape((batch, rows, heads, dim))?.transpose(1, 2)
        };
        let (q, k, v) = (split(queries, heads)?, split(keys, key_heads)?, split(keys, key_heads)?);
        for causal in [false, true] {
            let what = format!("{batch}x{heads}({key_heads})x{queries}({keys})x{dim} {dtype:?}, causal: {causal}");
            let scale = 1.0 / (dim as f32).sqrt();
            let got = attention(&q, &k, &v, scale, causal)?;
            assert!(got.transpose(1, 2)?.is_contiguous());
            if batch > 0 {
                close(&what, &got, &plain_attention(&q, &k, &v, scale, causal)?, tolerance(dtype))?;
            }
        }
    }
    let (q, k) = (random(&[2, 3, 7, 8], DType::F32)?, random(&[1, 1, 7, 8], DType::F32)?.broadcast_as((2, 3, 7, 8))?);
    close("broadcast", &attention(&q, &k, &k, 0.3, true)?, &plain_attention(&q, &k, &k, 0.3, true)?, 4e-6)
}

#[test]
fn quantised_products_are_those_of_their_weights() -> Result<()> {
    let cases = [
        ([1, 30, 64], 16, DType::F32),
        ([20, 129, 100], 32, DType::F16),
        ([70, 5, 33], 64, DType::BF16),
        ([3, 64, 300], 128, DType::F32),
        ([5, 300, 2000], 32, DType::F16),
        ([50, 200, 1100], 64, DType::BF16),
    ];
    for bits in [Bits::Four, Bits::Eight] {
        for ([rows, outputs, inputs], group, dtype) in cases {
            let weight = random(&[inputs, outputs], DType::F32)?.t()?;
            let quantised = QuantizedWeight::quantize(&weight, bits, group, dtype)?;
            let weights = wide(&quantised.dequantize()?)?;
            assert_eq!((quantised.shape(), weights.dims()), ((outputs, inputs), &[outputs, inputs][..]));
            // Half a step of a group of numbers up to some 4.5, and the error of the type of the
            // scales.
            let steps = if bits == Bits::Four { 7.0 } else { 127.0 };
            close("weights", &weights, &weight.contiguous()?, 0.51 / steps + tolerance(dtype))?;
            let what = format!("{rows}x{outputs}x{inputs} {bits:?} {dtype:?}");
            for x in [random(&[rows, inputs], dtype)?, random(&[inputs, rows], dtype)?.t()?] {
                let wanted = wide(&x)?.contiguous()?.matmul(&weights.t()?.contiguous()?)?;
                close(&what, &quantised.forward(&x)?, &wanted, tolerance(dtype))?;
            }
            let x = random(&[2, 3, 2, inputs], dtype)?.transpose(0, 2)?;
            assert_eq!(quantised.forward(&x)?.dims(), [2, 3, 2, outputs]);
        }
    }
    let zeros = Tensor::zeros((4, 32), DType::F32, &device()?)?;
    let quantised = QuantizedWeight::quantize(&zeros, Bits::Four, 16, DType::F32)?;
    assert_eq!(quantised.forward(&random(&[1, 32], DType::F32)?)?.to_vec2::<f32>()?, [[0.0; 4]]);
    assert_eq!(quantised.forward(&random(&[0, 32], DType::F32)?)?.dims(), [0, 4]);
    assert_eq!(quantised.bytes(), 4 * 32 * 16 + 4 * 8);
    Ok(())
}

fn message(result: Result<Tensor>) -> String {
    result.expect_err("that cannot be").to_string()
}

#[test]
fn misfits_are_errors_with_shapes() -> Result<()> {
    let x = random(&[2, 3, 4, 5], DType::F32)?;
    let text = message(softmax(&x.to_dtype(DType::F64)?));
    assert!(text.contains("F64") && text.contains("cutlet-softmax"), "{text}");
    assert!(message(softmax(&Tensor::new(1f32, &device()?)?)).contains("rank 0"));
    let strided = random(&[2, 2, 2, 3, 5], DType::F32)?.permute((3, 1, 4, 0, 2))?;
    let text = message(strided.apply_op1(Softmax));
    assert!(text.contains("[3, 2, 5, 2, 2]") && text.contains("contiguous"), "{text}");

    let text = message(rms_norm(&x, &random(&[6], DType::F32)?, 1e-5));
    assert!(text.contains("[2, 3, 4, 5]") && text.contains('6'), "{text}");
    let weight = random(&[5], DType::F16)?;
    assert!(message(x.apply_op2(&weight, RmsNorm { epsilon: 0.0 })).contains("F16"));

    let text = message(attention(&x, &random(&[2, 2, 4, 5], DType::F32)?, &x, 1.0, false));
    assert!(text.contains("[2, 2, 4, 5]"), "{text}");
    let k = random(&[2, 3, 3, 5], DType::F32)?;
    let text = message(attention(&x, &k, &k, 1.0, true));
    assert!(text.contains("no key"), "{text}");
    let huge = random(&[1, 1, 1, 513], DType::F32)?;
    assert!(message(attention(&x, &x, &x, -1.0, false)).contains("-1"));
    assert!(message(huge.apply_op3(&huge, &huge, Attention { scale: 1.0, causal: false })).contains("513"));

    let op = QuantizedMatmul { outputs: 7, bits: Bits::Four, group: 16 };
    let (codes, scales) = (Tensor::zeros((5, 16), DType::U32, &device()?)?, random(&[1, 8], DType::F32)?);
    let text = message(x.apply_op3(&codes, &scales, op));
    assert!(text.contains("[1, 8]") && text.contains("[1, 7]"), "{text}");
    assert!(message(x.apply_op3(&codes, &scales, QuantizedMatmul { group: 10, ..op })).contains("10"));
    assert!(QuantizedWeight::quantize(&scales, Bits::Four, 24, DType::F32).is_err());
    let large = Tensor::full(1e7f32, (3, 16), &device()?)?;
    assert!(QuantizedWeight::quantize(&large, Bits::Four, 16, DType::F16).is_err());
    assert!(QuantizedWeight::quantize(&(scales / 0.0)?, Bits::Four, 16, DType::F32).is_err());
    Ok(())
}
