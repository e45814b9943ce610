//! Rows whose length is no power of two, in exact tiles and in padded ones:
//! `cargo run --example padding`.

use cutlet as ct;
use cutlet::prelude::*;

/// A block processes some rows, in a tile of exactly their length: a sum of up to three powers of
/// two (576 = 512 + 64).
pub fn softmax_exact(x: Array<f32, 2>, y: ArrayMut<f32, 2>, [rows, columns]: [usize; 2]) {
    let at = (ct::bid(0), 0);
    y.store(at, x.load(at, [rows, columns]).softmax(1));
}

/// A block processes some rows, in a tile of the next power of two, as in cuTile: loads pad the
/// rest with a neutral element, and its results are not stored.
pub fn softmax_padded(x: Array<f32, 2>, y: ArrayMut<f32, 2>, [rows, columns]: [usize; 2]) {
    let at = (ct::bid(0), 0);
    // The padding after the end of a row is -inf, whose exponential is zero. A store does not write
    // elements after the end.
    let padding = ct::LoadOptions::new().padding(Padding::NegInf);
    let x = x.load_with(at, [rows, columns.next_power_of_two()], padding);
    y.store(at, x.softmax(1));
}

fn main() -> ct::Result<()> {
    let ([m, n], rows) = ([61, 576], 4);
    let element = |i: usize, j: usize| ((i * 7 + j * 3) as f32 * 0.1).sin() * 4.0;
    let device = ct::Device::first()?;
    let x = device.from_fn([m, n], |[i, j]| element(i, j))?;
    for padded in [false, true] {
        let mut y = device.zeros([m, n])?;
        let extents = Constant([rows, n]);
        match padded {
            false => ct::launch(softmax_exact, m.div_ceil(rows), (&x, &mut y, extents))?,
            true => ct::launch(softmax_padded, m.div_ceil(rows), (&x, &mut y, extents))?,
        }

        let y = y.to_vec()?;
        let power = |i, j| f64::from(element(i, j)).exp();
        let of_row = |i: usize| {
            let sum: f64 = (0..n).map(|j| power(i, j)).sum();
            (0..n).map(|j| (f64::from(y[i * n + j]) * sum / power(i, j) - 1.0).abs()).max_by(f64::total_cmp)
        };
        let error = (0..m).filter_map(of_row).max_by(f64::total_cmp).unwrap_or(0.0);
        let columns = if padded { n.next_power_of_two() } else { n };
        let name = device.name();
        println!("softmax: {m} x {n} in tiles of {rows} x {columns}, {name}, largest error {error:.1e} of the element");
        assert!(error <= 4e-6, "wrong results");
    }
    Ok(())
}
