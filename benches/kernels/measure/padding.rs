//! Rows whose length is no power of two, in tiles of that length and in padded ones:
//! `cargo bench --bench kernels -- padding`.

use std::time::Duration;

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::padding::{softmax_exact, softmax_padded};
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Softmax along rows (f32) of an odd length, in two ways.
    ///
    /// Once a tile holds exactly a row: its extent is any sum of three powers of two (576 = 512 +
    /// 64). Once, as in cuTile, it has the next power of two. Loads then pad the rest with a
    /// neutral element, and its results are not stored.
    {
        /// Rows.
        "m" m: Option<usize> = None,
        /// Columns; a sum of at most three powers of two.
        "n" n: usize = 576,
        /// Rows of a tile.
        "tile" tile: usize = 4,
        /// Emit the kernel with padded tiles.
        "padded" padded: bool = false,
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let (options, n) = (&cli.options, cli.n);
    let device = options.device()?;
    let m = options.size(cli.m, &device, 1 << 16, 64);
    let tile = Constant([cli.tile, n]);
    if options.emits() {
        let spec = ct::ArraySpec::new([m, n]);
        let arguments = (spec, spec.mutable(), tile);
        return if cli.padded {
            options.emit(softmax_padded, arguments)
        } else {
            options.emit(softmax_exact, arguments)
        };
    }
    let host = normal(1, m * n, |x| x as f32);
    let expected: Vec<f64> = host.par_chunks(n).flat_map_iter(softmax).collect();
    let mut rotation =
        Rotation::new(device, 8 * m * n, || Ok((device.array(&host, [m, n])?, device.zeros::<f32, 2>([m, n])?)))?;
    let report = |what: &str, time: Duration, result: &[f32]| {
        let want = |i: usize| Expected { value: expected[i], scale: expected[i] };
        Report {
            what: format!("softmax f32 {m}x{n}, {what}"),
            device: device.name().to_owned(),
            time,
            work: Work::Bytes(8.0 * (m * n) as f64),
            error: largest_error(m * n, |i| result[i].into(), want),
            tolerance: 4e-6,
            relative_to: "the element",
        }
        .finish()
    };
    let grid = [m.div_ceil(cli.tile)];
    let time = rotation.time(options, |(x, y)| options.launch(grid).launch(softmax_exact, (&*x, y, tile)))?;
    report(&format!("tile {}x{n}", cli.tile), time, &rotation.first().1.to_vec()?)?;
    rotation.first().1.copy_from(&vec![f32::NAN; m * n])?;
    let time = rotation.time(options, |(x, y)| options.launch(grid).launch(softmax_padded, (&*x, y, tile)))?;
    let what = format!("padded: tile {}x{}", cli.tile, n.next_power_of_two());
    report(&what, time, &rotation.first().1.to_vec()?)
}

/// Returns the softmax of one row, in f64.
fn softmax(row: &[f32]) -> Vec<f64> {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = row.iter().map(|&x| (f64::from(x) - f64::from(largest)).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}
