//! Compilation of kernels on all cores before they are launched, with a line of progress.
//! `cargo run --example ahead`

use std::io::{IsTerminal, Write, stderr};

use cutlet as ct;
use cutlet::prelude::*;

fn scale(x: Array<f32, 1>, y: ArrayMut<f32, 1>, factor: Scalar<f32>, tile: usize) {
    y.store(ct::bid(0), x.load(ct::bid(0), [tile]) * factor);
}

fn sums(x: Array<f32, 2>, y: ArrayMut<f32, 1>, [rows, columns]: [usize; 2]) {
    y.store(ct::bid(0), x.load((ct::bid(0), 0), [rows, columns]).sum(1).reshape([rows]));
}

/// Runs it; public for the tests.
pub fn main() -> anyhow::Result<()> {
    let device = ct::Device::first()?;
    // Arrays of these forms need not exist yet.
    let (line, page) = (ct::ArraySpec::<f32, 1>::new([1 << 20]), ct::ArraySpec::<f32, 2>::new([1024, 1024]));
    let mut kernels = ct::aot::Kernels::on(device);
    for tile in [256, 512, 1024, 2048] {
        kernels = kernels.add(scale, (line, line.mutable(), 1.0f32, ct::Constant(tile)));
    }
    for rows in [1, 2, 4] {
        kernels = kernels.add(sums, (page, line.mutable(), ct::Constant([rows, 1024])));
    }
    let on_terminal = stderr().is_terminal();
    let ahead = ct::compile_all(kernels, |step| {
        if on_terminal {
            let bar = "#".repeat(30 * step.done / step.total);
            eprint!("\r[{bar:<30}] {} of {}: {:<20}", step.done, step.total, step.kernel);
            let _ = stderr().flush();
        }
    });
    if on_terminal {
        eprintln!();
    }
    println!("ahead: {} kernels compiled, {} failed, on {}", ahead.compiled, ahead.failed.len(), device.name());
    ahead.ok()?;

    // These are launched at once.
    let (x, mut y) = (device.full([1 << 20], 3.0f32)?, device.zeros([1 << 20])?);
    ct::launch(scale, 1024, (&x, &mut y, 2.0, ct::Constant(1024)))?;
    anyhow::ensure!(y.to_vec()?.iter().all(|&y| y == 6.0), "twice 3 is 6");
    Ok(())
}
