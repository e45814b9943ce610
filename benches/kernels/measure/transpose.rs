//! Transpose of a matrix: `cargo bench --bench kernels -- transpose`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use super::examples::transpose::transpose;
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Transposes an m x n matrix (f32), one tile a block.
    {
        /// Rows.
        "m" m: Option<usize> = None,
        /// Columns.
        "n" n: Option<usize> = None,
        /// Extents of a tile.
        "tile" tile: [usize; 2] = [64, 64],
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let tile = cli.tile;
    let device = options.device()?;
    let m = options.size(cli.m, &device, 8192, 1024);
    let n = options.size(cli.n, &device, 8192, 1024);
    let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
    if options.emits() {
        let (x, y) = (ct::ArraySpec::new([m, n]), ct::ArraySpec::new([n, m]));
        return options.emit(transpose, (x, y.mutable(), Constant(tile)));
    }
    let host = normal(1, m * n, |x| x as f32);
    let mut rotation =
        Rotation::new(device, 8 * m * n, || Ok((device.array(&host, [m, n])?, device.zeros::<f32, 2>([n, m])?)))?;
    let time = rotation.time(options, |(x, y)| options.launch(grid).launch(transpose, (&*x, y, Constant(tile))))?;
    let result = rotation.first().1.to_vec()?;
    let error = largest_error(
        m * n,
        |at| result[at].into(),
        |at| {
            let (j, i) = (at / m, at % m);
            let value = f64::from(host[i * n + j]);
            Expected { value, scale: value.abs() }
        },
    );
    Report {
        what: format!("transpose f32 {m}x{n}, tile {}x{}", tile[0], tile[1]),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(8.0 * (m * n) as f64),
        error,
        tolerance: 0.0,
        relative_to: "the element",
    }
    .finish()
}
