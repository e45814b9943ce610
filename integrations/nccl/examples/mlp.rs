//! A layer on several GPUs, compared with the same one on a single GPU: `cargo run --release
//! --example mlp -- [--tokens N] [--width N] [--hidden N] [--ranks N] [--runs N] [--on-host]`.
//! Without a GPU, ranks are on the cpu device.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cutlet as ct;
use cutlet_nccl::{AllReduce, Nccl, OnHost, Shape, TensorParallel};

struct Options {
    shape: Shape,
    ranks: usize,
    runs: u32,
    on_host: bool,
}

fn options(on_gpus: bool) -> Result<Options> {
    let shape = match on_gpus {
        true => Shape { tokens: 4096, width: 8192, hidden: 28672 },
        false => Shape { tokens: 64, width: 128, hidden: 320 },
    };
    let mut options = Options { shape, ranks: 2, runs: if on_gpus { 20 } else { 2 }, on_host: !on_gpus };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--on-host" {
            options.on_host = true;
            continue;
        }
        let mut number = || words.next().and_then(|n| n.parse::<usize>().ok()).filter(|&n| n > 0);
        let number = number().with_context(|| format!("{word}: a positive number is missing"))?;
        match word.as_str() {
            "--tokens" => options.shape.tokens = number,
            "--width" => options.shape.width = number,
            "--hidden" => options.shape.hidden = number,
            "--ranks" => options.ranks = number,
            "--runs" => options.runs = u32::try_from(number)?,
            other => bail!("there is no option {other}"),
        }
    }
    Ok(options)
}

/// The time of work that is queued on all ranks, by the clock of the host: the best of three
/// batches.
fn time<A: AllReduce>(
    layer: &mut TensorParallel<A>,
    runs: u32,
    work: impl Fn(&mut TensorParallel<A>) -> ct::Result<()>,
) -> Result<Duration> {
    work(layer)?;
    let mut best = Duration::MAX;
    for _ in 0..3 {
        layer.synchronize()?;
        let start = Instant::now();
        (0..runs).try_for_each(|_| work(layer))?;
        layer.synchronize()?;
        best = best.min(start.elapsed() / runs);
    }
    Ok(best)
}

fn rate(shape: Shape, time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    format!("{ms:.3} ms ({:.3} TFLOP/s)", shape.flops() / ms / 1e9)
}

/// Largest magnitude; NaN if there is one.
fn largest(numbers: impl IntoIterator<Item = f64>) -> f64 {
    numbers.into_iter().fold(0.0, |a: f64, b| if b.is_nan() { b } else { a.max(b.abs()) })
}

fn compare<A: AllReduce>(options: &Options, ranks: A, by: &str, first: ct::Device) -> Result<()> {
    let Options { shape, runs, .. } = *options;
    let mut one = TensorParallel::new(OnHost::new(&[first])?, shape, 1)?;
    let alone = time(&mut one, runs, TensorParallel::forward)?;
    let wanted: Vec<f64> = one.output(0).to_vec()?.into_iter().map(f64::from).collect();
    drop(one);
    let scale = largest(wanted.iter().copied());
    ensure!(scale > 0.0 && scale.is_finite(), "the output of one rank is {scale}");

    let mut several = TensorParallel::new(ranks, shape, 1)?;
    let together = time(&mut several, runs, TensorParallel::forward)?;
    let mut difference: f64 = 0.0;
    for rank in 0..options.ranks {
        let got = several.output(rank).to_vec()?;
        let own = largest(got.iter().zip(&wanted).map(|(&got, wanted)| f64::from(got) - wanted)) / scale;
        difference = if own.is_nan() { own } else { difference.max(own) };
    }
    let sum = time(&mut several, runs, TensorParallel::sum)?;

    let Shape { tokens, width, hidden } = shape;
    println!("mlp: f16, {tokens} tokens, width {width}, hidden {hidden}");
    println!("  one {}: {}", first.name(), rate(shape, alone));
    let times = alone.as_secs_f64() / together.as_secs_f64();
    println!("  {} ranks, sums {by}: {}, {times:.2} times as fast", options.ranks, rate(shape, together));
    println!("  the sum alone: {:.3} ms", sum.as_secs_f64() * 1e3);
    println!("  largest difference: {difference:.1e} of the largest number, {scale:.3}");
    // Parts are rounded to f16 before they are added up, and the sum again.
    ensure!(difference <= options.ranks as f64 * 1e-3, "wrong results");
    Ok(())
}

fn main() -> Result<()> {
    let first = ct::Device::first()?;
    let on_gpus = first != ct::Device::cpu();
    let options = options(on_gpus)?;
    if !on_gpus || options.on_host {
        let device = |at| if on_gpus { ct::Device::gpu(at) } else { Ok(first) };
        let devices = (0..options.ranks).map(device).collect::<ct::Result<Vec<_>>>()?;
        return compare(&options, OnHost::new(&devices)?, "on the host", first);
    }
    let ranks = Nccl::new(&(0..options.ranks).collect::<Vec<_>>())?;
    let by = format!("by NCCL {}", ranks.version()?);
    compare(&options, ranks, &by, first)
}
