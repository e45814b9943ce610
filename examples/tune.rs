//! Search for the fastest tile, with a record in a file: the second run measures nothing.
//! `cargo run --example tune`

use cutlet as ct;
use cutlet::prelude::*;

/// Parameters of a launch.
#[derive(Clone, Copy, Debug)]
struct Configuration {
    tile: [usize; 2],
    warps: u32,
}

fn transpose(x: Array<f32, 2>, y: ArrayMut<f32, 2>, [rows, columns]: [usize; 2]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    y.store((j, i), x.load((i, j), [rows, columns]).transpose());
}

fn launch(size: usize, c: &Configuration) -> ct::Launch<'static> {
    let grid = c.tile.map(|extent| size.div_ceil(extent));
    ct::Launch::new(grid).hints(ct::Hints::new().num_warps(c.warps))
}

/// Runs it; public for the tests.
pub fn main() -> anyhow::Result<()> {
    let device = ct::Device::first()?;
    let size = if device == ct::Device::cpu() { 256 } else { 8192 };
    let x = device.from_fn([size, size], |[i, j]| (i * size + j) as f32)?;
    let y = device.zeros::<f32, 2>([size, size])?;

    let space = ct::tune::space(([32, 64, 128], [32, 64], [4, 8]));
    let space = space.into_iter().map(|(rows, columns, warps)| Configuration { tile: [rows, columns], warps });
    type Arrays = (ct::DeviceArray<f32, 2>, ct::DeviceArray<f32, 2>);
    let tuner = ct::Tuner::new()
        .name(format!("transpose {size}"))
        .record(std::env::temp_dir().join("cutlet-transpose.tune")) // in the folder of the source, in a program
        .bench(ct::Bench::new().runs(10))
        .kernels(move |(x, y): &mut Arrays, c, kernels| {
            kernels.add_with(&launch(size, c), transpose, (&*x, y, ct::Constant(c.tile)))
        })
        .check(|(_, y)| Ok(y.to_vec()?.into_iter().map(f64::from).collect()), 0.0)
        .on_progress(|step| println!("{step}"));
    let mut arrays = (x, y);
    let tuned = tuner.run(device, &mut arrays, space, |(x, y), c| {
        launch(size, c).launch(transpose, (&*x, y, ct::Constant(c.tile)))
    })?;
    println!("tune: {:?} on {} ({:?})", tuned.best(), device.name(), tuned.origin());
    Ok(())
}
