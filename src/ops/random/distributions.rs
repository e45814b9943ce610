//! Normal and exponential numbers from words of random bits.
//!
//! Box-Muller transform (G. Box and M. Muller, *A note on the generation of random normal
//! deviates*, 1958). If u is uniform in (0, 1), √(-2 log u) is the distance from 0 of a pair of
//! normal numbers. Its direction is uniform.
//!
//! * In f32, all operations are integer operations, products, sums, fused multiply-adds and a
//!   square root. Each is rounded as IEEE 754 specifies, so the results of all back ends are
//!   bit-identical.
//! * log u is a polynomial in the mantissa. The direction is computed by polynomials in half its
//!   angle, which is then doubled.
//! * The aim is a small number of instructions for each number: on GPUs the generation is slower
//!   than the stores of its results.
//! * The coefficients minimize the maximum error (Remez exchange algorithm), computed with 40
//!   digits.

use crate::ops::support::float_mode::{FloatMode, is_approx};
use crate::tile::Tile;

/// log((3/2 + f) / (3/2)) / f for f from -1/2 to 1/2. The root of twice the logarithm has an error
/// of at most 2.7e-7.
const LOG: [f32; 7] = [0.6666651, -0.22223832, 0.098819554, -0.04899022, 0.02577048, -0.017268099, 0.010659211];

/// √2 sin(π/2 y) / y as a polynomial in y², for y from -1/2 to 1/2; relative error 4e-9.
const SINE: [f32; 4] = [2.2214415, -0.9135303, 0.112684585, -0.006507727];

/// √2 cos(π/2 y) as a polynomial in y²; relative error 4e-8.
const COSINE: [f32; 4] = [std::f32::consts::SQRT_2, -1.7447106, 0.35863742, -0.028847951];

fn polynomial<const R: usize>(x: Tile<f32, R>, coefficients: &[f32]) -> Tile<f32, R> {
    let (&last, others) = coefficients.split_last().expect("coefficients");
    let (&next, others) = others.split_last().expect("a polynomial of degree 1 at least");
    let first = x.fma(last, next);
    others.iter().rev().fold(first, |sum, &coefficient| sum.fma(x, coefficient))
}

/// -`factor` log u with u = (word + 1/2) 2^-32, rounded. The factor is a power of two. Half a step
/// of u at 1 is added, so that the result is positive: from 2^-26 to 22.9 times the factor.
fn minus_log<const R: usize>(word: Tile<u32, R>, factor: f32) -> Tile<f32, R> {
    // The mantissa of 3/2 u, in [1, 2), is in its middle for u = 1. Masks then extract an exponent
    // that is 0 near u = 1, where the logarithm is small.
    let scaled = word.cast::<f32>().fma(1.5 * 2f32.powi(-32), 1.5 * 2f32.powi(-33));
    let bits = scaled.bitcast::<i32>();
    let mantissa = (bits & 0x7f_ffff) | 0x3f80_0000;
    let f = mantissa.bitcast::<f32>() - 1.5;
    // 2^23 times the exponent.
    let exponent = (bits - mantissa).cast::<f32>();
    let whole = exponent.fma(-factor * std::f32::consts::LN_2 * 2f32.powi(-23), factor * 2f32.powi(-26));
    polynomial(f, &LOG.map(|c| c * -factor)).fma(f, whole)
}

/// Correctly rounded √x of normal numbers: an approximation of 1/√x, then a Newton step for the
/// root.
///
/// ptxas emits these instructions for a square root, without its branch for other numbers. Any
/// approximation with an error up to 2^-23 results in the same root. Exceptions are two mantissas,
/// for which it must be the nearest number or the one below.
fn root<const R: usize>(x: Tile<f32, R>) -> Tile<f32, R> {
    // If subnormal numbers are flushed, the approximation is one instruction.
    let guess = x.rsqrt_with(FloatMode::new().flush_to_zero());
    let root = x * guess;
    root.fma(-root, x).fma(guess * 0.5, root)
}

