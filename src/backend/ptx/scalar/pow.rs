//! Powers: 2^(y·log2 |x|) with the logarithm as a sum of two floats, then the special cases of C.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::exp::{LOG2E, LOG2E_F64, constant, exp2_sum_double, horner};
use super::log::{Split, split_double, split_single};
use super::{ScalarTypes, Unsupported, cast, repr};
use crate::dtype::DType;
use crate::ir::{Op, Rounding};

/// (log((2 + u) / (2 - u)) - u - u³/12) / u⁵ as a polynomial in u² ≤ 0.16.
const LOG_RATIO: [f32; 4] = [
    f32::from_bits(0x3c4c_cccd),
    f32::from_bits(0x3b12_497d),
    f32::from_bits(0x39e3_382d),
    f32::from_bits(0x38c7_6b9f),
];
const LOG_RATIO_F64: [f64; 10] = [
    0.0125,
    0.002232142857142857,
    0.00043402777777776214,
    8.877840909215553e-05,
    1.878004802646001e-05,
    4.06901158844475e-06,
    8.975592985487279e-07,
    2.0091731212551998e-07,
    4.466272961918198e-08,
    1.2495591226524215e-08,
];

/// High word of 2/3.
const TWO_THIRDS: i64 = 0x3fe5_5555;

/// The unevaluated sum high + low, where high is the rounded sum.
#[derive(Clone, Copy)]
struct Sum {
    high: Operand,
    low: Operand,
}

/// Returns a·b as a sum.
fn product(b: &mut Builder, ty: Ty, x: Operand, y: Operand) -> Sum {
    let high = b.fmul(ty, x, y);
    let negated = b.fneg(ty, high);
    Sum { high, low: b.fma(ty, x, y, negated) }
}

/// Returns x + y as a sum, for |x| ≥ |y| or x = 0.
fn quick_sum(b: &mut Builder, ty: Ty, x: Operand, y: Operand) -> Sum {
    let high = b.fadd(ty, x, y);
    let lost = b.fsub(ty, x, high);
    Sum { high, low: b.fadd(ty, lost, y) }
}

/// Returns log2 of a positive finite number, to nearly twice the precision of its type.
fn log2_sum(b: &mut Builder, ty: Ty, x: Operand) -> Sum {
    let Split { exponent, fraction: f } =
        if ty == Ty::F32 { split_single(b, x) } else { split_double(b, x, TWO_THIRDS) };
    // u = 2f / (2 + f) as a sum; log(1 + f) = u + u³/12 + u⁵·q(u²).
    let denominator = b.fadd(ty, f, constant(ty, 2.0));
    let mods = if ty == Ty::F32 { FloatMods::APPROX_FTZ } else { FloatMods::RN };
    let inverse = b.float(FloatOp::Rcp, ty, mods, &[denominator]);
    let double = b.fadd(ty, f, f);
    let u = b.fmul(ty, double, inverse);
    let rest = b.fsub(ty, f, u);
    let rest = b.fadd(ty, rest, rest);
    let minus_u = b.fneg(ty, u);
    let rest = b.fma(ty, minus_u, f, rest);
    let u_low = b.fmul(ty, rest, inverse);
    let mut square = product(b, ty, u, u);
    let twice = b.fadd(ty, u, u);
    square.low = b.fma(ty, twice, u_low, square.low);
    let mut cube = product(b, ty, square.high, u);
    cube.low = b.fma(ty, square.low, u, cube.low);
    cube.low = b.fma(ty, square.high, u_low, cube.low);
    let series = match ty {
        Ty::F32 => horner(b, ty, square.high, &LOG_RATIO),
        _ => horner(b, ty, square.high, &LOG_RATIO_F64),
    };
    let series = b.fmul(ty, series, square.high);
    let (twelfth, twelfth_low) = match ty {
        Ty::F32 => (f64::from(1f32 / 12.0), 1.0 / 12.0 - f64::from(1f32 / 12.0)),
        _ => (1.0 / 12.0, 4.625929269271485e-18),
    };
    let mut factor = quick_sum(b, ty, constant(ty, twelfth), series);
    factor.low = b.fadd(ty, factor.low, constant(ty, twelfth_low));
    let mut term = product(b, ty, cube.high, factor.high);
    term.low = b.fma(ty, cube.high, factor.low, term.low);
    term.low = b.fma(ty, cube.low, factor.high, term.low);
    let mut log = quick_sum(b, ty, u, term.high);
    let low = b.fadd(ty, u_low, term.low);
    log.low = b.fadd(ty, log.low, low);
    let (scale, scale_low) = match ty {
        Ty::F32 => (f64::from(LOG2E[0]), f64::from(LOG2E[1])),
        _ => (LOG2E_F64[0], LOG2E_F64[1]),
    };
    let mut scaled = product(b, ty, log.high, constant(ty, scale));
    scaled.low = b.fma(ty, log.high, constant(ty, scale_low), scaled.low);
    scaled.low = b.fma(ty, log.low, constant(ty, scale), scaled.low);
    let mut result = quick_sum(b, ty, exponent, scaled.high);
    result.low = b.fadd(ty, result.low, scaled.low);
    result
}

