//! Two blocks of a model with candle's operations and with those of cutlet, on the CPU, or with the
//! feature `cuda` on the first GPU.

#[path = "../examples/transformer/model.rs"]
mod model;

use candle_core::{DType, Device, Result, Tensor};
use cutlet_candle::Bits;
use model::{Config, Model, Operations, mask};

fn compare(config: Config, length: usize, bits: Option<Bits>, dtype: DType, tolerance: f32) -> Result<()> {
    let device = Device::cuda_if_available(0)?;
    let model = Model::random(config, bits, dtype, &device)?;
    let x = Tensor::randn(0f32, 1.0, (2, length, config.width), &device)?.to_dtype(dtype)?;
    let mask = mask(length, dtype, &device)?;
    let theirs = model.forward(&x, &mask, Operations::Candle)?.to_dtype(DType::F32)?;
    let ours = model.forward(&x, &mask, Operations::Cutlet)?.to_dtype(DType::F32)?;
    let largest = theirs.abs()?.max_all()?.to_scalar::<f32>()?;
    let error = (theirs - ours)?.abs()?.max_all()?.to_scalar::<f32>()? / largest;
    assert!(error < tolerance, "{config:?}, {bits:?}, {dtype:?}: {error}");
    Ok(())
}

#[test]
fn two_blocks_are_those_of_candle() -> Result<()> {
    let config = Config { blocks: 2, width: 48, heads: 4, key_heads: 2, hidden: 100 };
    compare(config, 21, None, DType::F32, 2e-5)?;
    compare(config, 21, Some(Bits::Eight), DType::F32, 2e-5)?;
    compare(Config { heads: 2, key_heads: 1, ..config }, 33, Some(Bits::Four), DType::F16, 1e-2)
}
