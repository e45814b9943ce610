//! Number of occurrences of each byte: `cargo bench --bench kernels -- histogram`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use super::examples::histogram::histogram;
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error};

options! {
    /// Counts of the 256 values of n bytes.
    {
        /// Bytes.
        "n" n: Option<usize> = None,
        /// Bytes of a tile.
        "tile" tile: usize = 16384,
        /// Tile blocks, which share the tiles.
        "blocks" blocks: Option<usize> = None,
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let n = options.size(cli.n, &device, 1 << 28, 1 << 20);
    let tile = Constant(cli.tile);
    if options.emits() {
        let bins = ct::ArraySpec::<i32, 1>::new([256]).mutable();
        return options.emit(histogram, (ct::ArraySpec::<u8, 1>::new([n]), bins, tile));
    }
    let blocks = cli.blocks.unwrap_or(132 * 2).min(n.div_ceil(cli.tile));
    let host: Vec<u8> = (0..n as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 47) as u8).collect();
    let mut rotation = Rotation::new(device, n, || Ok((device.array(&host, [n])?, device.zeros::<i32, 1>([256])?)))?;
    let time = rotation.time(options, |(x, bins)| options.launch([blocks]).launch(histogram, (&*x, bins, tile)))?;
    // The timed launches have counted again and again; here once, into empty bins.
    let mut bins = device.zeros::<i32, 1>([256])?;
    options.launch([blocks]).launch(histogram, (&rotation.first().0, &mut bins, tile))?;
    let result = bins.to_vec()?;
    let mut counts = [0u64; 256];
    host.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    let error = largest_error(
        256,
        |i| result[i].into(),
        |i| Expected { value: counts[i] as f64, scale: counts[i].max(1) as f64 },
    );
    Report {
        what: format!("histogram u8 {n}"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(n as f64),
        error,
        tolerance: 0.0,
        relative_to: "the count",
    }
    .finish()
}
