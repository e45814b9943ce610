//! Layer normalisation of the rows of a matrix: `cargo bench --bench kernels -- layernorm`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::layernorm::{EPSILON, layernorm};
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Normalises the rows of an m x n matrix (f32), then scales and shifts each column; one row a
    /// block.
    {
        /// Rows.
        "m" m: Option<usize> = None,
        /// Columns; a tile holds a whole row.
        "n" n: Option<usize> = None,
    }
}

/// Runs the kernel with these options.
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
