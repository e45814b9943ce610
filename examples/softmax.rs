//! Softmax of the rows of a matrix: `cargo run --example softmax`.

use cutlet as ct;
use cutlet::prelude::*;

/// A block processes a row, in one tile.
pub fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
    let row = ct::bid(0);
    // The padding after the end of the row is -inf, whose exponential is zero.
    let x = x.load_with((row, 0), [1, tile], ct::LoadOptions::new().padding(Padding::NegInf));
    let e = (x - x.reduce_max(1)).exp();
    y.store((row, 0), e / e.sum(1));
}

fn main() -> ct::Result<()> {
    let [m, n] = [100, 1000];
    let element = |i: usize, j: usize| ((i * 7 + j * 3) as f32 * 0.1).sin() * 4.0;
    let device = ct::Device::first()?;
    let x = device.from_fn([m, n], |[i, j]| element(i, j))?;
    let mut y = device.zeros([m, n])?;
    ct::launch(softmax, m, (&x, &mut y, Constant(n.next_power_of_two())))?;

    let y = y.to_vec()?;
    let power = |i, j| f64::from(element(i, j)).exp();
    let of_row = |i: usize| {
        let sum: f64 = (0..n).map(|j| power(i, j)).sum();
        (0..n).map(|j| (f64::from(y[i * n + j]) * sum / power(i, j) - 1.0).abs()).max_by(f64::total_cmp)
    };
    let error = (0..m).filter_map(of_row).max_by(f64::total_cmp).unwrap_or(0.0);
    println!("softmax: {m} x {n}, {}, largest error {error:.1e} of the element", device.name());
    assert!(error <= 4e-6, "wrong results");
    Ok(())
}
