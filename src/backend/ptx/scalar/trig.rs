//! Sine, cosine, tangent, and the angle of a point.
//!
//! x = j·π/2 + r with |r| slightly above π/4 at most. For moderate x: Cody–Waite reduction with
//! three parts of π/2. Otherwise, in a branch: the product with a window of the bits of 2/π
//! (Payne–Hanek).

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::exp::{MAGIC, constant, horner};
use crate::util::collect::CollectVec as _;

/// (sin r - r) / r³ and (cos r - 1 + r²/2) / r⁴ as polynomials in r².
const SIN: [f32; 3] = [f32::from_bits(0xbe2a_aaa3), f32::from_bits(0x3c08_83b0), f32::from_bits(0xb94c_a75a)];
const COS: [f32; 3] = [f32::from_bits(0x3d2a_aaa5), f32::from_bits(0xbab6_0646), f32::from_bits(0x37cd_012d)];
const SIN_F64: [f64; 6] = [
    -0.16666666666666666,
    0.008333333333330929,
    -0.00019841269836729297,
    2.7557316087378873e-06,
    -2.5051128685155503e-08,
    1.5917901824596877e-10,
];
const COS_F64: [f64; 6] = [
    0.041666666666666664,
    -0.0013888888888887385,
    2.4801587298747373e-05,
    -2.755731726223748e-07,
    2.0876144291642197e-09,
    -1.1382490122000279e-11,
];

/// π/2 as a sum of three floats, all positive so that the reduction keeps the sign of zero.
const HALF_PI: [f32; 3] = [f32::from_bits(0x3fc9_0fda), f32::from_bits(0x33a2_2168), f32::from_bits(0x27c2_34c5)];
const HALF_PI_F64: [f64; 3] = [std::f64::consts::FRAC_PI_2, 6.123233995736765e-17, 1.082856673921914e-32];

/// (atan t - t) / t³ as a polynomial in t² for t in [0, 1].
const ATAN: [f32; 9] = [
    f32::from_bits(0xbeaa_aaaa),
    f32::from_bits(0x3e4c_cc1e),
    f32::from_bits(0xbe12_3669),
    f32::from_bits(0x3de1_f8b4),
    f32::from_bits(0xbdb1_4afc),
    f32::from_bits(0x3d80_00e3),
    f32::from_bits(0xbd12_ee09),
    f32::from_bits(0x3c5d_4fb3),
    f32::from_bits(0xbb1c_6f2b),
];
const ATAN_F64: [f64; 20] = [
    -0.3333333333333333,
    0.1999999999999753,
    -0.14285714285384132,
    0.11111111093490827,
    -0.09090908590891934,
    0.07692298971033217,
    -0.06666564699289104,
    0.05881506877793656,
    -0.052579733342841106,
    0.04737749579527779,
    -0.04260356632601652,
    0.03749486812535247,
    -0.031277189066996385,
    0.023696731580048622,
    -0.015535152475414177,
    0.008368931178450162,
    -0.0034958859739163094,
    0.0010496035084968515,
    -0.00019996189377901382,
    1.806195461861215e-05,
];

/// The binary digits of 2/π, preceded by a word of zeros.
static TWO_OVER_PI: Table = Table {
    name: "cutlet_two_over_pi",
    words: &[
        0,
        0xa2f9_836e_4e44_1529,
        0xfc27_57d1_f534_ddc0,
        0xdb62_9599_3c43_9041,
        0xfe51_63ab_debb_c561,
        0xb724_6e3a_424d_d2e0,
        0x0649_2eea_09d1_921c,
        0xfe1d_eb1c_b129_a73e,
        0xe882_35f5_2ebb_4484,
        0xe99c_7026_b45f_7e41,
        0x3991_d639_8353_39f4,
        0x9c84_5f8b_bdf9_283b,
        0x1ff8_97ff_de05_980f,
        0xef2f_118b_5a0a_6d1f,
        0x6d36_7ecf_27cb_09b7,
        0x4f46_3f66_9e5f_ea2d,
        0x7527_bac7_ebe5_f17b,
        0x3d07_39f7_8a52_92ea,
        0x6bfb_5fb1_1f8d_5d08,
        0x5603_3046_fc7b_6bab,
    ],
};

/// Above this bound j does not fit the magic sum, and three parts of π/2 are insufficient.
const FAST_SINGLE: f32 = 131072.0;
const FAST_DOUBLE: f64 = 1073741824.0;

