//! Logarithms.
//!
//! x = 2^n · m with m around 1, the polynomial in f = m - 1 (f32) or s = f / (2 + f) (f64).

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::exp::{LOG2E, LOG2E_F64, horner};

/// (log(1 + f) - f + f²/2) / f³ on [-1/3, 1/3).
const LOG1P: [f32; 7] = [
    f32::from_bits(0x3eaa_aa94),
    f32::from_bits(0xbe80_058e),
    f32::from_bits(0x3e4c_e190),
    f32::from_bits(0xbe28_ad3f),
    f32::from_bits(0x3e0f_cafc),
    f32::from_bits(0xbe1a_d9b9),
    f32::from_bits(0x3e0d_8575),
];

/// (log((1 + s) / (1 - s)) / s - 2) / s² as a polynomial in s², |s| ≤ 0.172.
const LOG: [f64; 7] = [
    0.666666666666667,
    0.3999999999989819,
    0.28571428626570206,
    0.2222221103781659,
    0.18182896183483085,
    0.15331487235865734,
    0.14619343453512615,
];

/// ln 2 as a sum of two f64. The first has at least 11 trailing zero bits, so its product with n is
/// exact.
const LN2_SPLIT: [f64; 2] = [0.6931471805598903, 5.497923018708371e-14];

/// The decomposition x = 2^n (1 + f) of a positive finite x: n as f32 or f64, and f.
pub(super) struct Split {
    /// n, as a float.
    pub exponent: Operand,
    /// f, exact.
    pub fraction: Operand,
}

/// Decomposes x with m = 1 + f in [2/3, 4/3).
pub(super) fn split_single(b: &mut Builder, x: Operand) -> Split {
    let small = b.setp(Cmp::Lt, Ty::F32, x, f32::MIN_POSITIVE);
    let grown = b.fmul(Ty::F32, x, 8_388_608f32);
    let x = b.select(RegClass::F32, small, grown, x);
    let offset = b.select(RegClass::F32, small, -23f32, 0f32);
    let bits = b.bitcast(x, RegClass::B32);
    let relative = b.sub(Ty::S32, bits, 0x3f2a_aaabi64);
    let field = b.and(Ty::B32, relative, 0xff80_0000u32);
    let mantissa = b.sub(Ty::S32, bits, field);
    let mantissa = b.bitcast(mantissa, RegClass::F32);
    let fraction = b.fadd(Ty::F32, mantissa, -1f32);
    let count = b.cvt(Ty::F32, Ty::S32, CvtRound::Rn, field);
    let exponent = b.fma(Ty::F32, count, f32::EPSILON, offset);
    Split { exponent, fraction }
}

/// Decomposes x; `low` is the high word of the lower end of m's interval [low, 2 low).
pub(super) fn split_double(b: &mut Builder, x: Operand, low: i64) -> Split {
    let small = b.setp(Cmp::Lt, Ty::F64, x, f64::MIN_POSITIVE);
    let grown = b.fmul(Ty::F64, x, 18014398509481984.0);
    let x = b.select(RegClass::F64, small, grown, x);
    let offset = b.select(RegClass::B32, small, -54i64, 0i64);
    let (lower, upper) = b.unpack(x);
    let relative = b.sub(Ty::S32, upper, low);
    let count = b.shr(Ty::S32, relative, 20i64);
    let field = b.shl(Ty::B32, count, 20i64);
    let upper = b.sub(Ty::S32, upper, field);
    let mantissa = b.pack(lower, upper);
    let mantissa = b.bitcast(mantissa, RegClass::F64);
    let fraction = b.fadd(Ty::F64, mantissa, -1f64);
    let count = b.add(Ty::S32, count, offset);
    let exponent = b.cvt(Ty::F64, Ty::S32, CvtRound::Rn, count);
    Split { exponent, fraction }
}

/// Returns `value` for positive finite x; -∞ at zero, NaN below, x itself for ∞ and NaN.
fn with_specials(b: &mut Builder, ty: Ty, x: Operand, value: Operand) -> Operand {
    let (nan, low, infinity): (Operand, Operand, Operand) = match ty {
        Ty::F32 => (f32::NAN.into(), f32::NEG_INFINITY.into(), f32::INFINITY.into()),
        _ => (f64::NAN.into(), f64::NEG_INFINITY.into(), f64::INFINITY.into()),
    };
    let zero: Operand = if ty == Ty::F32 { 0f32.into() } else { 0f64.into() };
    let class = ty.class();
    let large = b.setp(Cmp::Geu, ty, x, infinity);
    let value = b.select(class, large, x, value);
    let negative = b.setp(Cmp::Lt, ty, x, zero);
    let value = b.select(class, negative, nan, value);
    let is_zero = b.setp(Cmp::Eq, ty, x, zero);
    b.select(class, is_zero, low, value)
}

