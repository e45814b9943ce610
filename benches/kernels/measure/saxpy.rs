//! y = alpha x + y: `cargo bench --bench kernels -- saxpy`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use super::examples::saxpy::saxpy;
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Adds a multiple of one vector to another, in place (f32).
    {
        /// Length of the vectors.
        "n" n: Option<usize> = None,
        /// Elements of a tile.
        "tile" tile: usize = 2048,
        /// The factor.
        "alpha" alpha: f32 = 0.75,
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let Cli { options, tile, alpha, .. } = cli;
    let device = options.device()?;
    let n = options.size(cli.n, &device, 1 << 27, 1 << 20);
    let grid = [n.div_ceil(*tile)];
    if options.emits() {
        let spec = ct::ArraySpec::new([n]);
        return options.emit(saxpy, (*alpha, spec, spec.mutable(), Constant(*tile)));
    }
    let (host_x, host_y) = (normal(1, n, |x| x as f32), normal(2, n, |x| x as f32));
    let mut rotation = Rotation::new(device, 8 * n, || Ok((device.array(&host_x, [n])?, device.array(&host_y, [n])?)))?;
    let (x, y) = rotation.first();
    // Timed launches add again and again; the result is that of one launch on the inputs.
    options.launch(grid).launch(saxpy, (*alpha, &*x, &mut *y, Constant(*tile)))?;
    let result = y.to_vec()?;
    let time =
        rotation.time(options, |(x, y)| options.launch(grid).launch(saxpy, (*alpha, &*x, y, Constant(*tile))))?;
    let error = largest_error(
        n,
        |i| result[i].into(),
        |i| {
            let (term, y) = (f64::from(*alpha) * f64::from(host_x[i]), f64::from(host_y[i]));
            Expected { value: term + y, scale: term.abs() + y.abs() }
        },
    );
    Report {
        what: format!("saxpy f32 {n}, tile {tile}"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(12.0 * n as f64),
        error,
        tolerance: f64::from(f32::EPSILON),
        relative_to: "the sum of the magnitudes",
    }
    .finish()
}
