//! Dropout and its gradient, by random numbers that both kernels compute:
//! `cargo run --example dropout`.

use cutlet as ct;
use cutlet::prelude::*;

/// Parameters of the mask: probability to keep an element, seed, offset. The mask is not stored;
/// the second kernel computes it again.
pub type Mask = (Scalar<f32>, Scalar<u64>, Scalar<u64>);

/// Drops elements of a tile and scales the others, so that the expectation of sums does not change.
fn masked(x: Tile<f32, 1>, block: Scalar<i32>, (keep, seed, offset): Mask) -> Tile<f32, 1> {
    let kept = ct::random::Philox::new(seed, offset).bernoulli(block, x.shape(), keep);
    kept.select(x * (1.0 / keep), 0.0)
}

/// A tile a block.
pub fn dropout(x: Array<f32, 1>, y: ArrayMut<f32, 1>, mask: Mask, tile: usize) {
    let i = ct::bid(0);
    y.store(i, masked(x.load(i, [tile]), i, mask));
}

/// A tile a block; the tiles need not be those of [`dropout`].
pub fn dropout_backward(dy: Array<f32, 1>, dx: ArrayMut<f32, 1>, mask: Mask, tile: usize) {
    let i = ct::bid(0);
    dx.store(i, masked(dy.load(i, [tile]), i, mask));
}

fn main() -> ct::Result<()> {
    let (n, keep) = (10_000, 0.9f32);
    // Other layers and steps of a training use another offset.
    let mask = (keep, 42u64, 0u64);
    let number = |i: usize| 1.0 + i as f32 / 1000.0;
    let device = ct::Device::first()?;
    let x = device.from_fn([n], |[i]| number(i))?;
    let dy = device.full([n], 1.0f32)?;
    let (mut y, mut dx) = (device.zeros([n])?, device.zeros([n])?);
    ct::launch(dropout, n.div_ceil(2048), (&x, &mut y, mask, Constant(2048)))?;
    ct::launch(dropout_backward, n.div_ceil(512), (&dy, &mut dx, mask, Constant(512)))?;

    let (y, dx) = (y.to_vec()?, dx.to_vec()?);
    let kept = dx.iter().filter(|&&x| x != 0.0).count();
    let error = |i: usize| {
        let scale = if dx[i] == 0.0 { 0.0 } else { 1.0 / f64::from(keep) };
        (f64::from(dx[i]) - scale).abs().max((f64::from(y[i]) / f64::from(number(i)) - scale).abs())
    };
    let error = (0..n).map(error).max_by(f64::total_cmp).unwrap_or(0.0);
    println!("dropout: {kept} of {n} kept, {}, largest error {error:.1e} of the element", device.name());
    assert!(error <= 3e-7, "wrong results");
    // Six standard deviations.
    assert!((kept as f64 - 0.9 * n as f64).abs() <= 6.0 * (0.09 * n as f64).sqrt(), "not as likely as asked for");
    Ok(())
}
