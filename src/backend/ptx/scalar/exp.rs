//! Exponentials.
//!
//! f32: the argument in units of ln 2 is split into an integer, which is added to the exponent
//! field, and a rest for the hardware `ex2`. The split is clamped, so overflow and gradual
//! underflow occur in the last product. f64: Cody–Waite reduction and a polynomial.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;

/// log2 e as a sum of two f32.
pub(super) const LOG2E: [f32; 2] = [f32::from_bits(0x3fb8_aa3b), f32::from_bits(0x32a5_7060)];
/// ln 2 as a sum of two f64.
pub(super) const LN2: [f64; 2] = [std::f64::consts::LN_2, 2.3190468138462996e-17];
/// log2 e as a sum of two f64.
pub(super) const LOG2E_F64: [f64; 2] = [std::f64::consts::LOG2_E, 2.0355273740931033e-17];
/// The sum with this number rounds an f64 of magnitude below 2^51 to an integer, in the low bits of
/// the sum.
pub(super) const MAGIC: f64 = 6755399441055744.0;

/// (e^r - 1 - r) / r² on |r| ≤ ln 2 / 2.
const EXP: [f64; 11] = [
    0.5,
    0.1666666666666667,
    0.04166666666666667,
    0.00833333333332612,
    0.0013888888888883737,
    0.00019841269874873975,
    2.480158732558584e-05,
    2.755725533255441e-06,
    2.7557273594799413e-07,
    2.510524515390137e-08,
    2.0914707069612355e-09,
];

/// Returns a float constant of f32 or f64 from an f64.
pub(super) fn constant(ty: Ty, value: f64) -> Operand {
    if ty == Ty::F32 { Operand::F32(value as f32) } else { Operand::F64(value) }
}

/// Evaluates a polynomial by Horner's rule, lowest power first.
pub(super) fn horner<C: Copy + Into<Operand>>(b: &mut Builder, ty: Ty, x: Operand, coefficients: &[C]) -> Operand {
    let (last, rest) = coefficients.split_last().expect("a coefficient");
    rest.iter().rev().fold((*last).into(), |sum, &c| b.fma(ty, sum, x, c))
}

/// Returns exp2(x · log2 e) with the hardware's accuracy.
pub(super) fn approx_single(b: &mut Builder, x: Operand) -> Operand {
    let scaled = b.fmul(Ty::F32, x, LOG2E[0]);
    b.float(FloatOp::Ex2, Ty::F32, FloatMods::APPROX_FTZ, &[scaled])
}

/// Returns e^x.
pub(super) fn single(b: &mut Builder, x: Operand) -> Operand {
    scaled_single(b, x, 0)
}

/// Returns e^x · 2^scale for scale 0 or -1 (the latter for x ≥ 0).
pub(super) fn scaled_single(b: &mut Builder, x: Operand, scale: i32) -> Operand {
    // n = rint(x log2 e) clamped to ±126, found as 252 t with t clamped to [0, 1].
    let sat = FloatMods { sat: true, ..FloatMods::RN };
    let t = b.float(FloatOp::Fma, Ty::F32, sat, &[x, (LOG2E[0] / 252.0).into(), 0.5f32.into()]);
    // 1.5·2^23 + n + 127: the low bits are the exponent field of 2^n.
    let field = b.fma(Ty::F32, t, 252f32, 12_582_913f32);
    let n = b.fsub(Ty::F32, field, 12_583_039f32);
    let negated = b.fneg(Ty::F32, n);
    let rest = b.fma(Ty::F32, x, LOG2E[0], negated);
    let rest = b.fma(Ty::F32, x, LOG2E[1], rest);
    let field = b.bitcast(field, RegClass::B32);
    let field = b.add(Ty::S32, field, scale);
    let power = b.shl(Ty::B32, field, 23i64);
    let power = b.bitcast(power, RegClass::F32);
    let value = b.float(FloatOp::Ex2, Ty::F32, FloatMods::APPROX_FTZ, &[rest]);
    b.fmul(Ty::F32, value, power)
}