/// Returns 2^(x + low).
fn exp2_sum(b: &mut Builder, ty: Ty, Sum { high: x, low }: Sum) -> Operand {
    if ty == Ty::F64 {
        return exp2_sum_double(b, x, Some(low));
    }
    let shifted = b.fadd(ty, x, 12_582_912f32);
    let count = b.fsub(ty, shifted, 12_582_912f32);
    let rest = b.fsub(ty, x, count);
    let rest = b.fadd(ty, rest, low);
    let value = b.float(FloatOp::Ex2, ty, FloatMods::APPROX_FTZ, &[rest]);
    // Two steps, for results beyond the normal range. The low 23 bits of the magic sum are n.
    let bits = b.bitcast(shifted, RegClass::B32);
    let n = b.sub(Ty::S32, bits, 0x4b40_0000i64);
    let first = b.shr(Ty::S32, n, 1i64);
    let second = b.sub(Ty::S32, n, first);
    let mut value = value;
    for part in [first, second] {
        let field = b.add(Ty::S32, part, 127i64);
        let power = b.shl(Ty::B32, field, 23i64);
        let power = b.bitcast(power, RegClass::F32);
        value = b.fmul(ty, value, power);
    }
    let over = b.setp(Cmp::Gt, ty, x, 129f32);
    let value = b.select(RegClass::F32, over, f32::INFINITY, value);
    let under = b.setp(Cmp::Lt, ty, x, -151f32);
    b.select(RegClass::F32, under, 0f32, value)
}

/// The exponent of a power.
struct Exponent {
    value: Operand,
    /// The rounding error of `value`.
    low: Option<Operand>,
    /// True for an odd integer.
    odd: Operand,
    /// True for an integer.
    integer: Operand,
}

/// Returns x^y as defined by C.
pub(super) fn pow(b: &mut Builder, ty: Ty, x: Operand, y: Operand) -> Operand {
    let whole = b.cvt(ty, ty, CvtRound::Rzi, y);
    let integer: Operand = b.setp(Cmp::Eq, ty, whole, y).into();
    let half = b.fmul(ty, y, constant(ty, 0.5));
    let whole = b.cvt(ty, ty, CvtRound::Rzi, half);
    let split = b.setp(Cmp::Ne, ty, whole, half);
    let odd = b.and(Ty::Pred, integer, split);
    power(b, ty, x, Exponent { value: y, low: None, odd, integer })
}