/// Quadrant (modulo 4), angle, and the rounding error of the angle (f64 only).
struct Reduced {
    quadrant: Operand,
    angle: Operand,
    low: Option<Operand>,
}

/// Returns an angle as a quadrant and a rest.
fn reduce(b: &mut Builder, ty: Ty, x: Operand) -> Reduced {
    if ty == Ty::F32 { reduce_single(b, x) } else { reduce_double(b, x) }
}

fn reduce_single(b: &mut Builder, x: Operand) -> Reduced {
    let shifted = b.fma(Ty::F32, x, std::f32::consts::FRAC_2_PI, 12_582_912f32);
    let count = b.fsub(Ty::F32, shifted, 12_582_912f32);
    let rest = b.fma(Ty::F32, count, -HALF_PI[0], x);
    let rest = b.fma(Ty::F32, count, -HALF_PI[1], rest);
    let rest = b.fma(Ty::F32, count, -HALF_PI[2], rest);
    let quadrant = b.bitcast(shifted, RegClass::B32);
    let quadrant = b.copy(quadrant, RegClass::B32);
    let angle = b.copy(rest, RegClass::F32);
    let magnitude = b.fabs(Ty::F32, x);
    let moderate = b.setp(Cmp::Ltu, Ty::F32, magnitude, FAST_SINGLE);
    b.skip_if(moderate, false, |b| {
        let (far_quadrant, far_angle) = payne_hanek_single(b, x, magnitude);
        b.mov_to(quadrant, far_quadrant);
        // x - x: NaN for infinite x.
        let check = b.fsub(Ty::F32, x, x);
        b.float_to(angle, FloatOp::Add, Ty::F32, FloatMods::RN, &[far_angle, check]);
    });
    Reduced { quadrant: quadrant.into(), angle: angle.into(), low: None }
}

/// Returns the bits `position` to `position + 64·count` of the table, as words from the top.
fn window(b: &mut Builder, position: Operand, count: i64) -> Vec<Operand> {
    let table = b.table(&TWO_OVER_PI);
    let index = b.shr(Ty::U32, position, 6i64);
    let address = b.mad_wide(Ty::U32, index, 8i64, table).reg();
    let words: Vec<Reg> =
        (0..=count).map(|i| b.ld(Space::Const, Ty::U64, &Addr::new(address, 8 * i), MemMods::default())).collect_vec();
    let shift = b.and(Ty::B32, position, 63i64);
    let back = b.sub(Ty::U32, 64i64, shift);
    let mut result = Vec::new();
    for pair in words.windows(2) {
        let high = b.shl(Ty::B64, pair[0], shift);
        let low = b.shr(Ty::U64, pair[1], back);
        result.push(b.or(Ty::B64, high, low));
    }
    result
}

/// Payne–Hanek reduction of x = M·2^e. The window contains the fraction of 2/π·2^(e-2), so the
/// product with M has the quadrant in its top two bits, followed by the fraction of π/2.
fn payne_hanek_single(b: &mut Builder, x: Operand, magnitude: Operand) -> (Operand, Operand) {
    let bits = b.bitcast(magnitude, RegClass::B32);
    let field = b.shr(Ty::U32, bits, 23i64);
    let mantissa = b.and(Ty::B32, bits, 0x7f_ffffi64);
    let mantissa = b.or(Ty::B32, mantissa, 0x80_0000i64);
    let wide = b.cvt(Ty::U64, Ty::U32, CvtRound::None, mantissa);
    // e = field - 150; the digits begin at bit 64 of the table.
    let position = b.add(Ty::S32, field, 64 - 2 - 150);
    let digits = window(b, position, 2);
    let carried = b.mul_hi(Ty::U64, digits[1], wide);
    let product = b.mul(Ty::U64, digits[0], wide);
    let product = b.add(Ty::U64, product, carried);
    let (quadrant, fraction) = nearest_quadrant(b, product);
    // Quarters of the circle are 2^64 units of the fraction.
    let fraction = b.cvt(Ty::F64, Ty::S64, CvtRound::Rn, fraction);
    let angle = b.fmul(Ty::F64, fraction, std::f64::consts::FRAC_PI_2 / 18446744073709551616.0);
    let angle = b.cvt(Ty::F32, Ty::F64, CvtRound::Rn, angle);
    let bits = b.bitcast(x, RegClass::B32);
    let negative = b.setp(Cmp::Lt, Ty::S32, bits, 0i64);
    let (minus_quadrant, minus_angle) = (b.neg(Ty::S32, quadrant), b.fneg(Ty::F32, angle));
    (b.select(RegClass::B32, negative, minus_quadrant, quadrant), b.select(RegClass::F32, negative, minus_angle, angle))
}

