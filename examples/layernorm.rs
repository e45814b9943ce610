//! Layer normalisation of the rows of a matrix: `cargo run --example layernorm`.

use cutlet as ct;
use cutlet::prelude::*;

/// Prevents a division by zero for rows of equal numbers.
pub const EPSILON: f32 = 1e-5;

/// A block processes a row, in one tile.
pub fn layernorm(
    x: Array<f32, 2>,
    weight: Array<f32, 1>,
    bias: Array<f32, 1>,
    y: ArrayMut<f32, 2>,
    epsilon: Scalar<f32>,
    columns: usize,
) {
    let row = ct::bid(0);
    let tile = columns.next_power_of_two();
    let x = x.load((row, 0), [1, tile]);
    let mean = x.sum(1) * (1.0 / columns as f32);
    let mut centred = x - mean;
    if tile != columns {
        // The padding after the end of the row is no part of the variance.
        let inside = ct::arange(0..tile).reshape([1, tile]).lt(columns);
        centred = ct::select(inside, centred, 0.0);
    }
    let variance = (centred * centred).sum(1) * (1.0 / columns as f32);
    let (weight, bias) = (weight.load(0, [tile]), bias.load(0, [tile]));
    let normalised = centred * (variance + epsilon).rsqrt();
    y.store((row, 0), normalised * weight.reshape([1, tile]) + bias.reshape([1, tile]));
}

fn main() -> ct::Result<()> {
    let [m, n] = [100, 1000];
    let element = |i: usize, j: usize| ((i * 7 + j * 3) as f32 * 0.1).sin() + 2.0;
    let (factor, shift) = (|j: usize| 1.0 + j as f32 / 1000.0, |j: usize| (j as f32).cos());
    let device = ct::Device::first()?;
    let x = device.from_fn([m, n], |[i, j]| element(i, j))?;
    let (weight, bias) = (device.from_fn([n], |[j]| factor(j))?, device.from_fn([n], |[j]| shift(j))?);
    let mut y = device.zeros([m, n])?;
    ct::launch(layernorm, m, (&x, &weight, &bias, &mut y, EPSILON, Constant(n)))?;

    let y = y.to_vec()?;
    let of_row = |i: usize| {
        let row = || (0..n).map(|j| f64::from(element(i, j)));
        let mean = row().sum::<f64>() / n as f64;
        let variance = row().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        let scale = 1.0 / (variance + f64::from(EPSILON)).sqrt();
        let want = row().enumerate().map(|(j, x)| (x - mean) * scale * f64::from(factor(j)) + f64::from(shift(j)));
        want.enumerate().map(|(j, want)| (f64::from(y[i * n + j]) - want).abs()).max_by(f64::total_cmp)
    };
    let error = (0..m).filter_map(of_row).max_by(f64::total_cmp).unwrap_or(0.0);
    println!("layernorm: {m} x {n}, {}, largest error {error:.1e}", device.name());
    assert!(error <= 1e-5, "wrong results");
    Ok(())
}
