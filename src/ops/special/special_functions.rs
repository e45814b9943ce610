//! Functions of floats without an op in the IR, by formulas over other ops. f16 and bf16 are
//! computed in f32.
//!
//! * `expm1`, `log1p`: W. Kahan's quotients, in which the error of the inner rounding cancels (N.
//!   Higham, *Accuracy and Stability of Numerical Algorithms*, 1.14.1);
//! * `exp10`: 2^(x log2 10) with the product in two parts;
//! * `cbrt`: an initial value by logarithms, and one Newton step;
//! * `asin`, `acos`, `atan`: angles of points, by `atan2`;
//! * `erf` near zero: a polynomial in x²;
//! * `erfc` elsewhere: exp(-x²) with x² in two parts, times a polynomial in (|x| - c) / (|x| + c),
//!   divided by 1 + 2|x| (M. Shepherd and J. Laframboise, *Math. Comp.* 36, 1981).
//!
//! The coefficients interpolate at Chebyshev points, computed with 50 digits.

use crate::dtype::DType;
use crate::element::Float;
use crate::ir::{CmpPred, Value};
use crate::ops::support::expr_builder::{ExprBuilder, float_formula, functions};
use crate::ops::support::operand::{BroadcastOperand, arg_of, methods, value};
use crate::tile::{Scalar, Tile, caller_location};

functions! {
    /// 10 to the power of each element.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([2.0f32, -1.0]).exp10() - ct::astile([100.0, 0.1])).abs().lt(1e-4));
    /// # });
    /// ```
    exp10 = exp10;
    /// Logarithm to base 10.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([100.0f32, 0.1]).log10() - ct::astile([2.0, -1.0])).abs().lt(1e-6));
    /// # });
    /// ```
    log10 = |c: &mut ExprBuilder<'_>, x| {
        let (log, factor) = (c.log(x), c.number(std::f64::consts::LOG10_E));
        c.mul(log, factor)
    };
    /// `self.exp() - 1.0`, accurate also if the result is small.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     let x = x.load(0, [2]);
    ///     y.store(0, ct::cat([x.expm1(), x.log1p()], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[1e-10, -1e-20], [2])?, device.zeros([4])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1e-10, -1e-20, 1e-10, -1e-20]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    expm1 = expm1;
    /// `(self + 1.0).log()`, accurate also if `self` is small.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1e-10f32, 0.0]).log1p().eq(ct::astile([1e-10, 0.0])));
    /// # });
    /// ```
    log1p = log1p;
    /// Cube root, also of negative numbers.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([27.0f32, -8.0]).cbrt() - ct::astile([3.0, -2.0])).abs().lt(1e-6));
    /// # });
    /// ```
    cbrt = cbrt;
    /// The angle whose sine is the element, between -π/2 and π/2; NaN outside of -1 to 1.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.0]).asin() - ct::astile([0.0, 1.5707964])).abs().lt(1e-6));
    /// # });
    /// ```
    asin = |c: &mut ExprBuilder<'_>, x| {
        let other = other_side(c, x);
        c.atan2(x, other)
    };
    /// The angle whose cosine is the element, between 0 and π; NaN outside of -1 to 1.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([1.0f32, 0.0]).acos() - ct::astile([0.0, 1.5707964])).abs().lt(1e-6));
    /// # });
    /// ```
    acos = |c: &mut ExprBuilder<'_>, x| {
        let other = other_side(c, x);
        c.atan2(other, x)
    };
    /// The angle whose tangent is the element, between -π/2 and π/2.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.0]).atan() - ct::astile([0.0, 0.7853982])).abs().lt(1e-6));
    /// # });
    /// ```
    atan = |c: &mut ExprBuilder<'_>, x| {
        let one = c.number(1.0);
        c.atan2(x, one)
    };
    /// The error function: 2/√π times the integral of exp(-t²) from 0 to the element.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     let x = x.load(0, [4]);
    ///     y.store(0, ct::cat([x.erf(), x.erfc()], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[-9.0, 0.0, 0.5, 5.0], [4])?, device.zeros([8])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// let y = y.to_vec()?;
    /// assert_eq!(&y[..2], [-1.0, 0.0]);
    /// assert!((y[2] - 0.520_499_9).abs() < 1e-6);
    /// assert_eq!(&y[4..6], [2.0, 1.0]);
    /// assert!((y[7] / 1.537_46e-12 - 1.0).abs() < 1e-5);
    /// # Ok::<(), ct::Error>(())
    /// ```
    erf = erf;
    /// `1.0 - self.erf()`, accurate also if the result is small.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 5.0]).erfc() / ct::astile([1.0, 1.53746e-12]) - 1.0).abs().lt(1e-5));
    /// # });
    /// ```
    erfc = |c: &mut ExprBuilder<'_>, x| errors(c, x)[1];
    /// `1.0 / self`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([4.0f32, 0.0]).recip().eq(ct::astile([0.25, f32::INFINITY])));
    /// # });
    /// ```
    recip = |c: &mut ExprBuilder<'_>, x| {
        let one = c.number(1.0);
        c.div(one, x)
    };
}

