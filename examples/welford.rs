//! Mean and variance of the rows of a matrix, read once, in two ways:
//! `cargo run --example welford`.

use cutlet as ct;
use cutlet::prelude::*;

/// Mean, sum of squared distances from it, and count of some numbers.
type Moments = (Scalar<f32>, Scalar<f32>, Scalar<f32>);

/// Combines the moments of two sets (Chan, Golub and LeVeque's form of Welford's method). It has no
/// cancellation at a mean far from zero, in contrast to the sums of numbers and squares.
fn together((mean_a, squares_a, a): Moments, (mean_b, squares_b, b): Moments) -> Moments {
    let n = a + b;
    // Without numbers on both sides, all moments are zero. Rounding to nearest would need three
    // times the time.
    let share = ct::with_mode(ct::FloatMode::new().approx(), || b / n.max(1.0));
    let step = mean_b - mean_a;
    (mean_a + step * share, squares_a + squares_b + step * step * a * share, n)
}

/// A block processes a row, in one tile: first the mean, then the distances from it, of numbers in
/// registers.
pub fn moments(x: Array<f32, 2>, mean: ArrayMut<f32, 2>, variance: ArrayMut<f32, 2>, tile: usize) {
    let row = ct::bid(0);
    let n = x.extent(1);
    let counts = ct::indices([1, tile], 1).lt(n);
    let x = x.load((row, 0), [1, tile]);
    let n = n.cast::<f32>();
    let m = x.sum(1) / n;
    // The padding after the end of the row is zero, and no part of the variance.
    let distance = counts.select(x - m, 0.0);
    mean.store((row, 0), m);
    variance.store((row, 0), (distance * distance).sum(1) / n);
}

/// The same by one reduction of all three moments, as for numbers that arrive one after another.
pub fn welford(x: Array<f32, 2>, mean: ArrayMut<f32, 2>, variance: ArrayMut<f32, 2>, tile: usize) {
    let row = ct::bid(0);
    let n = x.extent(1);
    // The padding after the end of the row has the count zero.
    let counts = ct::indices([1, tile], 1).lt(n).select(1.0, 0.0);
    let x = x.load((row, 0), [1, tile]);
    let (m, squares, n) = ct::reduce((x, ct::zeros([1, tile]), counts), 1, (0.0, 0.0, 0.0), together);
    mean.store((row, 0), m);
    variance.store((row, 0), squares / n);
}

fn main() -> ct::Result<()> {
    let [m, n] = [50, 1000];
    // Far from zero, so that the variance would be lost in the plain sum of squares.
    let element = |i: usize, j: usize| 1000.0 + ((i * 7 + j * 3) as f32 * 0.1).sin();
    let device = ct::Device::first()?;
    let x = device.from_fn([m, n], |[i, j]| element(i, j))?;
    let (mut mean, mut variance) = (device.zeros([m, 1])?, device.zeros([m, 1])?);
    let tile = Constant(n.next_power_of_two());
    for pairs in [false, true] {
        match pairs {
            false => ct::launch(moments, m, (&x, &mut mean, &mut variance, tile))?,
            true => ct::launch(welford, m, (&x, &mut mean, &mut variance, tile))?,
        }
        let (mean, variance) = (mean.to_vec()?, variance.to_vec()?);
        let of_row = |i: usize| {
            let row = || (0..n).map(|j| f64::from(element(i, j)));
            let m = row().sum::<f64>() / n as f64;
            let v = row().map(|x| (x - m).powi(2)).sum::<f64>() / n as f64;
            [(f64::from(mean[i]) - m).abs() / m, (f64::from(variance[i]) - v).abs() / (1e3 * v)]
        };
        let error = (0..m).flat_map(of_row).max_by(f64::total_cmp).unwrap_or(0.0);
        let what = if pairs { "welford" } else { "moments" };
        println!("{what}: {m} x {n}, {}, largest error {error:.1e} of mean or 1000 variances", device.name());
        assert!(error <= 1e-6, "wrong results");
    }
    Ok(())
}
