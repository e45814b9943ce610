//! Hyperbolic functions, from e^|x| and, near zero, polynomials.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::exp::{constant, expm1_double, horner, scaled_double, scaled_single};

/// (sinh x - x) / x³ as a polynomial in x² for |x| ≤ 1.
const SINH: [f32; 4] = [
    f32::from_bits(0x3e2a_aaab),
    f32::from_bits(0x3c08_888f),
    f32::from_bits(0x3950_0480),
    f32::from_bits(0x363c_5387),
];
const SINH_F64: [f64; 8] = [
    0.16666666666666666,
    0.008333333333333333,
    0.00019841269841269773,
    2.755731922404034e-06,
    2.505210836405804e-08,
    1.6059048396350562e-10,
    7.646625361656657e-13,
    2.8445264169895285e-15,
];
/// (tanh x - x) / x³ as a polynomial in x² for |x| < 0.6.
const TANH: [f32; 4] = [
    f32::from_bits(0xbeaa_a9bc),
    f32::from_bits(0x3e08_5498),
    f32::from_bits(0xbd55_f043),
    f32::from_bits(0x3c80_2067),
];

/// Returns x + x·(x²·p(x²)); the sum with +0 keeps the sign of a zero x.
fn odd_polynomial<C: Copy + Into<Operand>>(b: &mut Builder, ty: Ty, x: Operand, coefficients: &[C]) -> Operand {
    let z = b.fmul(ty, x, x);
    let series = horner(b, ty, z, coefficients);
    let factor = b.fma(ty, series, z, constant(ty, 0.0));
    b.fma(ty, factor, x, x)
}

fn with_sign_of(b: &mut Builder, ty: Ty, x: Operand, magnitude: Operand) -> Operand {
    b.float(FloatOp::CopySign, ty, FloatMods::NONE, &[x, magnitude])
}

/// Returns e^|x| / 2 and e^-|x| / 2.
fn halves(b: &mut Builder, ty: Ty, magnitude: Operand) -> (Operand, Operand) {
    let (grown, mods) = match ty {
        Ty::F32 => (scaled_single(b, magnitude, -1), FloatMods::APPROX_FTZ),
        _ => (scaled_double(b, magnitude, -1), FloatMods::RN),
    };
    let inverse = b.float(FloatOp::Rcp, ty, mods, &[grown]);
    (grown, b.fmul(ty, inverse, constant(ty, 0.25)))
}

pub(super) fn sinh(b: &mut Builder, ty: Ty, x: Operand) -> Operand {
    let magnitude = b.fabs(ty, x);
    let (grown, shrunk) = halves(b, ty, magnitude);
    let far = b.fsub(ty, grown, shrunk);
    let far = with_sign_of(b, ty, x, far);
    let near = match ty {
        Ty::F32 => odd_polynomial(b, ty, x, &SINH),
        _ => odd_polynomial(b, ty, x, &SINH_F64),
    };
    let small = b.setp(Cmp::Lt, ty, magnitude, constant(ty, 1.0));
    b.select(ty.class(), small, near, far)
}

pub(super) fn cosh(b: &mut Builder, ty: Ty, x: Operand) -> Operand {
    let magnitude = b.fabs(ty, x);
    let (grown, shrunk) = halves(b, ty, magnitude);
    b.fadd(ty, grown, shrunk)
}

pub(super) fn tanh_single(b: &mut Builder, x: Operand) -> Operand {
    let magnitude = b.fabs(Ty::F32, x);
    // 1 - 2 / (e^2|x| + 1); 1 for a large power.
    let scaled = b.fmul(Ty::F32, magnitude, 2.0 * std::f32::consts::LOG2_E);
    let power = b.float(FloatOp::Ex2, Ty::F32, FloatMods::APPROX_FTZ, &[scaled]);
    let sum = b.fadd(Ty::F32, power, 1f32);
    let inverse = b.float(FloatOp::Rcp, Ty::F32, FloatMods::APPROX_FTZ, &[sum]);
    let far = b.fma(Ty::F32, inverse, -2f32, 1f32);
    let far = with_sign_of(b, Ty::F32, x, far);
    let near = odd_polynomial(b, Ty::F32, x, &TANH);
    let small = b.setp(Cmp::Lt, Ty::F32, magnitude, 0.6f32);
    b.select(RegClass::F32, small, near, far)
}

pub(super) fn tanh_double(b: &mut Builder, x: Operand) -> Operand {
    let magnitude = b.fabs(Ty::F64, x);
    // t / (t + 2) with t = e^2|x| - 1; 1 from 20 on.
    let twice = b.fadd(Ty::F64, magnitude, magnitude);
    let t = expm1_double(b, twice);
    let sum = b.fadd(Ty::F64, t, 2f64);
    let ratio = b.float(FloatOp::Div, Ty::F64, FloatMods::RN, &[t, sum]);
    let far = b.setp(Cmp::Gt, Ty::F64, magnitude, 20f64);
    let ratio = b.select(RegClass::F64, far, 1f64, ratio);
    with_sign_of(b, Ty::F64, x, ratio)
}
