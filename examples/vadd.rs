//! Sum of two vectors: `cargo run --example vadd`.

use cutlet as ct;
use cutlet::prelude::*;

/// A block adds one tile.
pub fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0);
    c.store(i, a.load(i, [tile]) + b.load(i, [tile]));
}

fn main() -> ct::Result<()> {
    let (n, tile) = (100_000, 1024);
    let (x, y) = (|i: usize| (i as f32 * 0.37).sin(), |i: usize| (i as f32 * 0.11).cos());
    let device = ct::Device::first()?; // a GPU, or else the host
    let (a, b) = (device.from_fn([n], |[i]| x(i))?, device.from_fn([n], |[i]| y(i))?);
    let mut c = device.zeros([n])?;
    ct::launch(vadd, n.div_ceil(tile), (&a, &b, &mut c, Constant(tile)))?;

    let c = c.to_vec()?;
    let want = |i| f64::from(x(i)) + f64::from(y(i));
    let error = (0..n).map(|i| (f64::from(c[i]) - want(i)).abs()).max_by(f64::total_cmp).unwrap_or(0.0);
    println!("vadd: {n} sums, {}, largest error {error:.1e}", device.name());
    assert!(error <= 1e-7, "wrong sums");
    Ok(())
}