methods! { [Float]
    /// √(`self`² + `other`²), also if the squares exceed the range of the type.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([3.0f32, 3e30]).hypot(ct::astile([4.0, 4e30])) / ct::astile([5.0, 5e30]) - 1.0).abs().lt(1e-6));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn hypot(self, other: impl BroadcastOperand<Self>) -> Self {
        float_formula(caller_location(), "hypot", &[value(self), arg_of::<Self>(other)], |c, v| {
            let (a, b) = (c.abs(v[0]), c.abs(v[1]));
            let (large, small) = (c.larger(a, b), c.smaller(a, b));
            let ratio = c.div(small, large);
            let one = c.number(1.0);
            let sum = c.fma(ratio, ratio, one);
            let root = c.sqrt(sum);
            let length = c.mul(large, root);
            // Zeros and infinities have no ratio. An infinity takes precedence over a NaN, as in
            // IEEE 754.
            let plain = c.is_number(CmpPred::Gt, large, 0.0);
            let length = c.select(plain, length, large);
            let infinity = c.number(f64::INFINITY);
            let infinite = [a, b].map(|x| c.is(CmpPred::Eq, x, infinity));
            infinite.into_iter().fold(length, |length, infinite| c.select(infinite, infinity, length))
        })
    }
}

fn exp10(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    // log2 10 as the sum of two numbers of the type.
    let (high, low) = match c.dtype {
        DType::F64 => (std::f64::consts::LOG2_10, 1.661_617_516_973_592e-16),
        _ => (3.321_928_024_291_992, 7.059_537_016_037_032e-8),
    };
    let (high, low) = (c.number(high), c.number(low));
    let product = c.mul(x, high);
    let minus = c.neg(product);
    let rest = c.fma(x, high, minus);
    let rest = c.fma(x, low, rest);
    let power = c.exp2(product);
    let ln2 = c.number(std::f64::consts::LN_2);
    let rest = c.mul(rest, ln2);
    let corrected = c.fma(power, rest, power);
    // Zeros and infinities have no correction; a NaN is propagated.
    let finite = c.is_number(CmpPred::Lt, power, f64::INFINITY);
    let positive = c.is_number(CmpPred::Gt, power, 0.0);
    let kept = c.select(finite, corrected, power);
    c.select(positive, kept, power)
}

fn expm1(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let (power, one) = (c.exp(x), c.number(1.0));
    let less = c.sub(power, one);
    let log = c.log(power);
    let product = c.mul(less, x);
    let quotient = c.div(product, log);
    let tiny = c.is(CmpPred::Eq, power, one);
    let near = c.select(tiny, x, quotient);
    let half = c.number(0.5);
    let distance = c.sub(x, half);
    let distance = c.abs(distance);
    // From -1 to 2 the difference can lose digits.
    let is_near = c.is_number(CmpPred::Lt, distance, 1.5);
    c.select(is_near, near, less)
}

pub(super) fn log1p(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let one = c.number(1.0);
    let sum = c.add(x, one);
    let log = c.log(sum);
    let added = c.sub(sum, one);
    let product = c.mul(log, x);
    let quotient = c.div(product, added);
    let tiny = c.is(CmpPred::Eq, sum, one);
    let near = c.select(tiny, x, quotient);
    let is_near = c.is_number(CmpPred::Lt, x, 1e4);
    c.select(is_near, near, log)
}

fn cbrt(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let a = c.abs(x);
    let (log, third) = (c.log2(a), c.number(1.0 / 3.0));
    let power = c.mul(log, third);
    let first = c.exp2(power);
    let square = c.mul(first, first);
    let other = c.div(a, square);
    let difference = c.sub(other, first);
    let root = c.fma(difference, third, first);
    // Zeros and infinities are their own cube roots.
    let positive = c.is_number(CmpPred::Gt, a, 0.0);
    let root = c.select(positive, root, a);
    let finite = c.is_number(CmpPred::Lt, a, f64::INFINITY);
    let root = c.select(finite, root, a);
    c.with_sign_of(root, x)
}

