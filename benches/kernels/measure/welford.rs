//! Mean and variance of the rows of a matrix, read once: `cargo bench --bench kernels -- welford`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::welford::{moments, welford};
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Mean and variance of each row of an m x n matrix (f32), one row a block.
    {
        /// Rows.
        "m" m: Option<usize> = None,
        /// Columns; a tile holds a whole row.
        "n" n: Option<usize> = None,
        /// By one reduction over pairs of moments, which reads the numbers once.
        "pairs" pairs: bool = false,
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let m = options.size(cli.m, &device, 32768, 512);
    let n = options.size(cli.n, &device, 4096, 1024);
    let tile = Constant(n.next_power_of_two());
    if options.emits() {
        let (spec, row) = (ct::ArraySpec::<f32, 2>::new([m, n]), ct::ArraySpec::<f32, 2>::new([m, 1]));
        let arguments = (spec, row.mutable(), row.mutable(), tile);
        return if cli.pairs { options.emit(welford, arguments) } else { options.emit(moments, arguments) };
    }
    // Far from zero, where the plain sum of squares would lose the variance.
    let host = normal(1, m * n, |x| (1000.0 + x) as f32);
    let mut rotation = Rotation::new(device, 4 * m * n, || {
        Ok((device.array(&host, [m, n])?, (device.zeros::<f32, 2>([m, 1])?, device.zeros::<f32, 2>([m, 1])?)))
    })?;
    let time = rotation.time(options, |(x, (mean, var))| match cli.pairs {
        true => options.launch([m]).launch(welford, (&*x, mean, var, tile)),
        false => options.launch([m]).launch(moments, (&*x, mean, var, tile)),
    })?;
    let (mean, variance) = &rotation.first().1;
    let (mean, variance) = (mean.to_vec()?, variance.to_vec()?);
    let moments = |row: &[f32]| {
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
        (mean, row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n as f64)
    };
    let expected: Vec<(f64, f64)> = host.par_chunks(n).map(moments).collect();
    let error = largest_error(
        2 * m,
        |i| if i < m { mean[i].into() } else { variance[i - m].into() },
        // The numbers themselves are rounded to 2^-14 of their distance from the mean.
        |i| match i < m {
            true => Expected { value: expected[i].0, scale: expected[i].0 },
            false => Expected { value: expected[i - m].1, scale: 1e3 * (expected[i - m].1 + 1e-3) },
        },
    );
    Report {
        what: format!("{} f32 {m}x{n}", if cli.pairs { "welford" } else { "moments" }),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(4.0 * (m * n) as f64),
        error,
        tolerance: 1e-6,
        relative_to: "the mean, and of a thousand variances",
    }
    .finish()
}