/// The distance, negated if the lowest bit of the direction is set: the opposite side of the
/// circle.
fn turned<const R: usize>(radius: Tile<f32, R>, direction: Tile<u32, R>) -> Tile<f32, R> {
    (radius.bitcast::<u32>() + (direction << 31)).bitcast::<f32>()
}

/// Exponential numbers with mean 1.
pub(super) fn exponential<const R: usize>(word: Tile<u32, R>) -> Tile<f32, R> {
    if is_approx() { fast::minus_log2(word) * std::f32::consts::LN_2 } else { minus_log(word, 1.0) }
}

/// Two normal numbers with mean 0 and variance 1.
pub(super) fn normals<const R: usize>(distance: Tile<u32, R>, direction: Tile<u32, R>) -> [Tile<f32, R>; 2] {
    if is_approx() {
        return fast::normals(distance, direction);
    }
    let radius = root(minus_log(distance, 2.0));
    // As a signed number, the word is the direction in the right half of the circle. Its lowest bit
    // selects the opposite side; rounding discards that bit unless the angle is close to 0.
    let y = direction.bitcast::<i32>().cast::<f32>() * 2f32.powi(-32);
    let square = y * y;
    let sine = polynomial(square, &SINE) * y;
    let cosine = polynomial(square, &COSINE);
    let radius = turned(radius, direction);
    // cos 2a = 1 - 2 sin² a and sin 2a = 2 sin a cos a. The factors are part of the polynomials.
    let across = radius * sine;
    [sine.fma(-across, radius), across * cosine]
}

/// Approximations of the same numbers by the fast functions of the hardware.
mod fast {
    use super::{FloatMode, Tile, turned};
    use std::f32::consts::{LN_2, PI};

    /// -log2 u with u = (word + 1/2) 2^-32, rounded. Close to 1 the instruction can return the
    /// opposite sign.
    pub(super) fn minus_log2<const R: usize>(word: Tile<u32, R>) -> Tile<f32, R> {
        word.cast::<f32>().fma(2f32.powi(-32), 2f32.powi(-33)).log2_approx().abs()
    }

    pub(super) fn normals<const R: usize>(distance: Tile<u32, R>, direction: Tile<u32, R>) -> [Tile<f32, R>; 2] {
        let mode = FloatMode::new().approx().flush_to_zero();
        let radius = (minus_log2(distance) * (2.0 * LN_2)).sqrt_with(mode);
        // The direction of the other form: the word as a signed number, and the half of the circle
        // in its lowest bit.
        let angle = direction.bitcast::<i32>().cast::<f32>() * (PI * 2f32.powi(-32));
        let radius = turned(radius, direction);
        let (sine, cosine) = (angle.sin_approx(), angle.cos_approx());
        [radius * cosine, radius * sine]
    }
}

#[cfg(test)]
mod tests {
    use crate::util::test_sample::one_in;

    /// All mantissas and both parities of the exponent, with approximations on both sides of the
    /// nearest one.
    #[test]
    fn roots_of_neighbouring_guesses_are_the_same() {
        let mut others = Vec::new();
        for bits in (0x3f80_0000u32..0x4080_0000).step_by(one_in(61)) {
            let x = f32::from_bits(bits);
            let exact = 1.0 / f64::from(x).sqrt();
            for step in -2i32..=2 {
                let guess = f32::from_bits((exact as f32).to_bits().wrapping_add_signed(step));
                if (f64::from(guess) / exact - 1.0).abs() > 2f64.powi(-23) {
                    continue;
                }
                let root = x * guess;
                let root = (-root).mul_add(root, x).mul_add(guess * 0.5, root);
                if root != x.sqrt() {
                    others.push((bits, step));
                }
            }
        }
        let known = |&(bits, step): &(u32, i32)| matches!(bits, 0x3ffc_114a | 0x406e_9372) && step == 1;
        assert!(others.iter().all(known), "{others:x?}");
    }
}
