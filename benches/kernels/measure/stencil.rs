//! Five-point stencil: `cargo bench --bench kernels -- stencil`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use super::examples::stencil::stencil;
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// The five-point Laplacian of an m x n grid (f32), zero outside.
    {
        /// Rows.
        "m" m: Option<usize> = None,
        /// Columns.
        "n" n: Option<usize> = None,
        /// Extents of a tile.
        "tile" tile: [usize; 2] = [16, 128],
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let tile = cli.tile;
    let device = options.device()?;
    let m = options.size(cli.m, &device, 8192, 1024);
    let n = options.size(cli.n, &device, 8192, 1024);
    let grid = [n.div_ceil(tile[1]), m.div_ceil(tile[0])];
    if options.emits() {
        let (x, y) = (ct::ArraySpec::new([m, n]), ct::ArraySpec::new([m, n]));
        return options.emit(stencil, (x, y.mutable(), Constant(tile)));
    }
    let host = normal(1, m * n, |x| x as f32);
    let mut rotation =
        Rotation::new(device, 8 * m * n, || Ok((device.array(&host, [m, n])?, device.zeros::<f32, 2>([m, n])?)))?;
    let time = rotation.time(options, |(x, y)| options.launch(grid).launch(stencil, (&*x, y, Constant(tile))))?;
    let result = rotation.first().1.to_vec()?;
    let element = |i: Option<usize>, j: Option<usize>| match (i, j) {
        (Some(i), Some(j)) if i < m && j < n => f64::from(host[i * n + j]),
        _ => 0.0,
    };
    let error = largest_error(
        m * n,
        |at| result[at].into(),
        |at| {
            let (i, j) = (at / n, at % n);
            let (up, down) = (element(i.checked_sub(1), Some(j)), element(Some(i + 1), Some(j)));
            let (left, right) = (element(Some(i), j.checked_sub(1)), element(Some(i), Some(j + 1)));
            let here = 4.0 * element(Some(i), Some(j));
            Expected {
                value: up + down + left + right - here,
                scale: up.abs() + down.abs() + left.abs() + right.abs() + here.abs(),
            }
        },
    );
    Report {
        what: format!("five-point stencil f32 {m}x{n}, tile {}x{}", tile[0], tile[1]),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(8.0 * (m * n) as f64),
        error,
        tolerance: 5e-7,
        relative_to: "the sum of the magnitudes",
    }
    .finish()
}
