//! A lock by compare-and-swap and exchange: `cargo bench --bench kernels -- mutex`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use super::examples::mutex::mutex;
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error};

options! {
    /// Many tile blocks change one row of numbers (f32), one after another.
    {
        /// Tile blocks.
        "blocks" blocks: Option<usize> = None,
        /// Numbers that the lock protects.
        "n" n: usize = 256,
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let blocks = options.size(cli.blocks, &device, 1000, 50);
    let (n, tile) = (cli.n, Constant(cli.n.next_power_of_two()));
    if options.emits() {
        let (lock, sums) = (ct::ArraySpec::new([1]).mutable(), ct::ArraySpec::new([n]).mutable());
        return options.emit(mutex, (lock, sums, tile));
    }
    let mut rotation =
        Rotation::new(device, 1 << 30, || Ok((device.zeros::<i32, 1>([1])?, device.zeros::<f32, 1>([n])?)))?;
    let time = rotation.time(options, |(lock, sums)| options.launch([blocks]).launch(mutex, (lock, sums, tile)))?;
    // Once more, from zero.
    let (mut lock, mut sums) = (device.zeros::<i32, 1>([1])?, device.zeros::<f32, 1>([n])?);
    options.launch([blocks]).launch(mutex, (&mut lock, &mut sums, tile))?;
    let result = sums.to_vec()?;
    let error = largest_error(
        n,
        |i| result[i].into(),
        |i| Expected { value: (blocks * (i + 1)) as f64, scale: (blocks * (i + 1)) as f64 },
    );
    Report {
        what: format!("mutex {blocks} blocks"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(8.0 * (blocks * n) as f64),
        error,
        tolerance: 0.0,
        relative_to: "the sum",
    }
    .finish()
}
