//! Five-point stencil: `cargo run --example stencil`.

use cutlet as ct;
use cutlet::prelude::*;

/// The Laplacian of a grid that is zero outside. A block computes one tile from five overlapping
/// ones: its own, and those moved by one element in each direction.
pub fn stencil(x: Array<f32, 2>, y: ArrayMut<f32, 2>, [rows, columns]: [usize; 2]) {
    let (j, i) = (ct::bid(0), ct::bid(1));
    let moved = |down, right| x.load((ct::at(i * rows + down), ct::at(j * columns + right)), [rows, columns]);
    let vertical = moved(-1, 0) + moved(1, 0);
    let horizontal = moved(0, -1) + moved(0, 1);
    y.store((i, j), vertical + horizontal - moved(0, 0) * 4.0);
}

fn main() -> ct::Result<()> {
    let ([m, n], tile) = ([301, 503], [16, 128]);
    let element = |i: usize, j: usize| ((i * 7 + j * 3) as f32 * 0.1).sin();
    let device = ct::Device::first()?;
    let x = device.from_fn([m, n], |[i, j]| element(i, j))?;
    let mut y = device.zeros([m, n])?;
    ct::launch(stencil, [n.div_ceil(tile[1]), m.div_ceil(tile[0])], (&x, &mut y, Constant(tile)))?;

    let y = y.to_vec()?;
    let at = |i: Option<usize>, j: Option<usize>| match (i, j) {
        (Some(i), Some(j)) if i < m && j < n => f64::from(element(i, j)),
        _ => 0.0,
    };
    let want = |i: usize, j: usize| {
        let vertical = at(i.checked_sub(1), Some(j)) + at(Some(i + 1), Some(j));
        let horizontal = at(Some(i), j.checked_sub(1)) + at(Some(i), Some(j + 1));
        vertical + horizontal - 4.0 * at(Some(i), Some(j))
    };
    let errors = (0..m * n).map(|k| (f64::from(y[k]) - want(k / n, k % n)).abs());
    let error = errors.max_by(f64::total_cmp).unwrap_or(0.0);
    println!("stencil: {m} x {n}, {}, largest error {error:.1e}", device.name());
    assert!(error <= 2e-6, "wrong results");
    Ok(())
}
