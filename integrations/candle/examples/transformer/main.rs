//! A small model, and each of its operations, by candle and by cutlet alternately:
//! `cargo run --release --example transformer`.
//!
//! With `--features cuda` on a GPU. Options: `--tokens 2048`, `--width 2048`, `--blocks 2`,
//! `--bits 4` or `8` (of the weights of the MLPs' last products), `--type f32`, `f16` or `bf16`,
//! `--runs 20`.

use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use candle_core::{DType, Device, Module, Tensor};
use candle_nn::ops;
use cutlet_candle::{Bits, QuantizedWeight, softmax};
use model::{Config, Model, Operations, attend, mask, norm};

mod model;

/// Returns the value of the option `--name`.
fn option<T: FromStr>(name: &str, default: T) -> Result<T> {
    let mut given = std::env::args().skip_while(|argument| argument.strip_prefix("--") != Some(name));
    match given.next() {
        Some(_) => {
            let text = given.next().with_context(|| format!("--{name} what?"))?;
            text.parse().map_err(|_| anyhow!("--{name} {text}"))
        }
        None => Ok(default),
    }
}

/// Runs something by both alternately, and prints the median of the times of each and how far the
/// results differ.
fn compare(
    what: &str,
    device: &Device,
    runs: usize,
    tolerance: f32,
    work: impl Fn(Operations) -> candle_core::Result<Tensor>,
) -> Result<()> {
    let both = [Operations::Candle, Operations::Cutlet];
    let [theirs, ours] = both.map(|operations| work(operations)?.to_dtype(DType::F32)?.contiguous());
    let (theirs, ours) = (theirs?, ours?);
    let largest = theirs.abs()?.max_all()?.to_scalar::<f32>()?;
    let error = (theirs - ours)?.abs()?.max_all()?.to_scalar::<f32>()? / largest;

    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        for (operations, times) in both.iter().zip(&mut times) {
            device.synchronize()?;
            let start = Instant::now();
            work(*operations)?;
            device.synchronize()?;
            times.push(1e3 * start.elapsed().as_secs_f64());
        }
    }
    let [theirs, ours] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let ratio = theirs / ours;
    println!(
        "{what}: candle {theirs:.3} ms, cutlet {ours:.3} ms, ratio {ratio:.2}; apart by {error:.1e} of the largest"
    );
    ensure!(error < tolerance, "{what}: the results differ");
    Ok(())
}

fn main() -> Result<()> {
    let device = Device::cuda_if_available(0)?;
    // cutlet interprets its kernels on the CPU: small sizes there.
    let sizes = if device.is_cuda() { ["f16", "2048", "2048", "20"] } else { ["f32", "64", "40", "2"] };
    let dtype = DType::from_str(&option("type", sizes[0].to_owned())?)?;
    let (width, tokens) = (option::<usize>("width", sizes[1].parse()?)?, option::<usize>("tokens", sizes[2].parse()?)?);
    let runs = option::<usize>("runs", sizes[3].parse()?)?;
    let bits = match option("bits", 0)? {
        0 => None,
        4 => Some(Bits::Four),
        8 => Some(Bits::Eight),
        other => anyhow::bail!("--bits {other}: 4 or 8"),
    };
    let heads = width.div_ceil(64);
    ensure!(width > 0 && tokens > 0 && width % heads == 0 && runs > 0, "--width {width}, {heads} heads, --runs {runs}");
    let key_heads = if heads % 4 == 0 { heads / 4 } else { heads };
    let config = Config { blocks: option("blocks", 2)?, width, heads, key_heads, hidden: 4 * width };
    let tolerance = match dtype {
        DType::F32 => 1e-4,
        DType::F16 => 1e-2,
        _ => 6e-2,
    };
    let place = if device.is_cuda() { "on the GPU" } else { "on the CPU, where cutlet interprets its kernels" };
    println!("{config:?}, {tokens} tokens, {dtype:?}, {place}");

    let random = |shape: &[usize]| Tensor::randn(0f32, 1.0, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(&device);
    let mask = mask(tokens, dtype, &device)?;
    let model = Model::random(config, bits, dtype, &device)?;
    let x = random(&[1, tokens, width])?;
    compare("model", &device, runs, tolerance, |operations| model.forward(&x, &mask, operations))?;

    let (scores, weight) = (random(&[heads, tokens, tokens])?, random(&[width])?);
    compare("softmax", &device, runs, tolerance, |operations| match operations {
        Operations::Candle => ops::softmax_last_dim(&scores),
        Operations::Cutlet => softmax(&scores),
    })?;
    compare("RMSNorm", &device, runs, tolerance, |operations| norm(&x, &weight, operations))?;

    let split = |heads: usize| random(&[1, tokens, heads, width / (width.div_ceil(64))])?.transpose(1, 2);
    let (q, k, v) = (split(heads)?, split(key_heads)?, split(key_heads)?);
    compare("attention", &device, runs, tolerance, |operations| attend(&q, &k, &v, 0.125, &mask, operations))?;

    let weight = random(&[4 * width, width])?;
    for (bits, rows) in [(Bits::Four, tokens), (Bits::Four, 1), (Bits::Eight, tokens), (Bits::Eight, 1)] {
        let quantized = QuantizedWeight::quantize(&weight, bits, 32, dtype)?;
        let (wide, x) = (quantized.dequantize()?.t()?, random(&[rows, width])?);
        let what = format!("product of {rows} rows with weights of {bits:?} bits (candle: of {dtype:?})");
        compare(&what, &device, runs, tolerance, |operations| match operations {
            Operations::Candle => x.matmul(&wide),
            Operations::Cutlet => quantized.forward(&x),
        })?;
    }
    Ok(())
}