/// Returns the nearest quadrant (B32) of a turn of 2^64, and the signed rest in units of 2^-64
/// quadrants.
fn nearest_quadrant(b: &mut Builder, turn: Operand) -> (Operand, Operand) {
    let rounded = b.add(Ty::U64, turn, 1i64 << 61);
    let quadrant = b.shr(Ty::U64, rounded, 62i64);
    let quadrant = b.cvt(Ty::U32, Ty::U64, CvtRound::None, quadrant);
    (quadrant, b.shl(Ty::B64, turn, 2i64))
}

fn reduce_double(b: &mut Builder, x: Operand) -> Reduced {
    let shifted = b.fma(Ty::F64, x, std::f64::consts::FRAC_2_PI, MAGIC);
    let count = b.fsub(Ty::F64, shifted, MAGIC);
    let first = b.fma(Ty::F64, count, -HALF_PI_F64[0], x);
    let high = b.fma(Ty::F64, count, -HALF_PI_F64[1], first);
    let lost = b.fsub(Ty::F64, first, high);
    let low = b.fma(Ty::F64, count, -HALF_PI_F64[1], lost);
    let low = b.fma(Ty::F64, count, -HALF_PI_F64[2], low);
    let (quadrant, _) = b.unpack(shifted);
    let quadrant = b.copy(quadrant, RegClass::B32);
    let angle = b.copy(high, RegClass::F64);
    let low = b.copy(low, RegClass::F64);
    let magnitude = b.fabs(Ty::F64, x);
    let moderate = b.setp(Cmp::Ltu, Ty::F64, magnitude, FAST_DOUBLE);
    b.skip_if(moderate, false, |b| {
        let far = payne_hanek_double(b, x, magnitude);
        b.mov_to(quadrant, far.quadrant);
        let check = b.fsub(Ty::F64, x, x);
        b.float_to(angle, FloatOp::Add, Ty::F64, FloatMods::RN, &[far.angle, check]);
        b.mov_to(low, far.low.expect("a low part"));
    });
    Reduced { quadrant: quadrant.into(), angle: angle.into(), low: Some(low.into()) }
}