fn power(b: &mut Builder, ty: Ty, x: Operand, y: Exponent) -> Operand {
    let class = ty.class();
    let (zero, one, infinity) = (constant(ty, 0.0), constant(ty, 1.0), constant(ty, f64::INFINITY));
    let magnitude = b.fabs(ty, x);
    let log = log2_sum(b, ty, magnitude);
    let mut scaled = product(b, ty, y.value, log.high);
    scaled.low = b.fma(ty, y.value, log.low, scaled.low);
    if let Some(low) = y.low {
        scaled.low = b.fma(ty, low, log.high, scaled.low);
    }
    let value = exp2_sum(b, ty, scaled);
    // Zero and infinity to a power are zero or infinity; 1 to any power is 1.
    let is_zero = b.setp(Cmp::Eq, ty, magnitude, zero);
    let is_infinite = b.setp(Cmp::Eq, ty, magnitude, infinity);
    let grows = b.setp(Cmp::Gt, ty, y.value, zero);
    let shrinks = b.not(Ty::Pred, grows);
    let to_infinity = b.select(RegClass::Pred, is_zero, shrinks, grows);
    let out_of_range = b.select(class, to_infinity, infinity, zero);
    let special = b.or(Ty::Pred, is_zero, is_infinite);
    let value = b.select(class, special, out_of_range, value);
    let unit = b.setp(Cmp::Eq, ty, magnitude, one);
    let value = b.select(class, unit, one, value);
    // Negative bases: the parity of an integer exponent determines the sign; other powers are
    // undefined.
    let (bits, signed) = if ty == Ty::F32 { (RegClass::B32, Ty::S32) } else { (RegClass::B64, Ty::S64) };
    let word = b.bitcast(x, bits);
    let negative = b.setp(Cmp::Lt, signed, word, 0i64);
    let flips = b.and(Ty::Pred, negative, y.odd);
    let flipped = b.fneg(ty, value);
    let value = b.select(class, flips, flipped, value);
    let fractional = b.not(Ty::Pred, y.integer);
    let undefined = b.and(Ty::Pred, negative, fractional);
    let ordinary = b.not(Ty::Pred, special);
    let undefined = b.and(Ty::Pred, undefined, ordinary);
    let nan = b.setp(Cmp::Nan, ty, x, y.value);
    let undefined = b.or(Ty::Pred, undefined, nan);
    let value = b.select(class, undefined, constant(ty, f64::NAN), value);
    let trivial = b.setp(Cmp::Eq, ty, y.value, zero);
    let is_one = b.setp(Cmp::Eq, ty, x, one);
    let trivial = b.or(Ty::Pred, trivial, is_one);
    b.select(class, trivial, one, value)
}

/// Lowers `fpowi`: an integer exponent, read as signed.
pub(super) fn powi(b: &mut Builder, op: &Op, types: ScalarTypes<'_>, x: &[Operand]) -> Result<Operand, Unsupported> {
    let (base, exponent) = (types.operands[0], types.operands[1]);
    if !base.is_base_float() || !matches!(exponent, DType::I1 | DType::I8 | DType::I16 | DType::I32) {
        return Err(Unsupported::new(op, base));
    }
    let n = cast::as_int32(b, exponent, true, x[1]);
    if matches!(base, DType::F16 | DType::BF16) {
        let wide = cast::widen(b, base, x[0]);
        let value = powi_wide(b, Ty::F32, wide, n);
        return Ok(cast::narrow(b, base, Rounding::NearestEven, value));
    }
    let ty = if repr::class(base) == RegClass::F64 { Ty::F64 } else { Ty::F32 };
    Ok(powi_wide(b, ty, x[0], n))
}

fn powi_wide(b: &mut Builder, ty: Ty, x: Operand, n: Operand) -> Operand {
    match n.as_imm() {
        Some(0) => return constant(ty, 1.0),
        Some(1) => return x,
        Some(2) => return b.fmul(ty, x, x),
        Some(3) => {
            let square = b.fmul(ty, x, x);
            return b.fmul(ty, square, x);
        }
        Some(4) => {
            let square = b.fmul(ty, x, x);
            return b.fmul(ty, square, square);
        }
        Some(-1) => return b.float(FloatOp::Rcp, ty, FloatMods::RN, &[x]),
        _ => {}
    }
    let value = b.cvt(ty, Ty::S32, CvtRound::Rn, n);
    let low = (ty == Ty::F32).then(|| {
        let back = b.cvt(Ty::S32, ty, CvtRound::Rzi, value);
        let rest = b.sub(Ty::S32, n, back);
        b.cvt(ty, Ty::S32, CvtRound::Rn, rest)
    });
    let bit = b.and(Ty::B32, n, 1i64);
    let odd = b.setp(Cmp::Ne, Ty::B32, bit, 0i64).into();
    power(b, ty, x, Exponent { value, low, odd, integer: true.into() })
}
