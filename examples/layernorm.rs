//! Layer normalisation of the rows of a matrix: `cargo run --release --example layernorm`.

mod harness;

use anyhow::Result;
use clap::Parser;
use cutlet as ct;
use cutlet::prelude::*;
use harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};
use rayon::prelude::*;

/// Normalises the rows of an m x n matrix (f32), then scales and shifts each column; one row a block.
#[derive(Parser, Debug)]
pub struct Cli {
    #[command(flatten)]
    options: Options,
    /// Rows.
    #[arg(long)]
    m: Option<usize>,
    /// Columns; a tile holds a whole row.
    #[arg(long)]
    n: Option<usize>,
}

/// Keeps rows of equal numbers from dividing by zero.
pub const EPSILON: f32 = 1e-5;

/// A block takes a row, in one tile.
pub fn layernorm(
    x: Array<f32, 2>,
    weight: Array<f32, 1>,
    bias: Array<f32, 1>,
    y: ArrayMut<f32, 2>,
    epsilon: Scalar<f32>,
    columns: usize,
) {
    let row = ct::bid(0);
    let tile = columns.next_power_of_two();
    let x = x.load((row, 0), [1, tile]);
    let mean = x.sum(1) * (1.0 / columns as f32);
    let mut centred = x - mean;
    if tile != columns {
        // What a load pads beyond the end of the row is no part of the variance.
        let inside = ct::arange(tile, 0, 1).reshape([1, tile]).lt(columns);
        centred = ct::select(inside, centred, 0.0);
    }
    let variance = (centred * centred).sum(1) * (1.0 / columns as f32);
    let (weight, bias) = (weight.load([0], [tile]), bias.load([0], [tile]));
    let normalised = centred * (variance + epsilon).rsqrt();
    y.store((row, 0), normalised * weight.reshape([1, tile]) + bias.reshape([1, tile]));
}

/// Does what the options say.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let m = options.size(cli.m, &device, 4096, 512);
    let n = options.size(cli.n, &device, 4096, 1024);
    if options.emits() {
        let (matrix, vector) = (ct::ArraySpec::new([m, n]), ct::ArraySpec::new([n]));
        return options.emit(layernorm, (matrix, vector, vector, matrix.mutable(), EPSILON, Constant(n)));
    }
    let host = normal(1, m * n, |x| x as f32);
    let (weight, bias) = (normal(2, n, |x| x as f32), normal(3, n, |x| x as f32));
    let (device_weight, device_bias) = (device.array(&weight, [n])?, device.array(&bias, [n])?);
    let mut rotation =
        Rotation::new(device, 8 * m * n, || Ok((device.array(&host, [m, n])?, device.zeros::<f32, 2>([m, n])?)))?;
    let time = rotation.time(options, |(x, y)| {
        options.launch([m]).launch(layernorm, (&*x, &device_weight, &device_bias, y, EPSILON, Constant(n)))
    })?;
    let result = rotation.first().1.to_vec()?;
    // Mean and reciprocal standard deviation of each row.
    let moments = |row: &[f32]| {
        let mean = row.iter().copied().map(f64::from).sum::<f64>() / n as f64;
        let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n as f64;
        (mean, 1.0 / (variance + f64::from(EPSILON)).sqrt())
    };
    let moments: Vec<(f64, f64)> = host.par_chunks(n).map(moments).collect();
    let error = largest_error(
        m * n,
        |i| result[i].into(),
        |i| {
            let (mean, scale) = moments[i / n];
            let (weight, bias) = (f64::from(weight[i % n]), f64::from(bias[i % n]));
            let value = (f64::from(host[i]) - mean) * scale * weight + bias;
            Expected { value, scale: (1.0 + (f64::from(host[i]) * scale).abs()) * weight.abs() + bias.abs() }
        },
    );
    Report {
        what: format!("layernorm f32 {m}x{n}"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(8.0 * (m * n) as f64),
        error,
        tolerance: 4e-6,
        relative_to: "the magnitude of the terms",
    }
    .finish()
}

fn main() -> Result<()> {
    run(&Cli::parse())
}
