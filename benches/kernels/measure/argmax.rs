//! Position of the largest element of each row of a matrix: `cargo bench --bench kernels --
//! argmax`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::argmax::argmax;
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Index and value of the largest element of each row of an m x n matrix (f32), one row a
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
    let m = options.size(cli.m, &device, 32768, 512);
    let n = options.size(cli.n, &device, 4096, 1024);
    let tile = Constant(n.next_power_of_two());
    if options.emits() {
        let (spec, at) = (ct::ArraySpec::<f32, 2>::new([m, n]), ct::ArraySpec::<i32, 2>::new([m, 1]));
        let value = ct::ArraySpec::<f32, 2>::new([m, 1]);
        return options.emit(argmax, (spec, at.mutable(), value.mutable(), tile));
    }
    // Rounded, so that rows have their largest element several times.
    let host = normal(1, m * n, |x| (x * 8.0).round() as f32);
    let mut rotation = Rotation::new(device, 4 * m * n, || {
        let outputs = (device.zeros::<i32, 2>([m, 1])?, device.zeros::<f32, 2>([m, 1])?);
        Ok((device.array(&host, [m, n])?, outputs))
    })?;
    let time = rotation.time(options, |(x, (at, value))| options.launch([m]).launch(argmax, (&*x, at, value, tile)))?;
    let (at, value) = &rotation.first().1;
    let (at, value) = (at.to_vec()?, value.to_vec()?);
    let first = |row: &[f32]| (1..n).fold(0, |best, j| if row[j] > row[best] { j } else { best });
    let expected: Vec<usize> = host.par_chunks(n).map(first).collect();
    let error = largest_error(
        2 * m,
        |i| if i < m { at[i].into() } else { value[i - m].into() },
        |i| {
            let value = if i < m { expected[i] as f64 } else { host[(i - m) * n + expected[i - m]].into() };
            Expected { value, scale: 1.0 }
        },
    );
    Report {
        what: format!("argmax f32 {m}x{n}"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(4.0 * (m * n) as f64),
        error,
        tolerance: 0.0,
        relative_to: "an index",
    }
    .finish()
}
