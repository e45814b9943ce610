//! Transpose of a matrix: `cargo run --example transpose`.

use cutlet as ct;
use cutlet::prelude::*;

/// A block transposes one tile.
pub fn transpose(x: Array<f32, 2>, y: ArrayMut<f32, 2>, [rows, columns]: [usize; 2]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    y.store((j, i), x.load((i, j), [rows, columns]).transpose());
}

fn main() -> ct::Result<()> {
    let ([m, n], tile) = ([300, 500], [64, 64]);
    let element = |i: usize, j: usize| (i * n + j) as f32;
    let device = ct::Device::first()?;
    let x = device.from_fn([m, n], |[i, j]| element(i, j))?;
    let mut y = device.zeros([n, m])?;
    ct::launch(transpose, [m.div_ceil(tile[0]), n.div_ceil(tile[1])], (&x, &mut y, Constant(tile)))?;

    let y = y.to_vec()?;
    let wrong = (0..m * n).filter(|at| y[*at] != element(at % m, at / m)).count();
    println!("transpose: {m} x {n}, {}, {wrong} wrong elements", device.name());
    assert_eq!(wrong, 0);
    Ok(())
}