/// Payne–Hanek reduction as for f32, with three words: 190 bits of fraction less the 53 of the
/// factor provide at least 70 correct bits of the angle.
fn payne_hanek_double(b: &mut Builder, x: Operand, magnitude: Operand) -> Reduced {
    let bits = b.bitcast(magnitude, RegClass::B64);
    let field = b.shr(Ty::U64, bits, 52i64);
    let field = b.cvt(Ty::U32, Ty::U64, CvtRound::None, field);
    let mantissa = b.and(Ty::B64, bits, (1i64 << 52) - 1);
    let mantissa = b.or(Ty::B64, mantissa, 1i64 << 52);
    // The exponent field of infinity would exceed the table.
    let field = b.min(Ty::U32, field, 0x7fei64);
    let position = b.add(Ty::S32, field, 64 - 2 - 1075);
    let digits = window(b, position, 3);
    let lowest = b.mul_hi(Ty::U64, digits[2], mantissa);
    let middle = b.mul(Ty::U64, digits[1], mantissa);
    let middle = b.add(Ty::U64, middle, lowest);
    let carry = b.setp(Cmp::Lt, Ty::U64, middle, lowest);
    let top = b.mul(Ty::U64, digits[0], mantissa);
    let carried = b.mul_hi(Ty::U64, digits[1], mantissa);
    let top = b.add(Ty::U64, top, carried);
    let carry = b.select(RegClass::B64, carry, 1i64, 0i64);
    let top = b.add(Ty::U64, top, carry);
    let (quadrant, _) = nearest_quadrant(b, top);
    // The signed fraction of 128 bits, then its magnitude.
    let spill = b.shr(Ty::U64, middle, 62i64);
    let high = b.shl(Ty::B64, top, 2i64);
    let high = b.or(Ty::B64, high, spill);
    let low = b.shl(Ty::B64, middle, 2i64);
    let sign = b.shr(Ty::S64, high, 63i64);
    let high = b.xor(Ty::B64, high, sign);
    let low = b.xor(Ty::B64, low, sign);
    // Normalized, so that the first 53 and the next 53 bits are two exact floats.
    let zeros = b.clz(Ty::B64, high);
    let back = b.sub(Ty::U32, 64i64, zeros);
    let upper = b.shl(Ty::B64, high, zeros);
    let spill = b.shr(Ty::U64, low, back);
    let upper = b.or(Ty::B64, upper, spill);
    let lower = b.shl(Ty::B64, low, zeros);
    let first = b.shr(Ty::U64, upper, 11i64);
    let second = b.shl(Ty::B64, upper, 53i64);
    let lower = b.shr(Ty::U64, lower, 11i64);
    let second = b.or(Ty::B64, second, lower);
    let first = b.cvt(Ty::F64, Ty::U64, CvtRound::Rn, first);
    let second = b.cvt(Ty::F64, Ty::U64, CvtRound::Rz, second);
    // Units: 2^(11 - 64 - zeros) quadrants for the first, 2^-64 of that times 2^-11 for the second.
    let second = b.fmul(Ty::F64, second, 1.0 / 36893488147419103232768.0);
    let angle = b.fmul(Ty::F64, first, HALF_PI_F64[0]);
    let negated = b.fneg(Ty::F64, angle);
    let rest = b.fma(Ty::F64, first, HALF_PI_F64[0], negated);
    let rest = b.fma(Ty::F64, first, HALF_PI_F64[1], rest);
    let rest = b.fma(Ty::F64, second, HALF_PI_F64[0], rest);
    let exponent = b.sub(Ty::S32, 1023 + 11 - 64, zeros);
    let exponent = b.shl(Ty::B32, exponent, 20i64);
    // The scale carries the signs of the fraction and of x.
    let (_, sign) = b.unpack(sign);
    let bits = b.bitcast(x, RegClass::B64);
    let (_, word) = b.unpack(bits);
    let sign_of_x = b.shr(Ty::S32, word, 31i64);
    let sign = b.xor(Ty::B32, sign, sign_of_x);
    let sign = b.and(Ty::B32, sign, 0x8000_0000u32);
    let exponent = b.or(Ty::B32, exponent, sign);
    let scale = b.pack(0i64, exponent);
    let scale = b.bitcast(scale, RegClass::F64);
    let flipped = b.xor(Ty::B32, quadrant, sign_of_x);
    let quadrant = b.sub(Ty::S32, flipped, sign_of_x);
    let (angle, rest) = (b.fmul(Ty::F64, angle, scale), b.fmul(Ty::F64, rest, scale));
    Reduced { quadrant, angle, low: Some(rest) }
}

/// Returns sine and cosine of the reduced angle.
fn kernels(b: &mut Builder, reduced: &Reduced) -> (Operand, Operand) {
    let r = reduced.angle;
    let Some(low) = reduced.low else {
        let z = b.fmul(Ty::F32, r, r);
        let sin = horner(b, Ty::F32, z, &SIN);
        // The sum with +0 makes the factor +0, not -0, at r = 0: the sine of -0 is -0.
        let sin = b.fma(Ty::F32, sin, z, 0f32);
        let sin = b.fma(Ty::F32, sin, r, r);
        let cos = horner(b, Ty::F32, z, &COS);
        let cos = b.fma(Ty::F32, cos, z, -0.5f32);
        return (sin, b.fma(Ty::F32, cos, z, 1f32));
    };
    let z = b.fmul(Ty::F64, r, r);
    let sin = horner(b, Ty::F64, z, &SIN_F64);
    let cube = b.fmul(Ty::F64, z, r);
    let slope = b.fma(Ty::F64, z, -0.5f64, 1f64);
    let correction = b.fmul(Ty::F64, low, slope);
    let sin = b.fma(Ty::F64, sin, cube, correction);
    let sin = b.fadd(Ty::F64, r, sin);
    let sin = b.float(FloatOp::CopySign, Ty::F64, FloatMods::NONE, &[r, sin]);
    let cos = horner(b, Ty::F64, z, &COS_F64);
    let half = b.fmul(Ty::F64, z, 0.5f64);
    let main = b.fsub(Ty::F64, 1f64, half);
    let lost = b.fsub(Ty::F64, 1f64, main);
    let lost = b.fsub(Ty::F64, lost, half);
    let negated = b.fneg(Ty::F64, r);
    let lost = b.fma(Ty::F64, negated, low, lost);
    let square = b.fmul(Ty::F64, z, z);
    let lost = b.fma(Ty::F64, cos, square, lost);
    (sin, b.fadd(Ty::F64, main, lost))
}

