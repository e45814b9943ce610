//! y = alpha x + y, in place: `cargo run --example saxpy`.

use cutlet as ct;
use cutlet::prelude::*;

/// A block adds alpha times a tile of x to a tile of y.
pub fn saxpy(alpha: Scalar<f32>, x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0);
    y.store(i, alpha * x.load(i, [tile]) + y.load(i, [tile]));
}

fn main() -> ct::Result<()> {
    let (n, tile, alpha) = (100_000, 2048, -2.5f32);
    let (start, factor) = (|i: usize| (i as f32 * 0.11).cos(), |i: usize| (i as f32 * 0.37).sin());
    let device = ct::Device::first()?;
    let (x, mut y) = (device.from_fn([n], |[i]| factor(i))?, device.from_fn([n], |[i]| start(i))?);
    // A number is an argument of the launch: another one needs no other code.
    ct::launch(saxpy, n.div_ceil(tile), (alpha, &x, &mut y, Constant(tile)))?;

    let y = y.to_vec()?;
    let want = |i| f64::from(alpha) * f64::from(factor(i)) + f64::from(start(i));
    let error = (0..n).map(|i| (f64::from(y[i]) - want(i)).abs()).max_by(f64::total_cmp).unwrap_or(0.0);
    println!("saxpy: {n} elements, {}, largest error {error:.1e}", device.name());
    assert!(error <= 5e-7, "wrong results");
    Ok(())
}
