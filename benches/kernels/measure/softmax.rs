//! Softmax of the rows of a matrix: `cargo bench --bench kernels -- softmax`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::softmax::softmax;
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Softmax along the rows of an m x n matrix (f32), one row a block.
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
    let tile = Constant(n.next_power_of_two());
    if options.emits() {
        let spec = ct::ArraySpec::new([m, n]);
        return options.emit(softmax, (spec, spec.mutable(), tile));
    }
    let host = normal(1, m * n, |x| x as f32);
    let mut rotation =
        Rotation::new(device, 8 * m * n, || Ok((device.array(&host, [m, n])?, device.zeros::<f32, 2>([m, n])?)))?;
    let time = rotation.time(options, |(x, y)| options.launch([m]).launch(softmax, (&*x, y, tile)))?;
    let result = rotation.first().1.to_vec()?;
    let largest: Vec<f64> =
        host.par_chunks(n).map(|row| row.iter().copied().fold(f32::NEG_INFINITY, f32::max).into()).collect();
    let exp = |i: usize| (f64::from(host[i]) - largest[i / n]).exp();
    let sums: Vec<f64> = (0..m).into_par_iter().map(|row| (row * n..(row + 1) * n).map(exp).sum()).collect();
    let error = largest_error(
        m * n,
        |i| result[i].into(),
        |i| {
            let value = exp(i) / sums[i / n];
            Expected { value, scale: value }
        },
    );
    Report {
        what: format!("softmax f32 {m}x{n}"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(8.0 * (m * n) as f64),
        error,
        tolerance: 4e-6,
        relative_to: "the element",
    }
    .finish()
}
