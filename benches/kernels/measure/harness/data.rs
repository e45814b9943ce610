//! Inputs and the comparison with f64 references.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

/// `count` numbers of the standard normal distribution; equal seeds mean equal numbers.
pub fn normal<T: Send + Clone + Default>(seed: u64, count: usize, from: impl Fn(f64) -> T + Sync) -> Vec<T> {
    const CHUNK: usize = 1 << 16;
    let mut numbers = vec![T::default(); count];
    numbers.par_chunks_mut(CHUNK).enumerate().for_each(|(index, chunk)| {
        let mut random = SmallRng::seed_from_u64(seed << 32 | index as u64);
        // Two numbers at a time, by Box and Muller's polar coordinates.
        for pair in chunk.chunks_mut(2) {
            let (u, angle): (f64, f64) = (1.0 - random.random::<f64>(), std::f64::consts::TAU * random.random::<f64>());
            let radius = (-2.0 * u.ln()).sqrt();
            pair.iter_mut().zip([angle.cos(), angle.sin()]).for_each(|(number, part)| *number = from(radius * part));
        }
    });
    numbers
}

/// Reference of a result: the value in f64, and the magnitude to which its error is relative (of
/// the result, or of the terms of its sum).
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The value.
    pub value: f64,
    /// The magnitude.
    pub scale: f64,
}

/// The largest error of results `0..count`, each divided by its scale; NaN if one is NaN and should
/// not be.
pub fn largest_error(count: usize, got: impl Fn(usize) -> f64 + Sync, want: impl Fn(usize) -> Expected + Sync) -> f64 {
    let error = |index| {
        let (got, Expected { value, scale }) = (got(index), want(index));
        if got == value { 0.0 } else { (got - value).abs() / scale.max(f64::MIN_POSITIVE) }
    };
    // `f64::max` would drop a NaN.
    let larger = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
    (0..count).into_par_iter().map(error).reduce(|| 0.0, larger)
}