/// Reduces e^x = 2^n (1 + m): returns n (B32) and m, for |x| < 2^20.
pub(super) fn reduced_double(b: &mut Builder, x: Operand) -> (Operand, Operand) {
    let shifted = b.fma(Ty::F64, x, LOG2E_F64[0], MAGIC);
    let (n, _) = b.unpack(shifted);
    let count = b.fsub(Ty::F64, shifted, MAGIC);
    let rest = b.fma(Ty::F64, count, -LN2[0], x);
    let rest = b.fma(Ty::F64, count, -LN2[1], rest);
    (n, expm1_core(b, rest))
}

/// Returns e^r - 1 for |r| ≤ 0.35.
pub(super) fn expm1_core(b: &mut Builder, r: Operand) -> Operand {
    let square = b.fmul(Ty::F64, r, r);
    let tail = horner(b, Ty::F64, r, &EXP);
    b.fma(Ty::F64, tail, square, r)
}

/// Returns 2^n as f64, for n of a normal number.
pub(super) fn power_of_two_double(b: &mut Builder, n: Operand) -> Operand {
    let field = b.add(Ty::S32, n, 1023i64);
    let high = b.shl(Ty::B32, field, 20i64);
    let bits = b.pack(0i64, high);
    b.bitcast(bits, RegClass::F64)
}

/// Returns value · 2^n with one rounding, for value in [1/2, 2] and |n| < 1100.
pub(super) fn ldexp_double(b: &mut Builder, value: Operand, n: Operand) -> Operand {
    let first = b.shr(Ty::S32, n, 1i64);
    let second = b.sub(Ty::S32, n, first);
    let (first, second) = (power_of_two_double(b, first), power_of_two_double(b, second));
    let value = b.fmul(Ty::F64, value, first);
    b.fmul(Ty::F64, value, second)
}

/// Returns `value`, or infinity above `high` and zero below `low`; a NaN `x` keeps `value`.
pub(super) fn bounded_double(b: &mut Builder, x: Operand, value: Operand, low: f64, high: f64) -> Operand {
    let over = b.setp(Cmp::Gt, Ty::F64, x, high);
    let value = b.select(RegClass::F64, over, f64::INFINITY, value);
    let under = b.setp(Cmp::Lt, Ty::F64, x, low);
    b.select(RegClass::F64, under, 0f64, value)
}

/// Returns e^x · 2^scale.
pub(super) fn scaled_double(b: &mut Builder, x: Operand, scale: i32) -> Operand {
    let (n, m) = reduced_double(b, x);
    let n = b.add(Ty::S32, n, scale);
    let value = b.fadd(Ty::F64, m, 1f64);
    let value = ldexp_double(b, value, n);
    bounded_double(b, x, value, -746.0, 711.0)
}

/// Returns e^x.
pub(super) fn double(b: &mut Builder, x: Operand) -> Operand {
    scaled_double(b, x, 0)
}

/// Returns 2^(x + low), with `low` a small correction.
pub(super) fn exp2_sum_double(b: &mut Builder, x: Operand, low: Option<Operand>) -> Operand {
    let shifted = b.fadd(Ty::F64, x, MAGIC);
    let (n, _) = b.unpack(shifted);
    let count = b.fsub(Ty::F64, shifted, MAGIC);
    let rest = b.fsub(Ty::F64, x, count);
    let mut tail = b.fmul(Ty::F64, rest, LN2[1]);
    if let Some(low) = low {
        tail = b.fma(Ty::F64, low, LN2[0], tail);
    }
    let product = b.fmul(Ty::F64, rest, LN2[0]);
    let negated = b.fneg(Ty::F64, product);
    let error = b.fma(Ty::F64, rest, LN2[0], negated);
    let tail = b.fadd(Ty::F64, tail, error);
    let m = expm1_core(b, product);
    // e^(p + t) - 1 = m + t (1 + m) to first order in t.
    let tail = b.fma(Ty::F64, tail, m, tail);
    let m = b.fadd(Ty::F64, m, tail);
    let value = b.fadd(Ty::F64, m, 1f64);
    let value = ldexp_double(b, value, n);
    bounded_double(b, x, value, -1076.0, 1024.5)
}

/// Returns e^x - 1 for x from 0 to 50.
pub(super) fn expm1_double(b: &mut Builder, x: Operand) -> Operand {
    let (n, m) = reduced_double(b, x);
    let power = power_of_two_double(b, n);
    let offset = b.fadd(Ty::F64, power, -1f64);
    b.fma(Ty::F64, power, m, offset)
}
