//! A small model with candle's operations and with those of cutlet, in turns: `cargo run --release --example transformer`.
//!
//! With `--features cuda` on a GPU. Options: `--tokens 2048`, `--width 2048`, `--blocks 2`, `--bits 4` or `8` (of the last
//! products' weights), `--type f32`, `f16` or `bf16`, `--runs 20`.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use candle_core::{DType, Device, Tensor};
use cutlet_candle::Bits;
use model::{Config, Model, Operations};

mod model;

/// The value that follows `--name`.
fn option(name: &str) -> Result<Option<String>> {
    let mut given = std::env::args().skip_while(|argument| argument.strip_prefix("--") != Some(name));
    match given.next() {
        Some(_) => given.next().with_context(|| format!("--{name} what?")).map(Some),
        None => Ok(None),
    }
}

fn number(name: &str, default: usize) -> Result<usize> {
    option(name)?.map_or(Ok(default), |text| text.parse().with_context(|| format!("--{name} {text}")))
}

/// Seconds of the middle one of these runs, each waited for.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<()> {
    let device = Device::cuda_if_available(0)?;
    let on_gpu = device.is_cuda();
    let dtype = match option("type")?.as_deref() {
        Some("f32") => DType::F32,
        Some("f16") => DType::F16,
        Some("bf16") => DType::BF16,
        Some(other) => anyhow::bail!("--type {other}: f32, f16, bf16"),
        None => {
            if on_gpu {
                DType::F16
            } else {
                DType::F32
            }
        }
    };
    let bits = match option("bits")?.as_deref() {
        Some("4") => Some(Bits::Four),
        Some("8") => Some(Bits::Eight),
        Some(other) => anyhow::bail!("--bits {other}: 4, 8"),
        None => None,
    };
    let width = number("width", if on_gpu { 2048 } else { 64 })?;
    let (tokens, runs) =
        (number("tokens", if on_gpu { 2048 } else { 40 })?, number("runs", if on_gpu { 20 } else { 2 })?);
    let heads = width.div_ceil(64);
    ensure!(width % heads == 0 && runs > 0, "--width {width} with {heads} heads, --runs {runs}");
    let key_heads = if heads % 4 == 0 { heads / 4 } else { heads };
    let config = Config { blocks: number("blocks", 2)?, width, heads, key_heads, hidden: 4 * width };
    let model = Model::random(config, bits, dtype, &device)?;
    let x = Tensor::randn(0f32, 1.0, (1, tokens, width), &Device::Cpu)?.to_dtype(dtype)?.to_device(&device)?;

    let both = [Operations::Candle, Operations::Cutlet];
    let results = both.map(|operations| model.forward(&x, operations)?.to_dtype(DType::F32));
    let [theirs, ours] = results;
    let (theirs, ours) = (theirs?, ours?);
    let largest = theirs.abs()?.max_all()?.to_scalar::<f32>()?;
    let error = (theirs - ours)?.abs()?.max_all()?.to_scalar::<f32>()? / largest;

    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        for (operations, times) in both.iter().zip(&mut times) {
            device.synchronize()?;
            let start = Instant::now();
            model.forward(&x, *operations)?;
            device.synchronize()?;
            times.push(start.elapsed().as_secs_f64());
        }
    }
    let [theirs, ours] = times.map(median);
    println!(
        "{} blocks of width {width}, {tokens} tokens, {dtype:?}, weights of {bits:?} bits, {}: candle {:.3} ms, cutlet {:.3} \
         ms, ratio {:.3}; results differ by {error:.1e} of the largest",
        config.blocks,
        if on_gpu { "GPU" } else { "CPU (cutlet interprets its kernels)" },
        1e3 * theirs,
        1e3 * ours,
        theirs / ours
    );
    let tolerance = match dtype {
        DType::F32 => 1e-4,
        DType::F16 => 1e-2,
        _ => 6e-2,
    };
    ensure!(error < tolerance, "the results differ");
    Ok(())
}