/// √(1 - x²): the other leg of a right triangle with hypotenuse 1.
fn other_side(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let one = c.number(1.0);
    let (less, more) = (c.sub(one, x), c.add(one, x));
    let product = c.mul(less, more);
    c.sqrt(product)
}

/// (erf √s / √s) - 1 for s from 0 to 1; relative error of 1 + this 1.4e-9.
const ERF_SINGLE: [f64; 7] = [
    0.12837916584835093,
    -0.37612626666720334,
    0.11283594715160218,
    -0.026854212010626412,
    0.005189087423433974,
    -0.000801686428716587,
    7.875875062685488e-05,
];

/// The polynomial of [`ERF_SINGLE`] for f64; relative error 1.5e-19.
const ERF_DOUBLE: [f64; 13] = [
    0.1283791670955126,
    -0.3761263890318375,
    0.11283791670954879,
    -0.026866170645076792,
    0.0052239776248180145,
    -0.000854832698083379,
    0.0001205533111164271,
    -1.4925595266831182e-05,
    1.6461000484121368e-06,
    -1.6350312701054695e-07,
    1.4659775274047436e-08,
    -1.1372848856791674e-09,
    5.957176147748911e-11,
];

/// (1 + 2x) exp(x²) erfc x as a polynomial in (x - 2) / (x + 2), for x from 0.5 to 10.5; relative
/// error 5.6e-9.
const TAIL_SINGLE: [f64; 10] = [
    1.2769783859320132,
    -0.0927637750938297,
    -0.16603091479374824,
    0.1640490808859925,
    -0.05421002430429761,
    -0.008008588114420581,
    0.008653827199617116,
    0.001156027274954643,
    -0.0012584151522610026,
    -0.00023622493442422335,
];

/// (1 + 2x) exp(x²) erfc x as a polynomial in (x - 4) / (x + 4), for x from 0.5 to 28; relative
/// error 6.6e-19.
const TAIL_DOUBLE: [f64; 23] = [
    1.2329951186255526,
    -0.1396211168405625,
    0.015379652102619901,
    0.06809705425468844,
    -0.1010390660363143,
    0.09373283499853434,
    -0.06633036581196795,
    0.03716751553379472,
    -0.016197734061059108,
    0.00503197001856426,
    -0.0007577732634973155,
    -0.00019925696553927866,
    0.00015062155590137163,
    -2.4398057333996413e-05,
    -1.1221668942295945e-05,
    5.706494720146254e-06,
    2.9313186423696087e-07,
    -8.195085083459565e-07,
    7.540467350144586e-08,
    1.03256669073015e-07,
    -1.8406671051403966e-08,
    -9.652213521087604e-09,
    1.9717656765049794e-09,
];

pub(super) fn erf(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    errors(c, x)[0]
}

/// erf and erfc of `x`.
fn errors(c: &mut ExprBuilder<'_>, x: Value) -> [Value; 2] {
    let (center, last, near, tail): (_, _, &[f64], &[f64]) = match c.dtype {
        DType::F64 => (4.0, 28.0, &ERF_DOUBLE, &TAIL_DOUBLE),
        _ => (2.0, 10.5, &ERF_SINGLE, &TAIL_SINGLE),
    };
    let one = c.number(1.0);
    let magnitude = c.abs(x);
    // For larger magnitudes erf is 1 and erfc is 0.
    let last = c.number(last);
    let a = c.smaller(magnitude, last);
    let square = c.mul(a, a);
    let inner = c.polynomial(square, near);
    let inner = c.fma(inner, a, a);
    let outer = {
        let minus = c.neg(square);
        let rest = c.fma(a, a, minus);
        let power = c.exp(minus);
        let power = {
            let rest = c.neg(rest);
            c.fma(power, rest, power)
        };
        let center = c.number(center);
        let (less, more) = (c.sub(a, center), c.add(a, center));
        let at = c.div(less, more);
        let factor = c.polynomial(at, tail);
        let product = c.mul(power, factor);
        let two = c.number(2.0);
        let divisor = c.fma(two, a, one);
        c.div(product, divisor)
    };
    let far = c.sub(one, outer);
    let is_near = c.is_number(CmpPred::Lt, a, 1.0);
    let erf = c.select(is_near, inner, far);
    let erf = c.with_sign_of(erf, x);
    let is_near = c.is_number(CmpPred::Lt, a, 0.5);
    let signed = c.with_sign_of(inner, x);
    let near = c.sub(one, signed);
    let two = c.number(2.0);
    let mirrored = c.sub(two, outer);
    let negative = c.is_number(CmpPred::Lt, x, 0.0);
    let far = c.select(negative, mirrored, outer);
    let erfc = c.select(is_near, near, far);
    [erf, erfc]
}
