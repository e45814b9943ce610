//! Normal and exponential numbers made of words of random bits.
//!
//! G. Box and M. Muller, *A note on the generation of random normal deviates*, 1958: with u from 0 to 1, √(-2 log u) is the
//! distance from 0 of two normal numbers, whose direction is uniform. In f32 all of it is integers, products, sums, fused
//! multiply-adds, each rounded as the standard says, so that back ends agree to the bit: log u by a polynomial of
//! the mantissa, the direction as one of four quarters of a circle, within which sine and cosine are polynomials. The
//! coefficients are those of the least largest relative error (Remez's exchange), computed with 50 digits.

use crate::tile::Tile;

/// (log (1 + f) - f) / f² for f from -1/3 to 1/3, to 2e-7 of the logarithm.
const LOG: [f32; 7] = [-0.4999996, 0.33336735, -0.25006324, 0.1981817, -0.1644081, 0.16990551, -0.15266813];

/// sin (π/2 y) / y in y², for y from -1/2 to 1/2, to 4e-9.
const SINE: [f32; 4] = [1.5707964, -0.6459635, 0.07968003, -0.004601658];

/// (cos (π/2 y) - 1) / y² in y², to 4e-8 of the cosine.
const COSINE: [f32; 3] = [-1.2336977, 0.25360322, -0.020417284];

/// The bits of 2/3, with which mantissas begin.
const TWO_THIRDS: i32 = 0x3f2a_aaab;

fn polynomial<const R: usize>(x: Tile<f32, R>, coefficients: &[f32]) -> Tile<f32, R> {
    let (&last, others) = coefficients.split_last().expect("coefficients");
    let (&next, others) = others.split_last().expect("a polynomial of degree 1 at least");
    let first = x.fma(last, next);
    others.iter().rev().fold(first, |sum, &coefficient| sum.fma(x, coefficient))
}

/// -`factor` log u, with u = (word + 1/2) 2^-32, rounded: from 0 to 22.9 times the factor, a power of two.
fn minus_log<const R: usize>(word: Tile<u32, R>, factor: f32) -> Tile<f32, R> {
    let u = word.cast::<f32>().fma(2f32.powi(-32), 2f32.powi(-33));
    let bits = u.bitcast::<i32>();
    // 2^23 times the exponent, where mantissas are from 2/3 to 4/3.
    let exponent = (bits - TWO_THIRDS) & !0x7f_ffff;
    let f = (bits - exponent).bitcast::<f32>() - 1.0;
    let curve = polynomial(f, &LOG.map(|c| c * -factor)) * (f * f);
    let log = f.fma(-factor, curve);
    exponent.cast::<f32>().fma(-factor * std::f32::consts::LN_2 * 2f32.powi(-23), log)
}

/// √x of x from 0 to 2^7, to 1e-7 of it: of half the exponent's bits a guess at 1/√x, a step of the third order, and Newton's step
/// for the root itself. Without the special cases of a root that is rounded correctly there is no branch.
fn root<const R: usize>(x: Tile<f32, R>) -> Tile<f32, R> {
    let guess = (0x5f37_5a86 - (x.bitcast::<i32>() >> 1)).bitcast::<f32>();
    let error = (x * guess).fma(-guess, 1.0);
    let inverse = (guess * error).fma(error.fma(0.375, 0.5), guess);
    let root = x * inverse;
    root.fma(-root, x).fma(inverse * 0.5, root)
}

/// Numbers with mean 1.
pub(super) fn exponential<const R: usize>(word: Tile<u32, R>) -> Tile<f32, R> {
    minus_log(word, 1.0)
}

/// Two numbers with mean 0 and variance 1.
pub(super) fn normals<const R: usize>(distance: Tile<u32, R>, direction: Tile<u32, R>) -> [Tile<f32, R>; 2] {
    let radius = root(minus_log(distance, 2.0));
    // 23 bits say where in its quarter the direction is, two which quarter that is.
    let y = ((direction & 0x7f_ffff) | 0x3f80_0000).bitcast::<f32>() - 1.5;
    let square = y * y;
    let sine = polynomial(square, &SINE) * y;
    let cosine = polynomial(square, &COSINE).fma(square, 1.0);
    let radius = (radius.bitcast::<u32>() ^ (direction & 0x8000_0000)).bitcast::<f32>();
    let upright = (direction & 0x4000_0000).ne(0);
    [radius * upright.select(sine, cosine), radius * upright.select(cosine, sine)]
}