/// Returns log(1 + f) - f.
fn correction_single(b: &mut Builder, f: Operand) -> Operand {
    let tail = horner(b, Ty::F32, f, &LOG1P);
    let tail = b.fma(Ty::F32, tail, f, -0.5f32);
    let square = b.fmul(Ty::F32, f, f);
    b.fmul(Ty::F32, tail, square)
}

/// Returns the natural logarithm, by the hardware's logarithm to base 2.
pub(super) fn approx_single(b: &mut Builder, x: Operand) -> Operand {
    let log2 = b.float(FloatOp::Lg2, Ty::F32, FloatMods::APPROX_FTZ, &[x]);
    b.fmul(Ty::F32, log2, std::f32::consts::LN_2)
}

/// Returns the natural logarithm.
pub(super) fn single(b: &mut Builder, x: Operand) -> Operand {
    let Split { exponent, fraction } = split_single(b, x);
    let tail = horner(b, Ty::F32, fraction, &LOG1P);
    let tail = b.fma(Ty::F32, tail, fraction, -0.5f32);
    let square = b.fmul(Ty::F32, fraction, fraction);
    let log = b.fma(Ty::F32, tail, square, fraction);
    let value = b.fma(Ty::F32, exponent, std::f32::consts::LN_2, log);
    with_specials(b, Ty::F32, x, value)
}

/// Returns the logarithm to base 2.
pub(super) fn log2_single(b: &mut Builder, x: Operand) -> Operand {
    let Split { exponent, fraction } = split_single(b, x);
    let correction = correction_single(b, fraction);
    let low = b.fmul(Ty::F32, fraction, LOG2E[1]);
    let low = b.fma(Ty::F32, correction, LOG2E[0], low);
    let log = b.fma(Ty::F32, fraction, LOG2E[0], low);
    let value = b.fadd(Ty::F32, exponent, log);
    with_specials(b, Ty::F32, x, value)
}

/// High word of √½.
const SQRT_HALF: i64 = 0x3fe6_a09e;

/// Returns log(1 + f) - f for 1 + f in [√½, √2).
fn correction_double(b: &mut Builder, f: Operand) -> Operand {
    let sum = b.fadd(Ty::F64, f, 2f64);
    let s = b.float(FloatOp::Div, Ty::F64, FloatMods::RN, &[f, sum]);
    let z = b.fmul(Ty::F64, s, s);
    let series = horner(b, Ty::F64, z, &LOG);
    let half = b.fmul(Ty::F64, f, 0.5f64);
    let half_square = b.fmul(Ty::F64, half, f);
    let series = b.fma(Ty::F64, series, z, half_square);
    let negated = b.fneg(Ty::F64, half_square);
    b.fma(Ty::F64, s, series, negated)
}

/// Returns the natural logarithm.
pub(super) fn double(b: &mut Builder, x: Operand) -> Operand {
    let Split { exponent, fraction } = split_double(b, x, SQRT_HALF);
    let correction = correction_double(b, fraction);
    let low = b.fma(Ty::F64, exponent, LN2_SPLIT[1], correction);
    let high = b.fma(Ty::F64, exponent, LN2_SPLIT[0], fraction);
    // high is rounded if n ≠ 0; its rounding error is added to the low part.
    let negated = b.fneg(Ty::F64, high);
    let lost = b.fma(Ty::F64, exponent, LN2_SPLIT[0], negated);
    let lost = b.fadd(Ty::F64, lost, fraction);
    let low = b.fadd(Ty::F64, low, lost);
    let value = b.fadd(Ty::F64, high, low);
    with_specials(b, Ty::F64, x, value)
}

/// Returns the logarithm to base 2.
pub(super) fn log2_double(b: &mut Builder, x: Operand) -> Operand {
    let Split { exponent, fraction } = split_double(b, x, SQRT_HALF);
    let correction = correction_double(b, fraction);
    let high = b.fmul(Ty::F64, fraction, LOG2E_F64[0]);
    let negated = b.fneg(Ty::F64, high);
    let low = b.fma(Ty::F64, fraction, LOG2E_F64[0], negated);
    let low = b.fma(Ty::F64, fraction, LOG2E_F64[1], low);
    let low = b.fma(Ty::F64, correction, LOG2E_F64[0], low);
    let log = b.fadd(Ty::F64, high, low);
    let value = b.fadd(Ty::F64, exponent, log);
    with_specials(b, Ty::F64, x, value)
}
