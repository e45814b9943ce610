//! Index of the largest element of each row of a matrix: `cargo run --example argmax`.

use cutlet as ct;
use cutlet::prelude::*;

/// A block processes a row, in one tile.
pub fn argmax(x: Array<f32, 2>, at: ArrayMut<i32, 2>, value: ArrayMut<f32, 2>, tile: usize) {
    let row = ct::bid(0);
    // The padding after the end of the row is -inf, which is never the first of the largest.
    let x = x.load_with((row, 0), [1, tile], ct::LoadOptions::new().padding(Padding::NegInf));
    let (index, largest) = x.argmax_with_value(1);
    at.store((row, 0), index);
    value.store((row, 0), largest);
}

fn main() -> ct::Result<()> {
    let [m, n] = [100, 1000];
    // Whole numbers, so that rows have several largest elements: the result is the first one.
    let element = |i: usize, j: usize| ((i * 31 + j * 17) % 211) as f32 - 100.0;
    let device = ct::Device::first()?;
    let x = device.from_fn([m, n], |[i, j]| element(i, j))?;
    let (mut at, mut value) = (device.zeros([m, 1])?, device.zeros([m, 1])?);
    ct::launch(argmax, m, (&x, &mut at, &mut value, Constant(n.next_power_of_two())))?;

    let (at, value) = (at.to_vec()?, value.to_vec()?);
    let first = |i| (1..n).fold(0, |best, j| if element(i, j) > element(i, best) { j } else { best });
    let wrong = (0..m).filter(|&i| at[i] != first(i) as i32 || value[i] != element(i, first(i))).count();
    println!("argmax: {m} x {n}, {}, {wrong} wrong rows", device.name());
    assert_eq!(wrong, 0);
    Ok(())
}
