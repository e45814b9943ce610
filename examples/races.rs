//! Races between tile blocks, found on the device: `cargo run --example races`.

use cutlet as ct;
use cutlet::prelude::*;

/// Each block adds its part to one sum. `atomic_store_add` is correct.
fn sum(x: Array<f32, 1>, sum: ArrayMut<f32, 1>, tile: usize) {
    sum.store(0, sum.load(0, [1]) + x.load(ct::bid(0), [tile]).sum(0));
}

/// Each element becomes the mean of itself and its left neighbor, in place. A second array is
/// correct.
fn smooth(x: ArrayMut<f32, 1>, tile: usize) {
    let at = ct::arange(0..tile) + ct::bid(0) * tile;
    x.store(ct::bid(0), (x.gather(at - 1) + x.gather(at)) * 0.5);
}

/// The same with a second array.
fn smoothed(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    let at = ct::arange(0..tile) + ct::bid(0) * tile;
    y.store(ct::bid(0), (x.gather(at - 1) + x.gather(at)) * 0.5);
}

fn main() -> ct::Result<()> {
    let device = ct::Device::first()?;
    let (backend, n) = match device.backend() {
        ct::Backend::Cpu => (ct::Backend::Cpu, 1 << 13),
        // Code by Tile IR has no checks.
        _ => (ct::Backend::Ptx, 1 << 26),
    };
    let (tile, races) = (1 << 10, ct::Checks { races: true, ..ct::Checks::none() });
    let (x, mut y, mut total) = (device.full([n], 1.0f32)?, device.zeros([n])?, device.zeros([1])?);
    let plain = ct::Launch::new(n / tile).backend(backend);
    let checked = plain.checks(races);
    let reports =
        [checked.launch(sum, (&x, &mut total, Constant(tile))), checked.launch(smooth, (&mut y, Constant(tile)))];
    for report in reports {
        println!("{}", report.expect_err("a race"));
    }
    for (name, launch) in [("plain", plain), ("checked", checked)] {
        launch.launch(smoothed, (&x, &mut y, Constant(tile)))?;
        device.synchronize()?;
        let start = std::time::Instant::now();
        launch.launch(smoothed, (&x, &mut y, Constant(tile)))?;
        device.synchronize()?;
        println!("races: without a race, {name}: {:?}", start.elapsed());
    }
    Ok(())
}