/// Returns the sine of the angle plus `quarters` quarter turns.
fn turned(b: &mut Builder, ty: Ty, x: Operand, quarters: i64) -> Operand {
    let reduced = reduce(b, ty, x);
    let (sin, cos) = kernels(b, &reduced);
    let quadrant = b.add(Ty::S32, reduced.quadrant, quarters);
    let odd = b.and(Ty::B32, quadrant, 1i64);
    let odd = b.setp(Cmp::Ne, Ty::B32, odd, 0i64);
    let value = b.select(ty.class(), odd, cos, sin);
    let half_turn = b.and(Ty::B32, quadrant, 2i64);
    let half_turn = b.setp(Cmp::Ne, Ty::B32, half_turn, 0i64);
    let negated = b.fneg(ty, value);
    b.select(ty.class(), half_turn, negated, value)
}

pub(super) fn sin(b: &mut Builder, ty: Ty, x: Operand) -> Operand {
    turned(b, ty, x, 0)
}

pub(super) fn cos(b: &mut Builder, ty: Ty, x: Operand) -> Operand {
    turned(b, ty, x, 1)
}

/// Returns sin / cos in even quadrants, -cos / sin in odd ones.
pub(super) fn tan(b: &mut Builder, ty: Ty, x: Operand) -> Operand {
    let reduced = reduce(b, ty, x);
    let (sin, cos) = kernels(b, &reduced);
    let odd = b.and(Ty::B32, reduced.quadrant, 1i64);
    let odd = b.setp(Cmp::Ne, Ty::B32, odd, 0i64);
    let minus_cos = b.fneg(ty, cos);
    let numerator = b.select(ty.class(), odd, minus_cos, sin);
    let denominator = b.select(ty.class(), odd, sin, cos);
    b.float(FloatOp::Div, ty, FloatMods::RN, &[numerator, denominator])
}

/// Returns the angle of the point (x, y) from the x axis.
pub(super) fn atan2(b: &mut Builder, ty: Ty, y: Operand, x: Operand) -> Operand {
    let class = ty.class();
    let (ax, ay) = (b.fabs(ty, x), b.fabs(ty, y));
    let large = b.float(FloatOp::Max, ty, FloatMods::NONE, &[ax, ay]);
    let small = b.float(FloatOp::Min, ty, FloatMods::NONE, &[ax, ay]);
    let ratio = b.float(FloatOp::Div, ty, FloatMods::RN, &[small, large]);
    // 0/0 is 0 here and ∞/∞ is 1.
    let origin = b.setp(Cmp::Eq, ty, large, constant(ty, 0.0));
    let ratio = b.select(class, origin, constant(ty, 0.0), ratio);
    let diagonal = b.setp(Cmp::Eq, ty, small, constant(ty, f64::INFINITY));
    let ratio = b.select(class, diagonal, constant(ty, 1.0), ratio);
    let z = b.fmul(ty, ratio, ratio);
    let series = if ty == Ty::F32 { horner(b, ty, z, &ATAN) } else { horner(b, ty, z, &ATAN_F64) };
    let cube = b.fmul(ty, z, ratio);
    let angle = b.fma(ty, series, cube, ratio);
    let (half_pi, half_pi_low) = match ty {
        Ty::F32 => (std::f32::consts::FRAC_PI_2 as f64, -4.371_139e-8),
        _ => (HALF_PI_F64[0], HALF_PI_F64[1]),
    };
    let steep = b.setp(Cmp::Gt, ty, ay, ax);
    let shifted = b.fsub(ty, angle, constant(ty, half_pi_low));
    let shifted = b.fsub(ty, constant(ty, half_pi), shifted);
    let angle = b.select(class, steep, shifted, angle);
    let mirrored = b.fsub(ty, angle, constant(ty, 2.0 * half_pi_low));
    let mirrored = b.fsub(ty, constant(ty, 2.0 * half_pi), mirrored);
    let (bits, signed) = if ty == Ty::F32 { (RegClass::B32, Ty::S32) } else { (RegClass::B64, Ty::S64) };
    let sign_word = b.bitcast(x, bits);
    let left = b.setp(Cmp::Lt, signed, sign_word, 0i64);
    let angle = b.select(class, left, mirrored, angle);
    let angle = b.float(FloatOp::CopySign, ty, FloatMods::NONE, &[y, angle]);
    let nan = b.setp(Cmp::Nan, ty, x, y);
    b.select(class, nan, constant(ty, f64::NAN), angle)
}
