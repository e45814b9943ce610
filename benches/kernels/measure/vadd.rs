//! Sum of two vectors: `cargo bench --bench kernels -- vadd`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use super::examples::vadd::vadd;
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Adds two vectors of n numbers (f32), one tile a block.
    {
        /// Length of the vectors.
        "n" n: Option<usize> = None,
        /// Elements of a tile.
        "tile" tile: usize = 1024,
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let Cli { options, tile, .. } = cli;
    let device = options.device()?;
    let n = options.size(cli.n, &device, 1 << 27, 1 << 20);
    if options.emits() {
        let spec = ct::ArraySpec::new([n]);
        return options.emit(vadd, (spec, spec, spec.mutable(), Constant(*tile)));
    }
    let (host_a, host_b) = (normal(1, n, |x| x as f32), normal(2, n, |x| x as f32));
    let mut rotation = Rotation::new(device, 12 * n, || {
        Ok((device.array(&host_a, [n])?, device.array(&host_b, [n])?, device.zeros::<f32, 1>([n])?))
    })?;
    let time = rotation
        .time(options, |(a, b, c)| options.launch([n.div_ceil(*tile)]).launch(vadd, (&*a, &*b, c, Constant(*tile))))?;
    let result = rotation.first().2.to_vec()?;
    let error = largest_error(
        n,
        |i| result[i].into(),
        |i| {
            let value = f64::from(host_a[i]) + f64::from(host_b[i]);
            Expected { value, scale: value.abs() }
        },
    );
    Report {
        what: format!("vadd f32 {n}, tile {tile}"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(12.0 * n as f64),
        error,
        tolerance: f64::from(f32::EPSILON) / 2.0,
        relative_to: "the sum",
    }
    .finish()
}
