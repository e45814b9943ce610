//! Sine and cosine of angles in half turns.
//!
//! Whole quarters are subtracted exactly. Polynomials in the square of the remainder, which is at
//! most an eighth of a turn, compute both functions. The coefficients interpolate at Chebyshev
//! points, computed with 60 digits.

use crate::dtype::DType;
use crate::element::Float;
use crate::ir::{CmpPred, Value};
use crate::ops::support::expr_builder::{ExprBuilder, float_formula, functions};
use crate::ops::support::operand::{methods, value};
use crate::tile::{Scalar, Tile, caller_location};

functions! {
    /// The sine of π times each element, exact at whole and half numbers.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     let x = x.load(0, [4]);
    ///     y.store(0, ct::cat([x.sinpi(), x.cospi()], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[0.5, 1.0, -1e9, 1e9 + 64.0], [4])?, device.zeros([8])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1.0, 0.0, 0.0, 0.0, 0.0, -1.0, 1.0, 1.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    sinpi = |c: &mut ExprBuilder<'_>, x| {
        let magnitude = c.abs(x);
        let turned = turned(c, magnitude)[0];
        let one = c.number(1.0);
        let sign = c.with_sign_of(one, x);
        c.mul(turned, sign)
    };
    /// The cosine of π times each element, exact at whole and half numbers.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([0.5f32, 1.0]).cospi().eq(ct::astile([0.0, -1.0])));
    /// # });
    /// ```
    cospi = |c: &mut ExprBuilder<'_>, x| {
        let magnitude = c.abs(x);
        turned(c, magnitude)[1]
    };
}

/// (sin(π r) / r - π) / r² as a polynomial in r², for r² from 0 to 1/16; relative error of the sine
/// 2e-11.
const SINE_SINGLE: [f64; 4] = [-5.167712779178267, 2.5501635935099567, -0.5992287960538701, 0.08122957450924484];

/// The polynomial of [`SINE_SINGLE`] for f64; relative error of the sine 7e-21.
const SINE_DOUBLE: [f64; 7] = [
    -5.16771278004997,
    2.550164039877345,
    -0.5992645293206478,
    0.08214588659727676,
    -0.0073704303122948235,
    0.0004662879326147481,
    -2.1742067342478005e-05,
];

/// (cos(π r) - 1) / r² as a polynomial in r², for r² from 0 to 1/16; relative error of the cosine
/// 3e-10.
const COSINE_SINGLE: [f64; 4] = [-4.934802197496877, 4.058710565713736, -1.3351378139007979, 0.23212541399123623];

/// The polynomial of [`COSINE_SINGLE`] for f64; relative error of the cosine 2e-19.
const COSINE_DOUBLE: [f64; 7] = [
    -4.934802200544679,
    4.058712126416765,
    -1.3352627688538095,
    0.23533063028399223,
    -0.025806887964701878,
    0.001929493874894941,
    -0.00010370082971594627,
];

/// sin(π a) and cos(π a) for `a` that is not negative.
pub(crate) fn turned(c: &mut ExprBuilder<'_>, a: Value) -> [Value; 2] {
    let (half, two) = (c.number(0.5), c.number(2.0));
    // The remainder of whole turns, from 0 to 2, and the remainder of the nearest quarter.
    let turns = c.mul(a, half);
    let turns = c.floor(turns);
    let minus = c.neg(two);
    let rest = c.fma(turns, minus, a);
    let quarters = c.fma(rest, two, half);
    let quarters = c.floor(quarters);
    let minus = c.neg(half);
    let rest = c.fma(quarters, minus, rest);
    let (sine, cosine) = (sine(c, rest), cosine(c, rest));
    let is = [1.0, 2.0, 3.0].map(|n| c.is_number(CmpPred::Eq, quarters, n));
    // 0 - 0 is a positive zero.
    let zero = c.number(0.0);
    let (less_sine, less_cosine) = (c.sub(zero, sine), c.sub(zero, cosine));
    let chosen = |c: &mut ExprBuilder<'_>, whole, quarters: [Value; 3]| {
        is.into_iter().zip(quarters).fold(whole, |chosen, (is, quarter)| c.select(is, quarter, chosen))
    };
    [chosen(c, sine, [cosine, less_sine, less_cosine]), chosen(c, cosine, [less_sine, less_cosine, sine])]
}

fn sine(c: &mut ExprBuilder<'_>, r: Value) -> Value {
    // π as the sum of two numbers of the type.
    let (high, low, terms): (_, _, &[f64]) = match c.dtype {
        DType::F64 => (std::f64::consts::PI, 1.224_646_799_147_353_2e-16, &SINE_DOUBLE),
        _ => (3.141_592_741_012_573, -8.742_277_657_347_586e-8, &SINE_SINGLE),
    };
    let (high, low) = (c.number(high), c.number(low));
    let square = c.mul(r, r);
    let terms = c.polynomial(square, terms);
    let rest = c.fma(terms, square, low);
    let rest = c.mul(rest, r);
    c.fma(r, high, rest)
}

fn cosine(c: &mut ExprBuilder<'_>, r: Value) -> Value {
    let terms: &[f64] = if c.dtype == DType::F64 { &COSINE_DOUBLE } else { &COSINE_SINGLE };
    let (square, one) = (c.mul(r, r), c.number(1.0));
    let terms = c.polynomial(square, terms);
    c.fma(terms, square, one)
}
