//! Float arithmetic, and the selection of a lowering for each float operation and element type.
//!
//! f16 and bf16 arithmetic rounds once per operation: natively if the instruction exists, else in
//! f32. The second rounding is then exact for one addition, multiplication, division or square root
//! of halves. All other functions of halves are those of f32, rounded.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::{ScalarTypes, Unsupported, cast, exp, hyperbolic, log, pow, remainder, repr, trig};
use crate::dtype::DType;
use crate::ir::{Flag, Op, Opcode, Rounding};
use crate::util::collect::CollectVec as _;

pub(super) fn lower(b: &mut Builder, op: &Op, types: ScalarTypes<'_>, x: &[Operand]) -> Result<Operand, Unsupported> {
    if op.code == Opcode::PowI {
        return pow::powi(b, op, types, x);
    }
    match types.result {
        DType::F32 => single(b, op, x),
        DType::F64 => double(b, op, x),
        dtype @ (DType::F16 | DType::BF16) => half(b, op, dtype, x),
        dtype => Err(Unsupported::new(op, dtype)),
    }
}

/// Returns the PTX type of a base float.
pub(super) const fn ty(dtype: DType) -> Ty {
    match dtype {
        DType::F16 => Ty::F16,
        DType::BF16 => Ty::BF16,
        DType::F64 => Ty::F64,
        _ => Ty::F32,
    }
}

/// Returns the PTX rounding; `None` for modes that float arithmetic does not support.
fn round(rounding: Rounding) -> Option<FloatRound> {
    match rounding {
        Rounding::NearestEven => Some(FloatRound::Rn),
        Rounding::Zero => Some(FloatRound::Rz),
        Rounding::NegInf => Some(FloatRound::Rm),
        Rounding::PosInf => Some(FloatRound::Rp),
        Rounding::Approx => Some(FloatRound::Approx),
        Rounding::Full => Some(FloatRound::Full),
        Rounding::IntToZero | Rounding::NearestAway => None,
    }
}

/// Emits addition, subtraction, multiplication, multiply-add, division and root of f32 and f64.
fn arithmetic(b: &mut Builder, op: &Op, dtype: DType, x: &[Operand]) -> Result<Operand, Unsupported> {
    let rounding = round(op.rounding());
    let ieee = |r: &FloatRound| matches!(r, FloatRound::Rn | FloatRound::Rz | FloatRound::Rm | FloatRound::Rp);
    let (code, rounding) = match op.code {
        Opcode::AddF => (FloatOp::Add, rounding.filter(ieee)),
        Opcode::SubF => (FloatOp::Sub, rounding.filter(ieee)),
        Opcode::MulF => (FloatOp::Mul, rounding.filter(ieee)),
        Opcode::Fma => (FloatOp::Fma, rounding.filter(ieee)),
        Opcode::DivF => (FloatOp::Div, rounding.filter(|r| ieee(r) || dtype == DType::F32)),
        Opcode::Sqrt => {
            let approx = |r: &FloatRound| *r == FloatRound::Approx && dtype == DType::F32;
            (FloatOp::Sqrt, rounding.filter(|r| ieee(r) || approx(r)))
        }
        _ => return Err(Unsupported::new(op, dtype)),
    };
    let Some(rounding) = rounding else {
        let (name, rounding) = (op.code.spec().name, op.rounding().name());
        return Err(Unsupported(format!("`{name}` of {dtype} does not round {rounding}")));
    };
    let mods = FloatMods::RN.round(rounding).ftz(op.flag(Flag::FlushToZero));
    Ok(b.float(code, ty(dtype), mods, x))
}

fn single(b: &mut Builder, op: &Op, x: &[Operand]) -> Result<Operand, Unsupported> {
    let ftz = op.flag(Flag::FlushToZero);
    let approx = op.rounding() == Rounding::Approx;
    Ok(match op.code {
        Opcode::RemF => remainder::single(b, x[0], x[1]),
        Opcode::Rsqrt => b.float(FloatOp::Rsqrt, Ty::F32, FloatMods::APPROX.ftz(ftz), x),
        Opcode::Exp2 => b.float(FloatOp::Ex2, Ty::F32, FloatMods::APPROX.ftz(ftz), x),
        Opcode::Exp if approx => exp::approx_single(b, x[0]),
        Opcode::Exp => exp::single(b, x[0]),
        Opcode::Log if approx => log::approx_single(b, x[0]),
        Opcode::Log => log::single(b, x[0]),
        Opcode::Log2 if approx => b.float(FloatOp::Lg2, Ty::F32, FloatMods::APPROX_FTZ, x),
        Opcode::Log2 => log::log2_single(b, x[0]),
        Opcode::Sin if approx => b.float(FloatOp::Sin, Ty::F32, FloatMods::APPROX_FTZ, x),
        Opcode::Cos if approx => b.float(FloatOp::Cos, Ty::F32, FloatMods::APPROX_FTZ, x),
        Opcode::Tanh if approx => b.float(FloatOp::Tanh, Ty::F32, FloatMods::APPROX, x),
        Opcode::Tanh => hyperbolic::tanh_single(b, x[0]),
        _ => return single_or_double(b, op, DType::F32, x),
    })
}

fn double(b: &mut Builder, op: &Op, x: &[Operand]) -> Result<Operand, Unsupported> {
    Ok(match op.code {
        Opcode::RemF => remainder::double(b, x[0], x[1]),
        Opcode::Rsqrt => {
            let root = b.float(FloatOp::Sqrt, Ty::F64, FloatMods::RN, x);
            b.float(FloatOp::Rcp, Ty::F64, FloatMods::RN, &[root])
        }
        Opcode::Exp2 => exp::exp2_sum_double(b, x[0], None),
        Opcode::Exp => exp::double(b, x[0]),
        Opcode::Log => log::double(b, x[0]),
        Opcode::Log2 => log::log2_double(b, x[0]),
        Opcode::Tanh => hyperbolic::tanh_double(b, x[0]),
        _ => return single_or_double(b, op, DType::F64, x),
    })
}

/// Emits the ops with one lowering for f32 and f64.
fn single_or_double(b: &mut Builder, op: &Op, dtype: DType, x: &[Operand]) -> Result<Operand, Unsupported> {
    let ty = ty(dtype);
    Ok(match op.code {
        Opcode::AbsF => b.fabs(ty, x[0]),
        Opcode::NegF => b.fneg(ty, x[0]),
        Opcode::MaxF | Opcode::MinF => min_max(b, op, dtype, x),
        Opcode::Floor => b.cvt(ty, ty, CvtRound::Rmi, x[0]),
        Opcode::Ceil => b.cvt(ty, ty, CvtRound::Rpi, x[0]),
        Opcode::Sin => trig::sin(b, ty, x[0]),
        Opcode::Cos => trig::cos(b, ty, x[0]),
        Opcode::Tan => trig::tan(b, ty, x[0]),
        Opcode::Sinh => hyperbolic::sinh(b, ty, x[0]),
        Opcode::Cosh => hyperbolic::cosh(b, ty, x[0]),
        Opcode::Atan2 => trig::atan2(b, ty, x[0], x[1]),
        Opcode::PowF => pow::pow(b, ty, x[0], x[1]),
        _ => return arithmetic(b, op, dtype, x),
    })
}

fn half(b: &mut Builder, op: &Op, dtype: DType, x: &[Operand]) -> Result<Operand, Unsupported> {
    let nearest = op.rounding() == Rounding::NearestEven;
    let native = dtype == DType::F16 || b.target.arch >= 90;
    let ty = ty(dtype);
    match op.code {
        Opcode::AddF if nearest => return Ok(native_half(b, FloatOp::Add, dtype, x)),
        Opcode::SubF if nearest => return Ok(native_half(b, FloatOp::Sub, dtype, x)),
        Opcode::MulF if nearest => return Ok(native_half(b, FloatOp::Mul, dtype, x)),
        Opcode::Fma if nearest => return Ok(b.fma(ty, x[0], x[1], x[2])),
        Opcode::DivF if nearest && dtype == DType::F16 => return Ok(divide_f16(b, x[0], x[1])),
        Opcode::AbsF => return Ok(b.fabs(ty, x[0])),
        Opcode::NegF => return Ok(repr::negate_halves(b, Ty::B16, x[0])),
        Opcode::MaxF | Opcode::MinF => return Ok(min_max(b, op, dtype, x)),
        Opcode::Floor if native => return Ok(b.cvt(ty, ty, CvtRound::Rmi, x[0])),
        Opcode::Ceil if native => return Ok(b.cvt(ty, ty, CvtRound::Rpi, x[0])),
        Opcode::DivF | Opcode::Sqrt if matches!(op.rounding(), Rounding::Approx | Rounding::Full) => {
            return arithmetic(b, op, dtype, x);
        }
        _ => {}
    }
    let wide: Vec<Operand> = x.iter().map(|&x| cast::widen(b, dtype, x)).collect_vec();
    let result = single(b, op, &wide).map_err(|_| Unsupported::new(op, dtype))?;
    // Directed roundings compose; only arithmetic has one.
    let rounding = match op.rounding() {
        Rounding::Approx | Rounding::Full => Rounding::NearestEven,
        other => other,
    };
    Ok(cast::narrow(b, dtype, rounding, result))
}

/// Emits a sum, difference or product, rounded to nearest. Before sm_90 bf16 has only `fma`, of
/// which the three are exact cases: a·1 + b, b·(-1) + a, a·b + (-0).
pub(super) fn native_half(b: &mut Builder, op: FloatOp, dtype: DType, x: &[Operand]) -> Operand {
    let ty = ty(dtype);
    if dtype == DType::F16 || b.target.arch >= 90 {
        return b.float(op, ty, FloatMods::RN, &x[..2]);
    }
    const ONE: i64 = 0x3f80;
    const MINUS_ONE: i64 = 0xbf80;
    const MINUS_ZERO: i64 = 0x8000;
    match op {
        FloatOp::Add => b.fma(ty, x[0], ONE, x[1]),
        FloatOp::Sub => b.fma(ty, x[1], MINUS_ONE, x[0]),
        _ => b.fma(ty, x[0], x[1], MINUS_ZERO),
    }
}

/// Emits an f16 quotient. A quotient of 11-bit numbers is either the midpoint of two 11-bit numbers
/// or at a relative distance of at least 2^-23 from it. A reciprocal and one correction step
/// therefore round as the exact quotient.
fn divide_f16(b: &mut Builder, x: Operand, y: Operand) -> Operand {
    let (x, y) = (cast::widen(b, DType::F16, x), cast::widen(b, DType::F16, y));
    let inverse = b.float(FloatOp::Rcp, Ty::F32, FloatMods::APPROX_FTZ, &[y]);
    let quotient = b.fmul(Ty::F32, x, inverse);
    let negated = b.fneg(Ty::F32, quotient);
    let rest = b.fma(Ty::F32, negated, y, x);
    let corrected = b.fma(Ty::F32, rest, inverse, quotient);
    // Zero, infinite and NaN operands: the correction is NaN or loses the sign of zero, whereas the
    // uncorrected quotient is right.
    let special = b.setp(Cmp::Equ, Ty::F32, corrected, 0f32);
    let result = b.select(RegClass::F32, special, quotient, corrected);
    cast::narrow(b, DType::F16, Rounding::NearestEven, result)
}

/// Range of the divisors whose quotients are corrected products with their reciprocals.
const DIVISORS: [f32; 2] = [f32::from_bits((127 - 24) << 23), f32::from_bits((127 + 24) << 23)];
/// The smallest such dividend but zero, 2^-100. Quotients are then normal, and the remainder is
/// exact.
const MIN_DIVIDEND: f32 = f32::from_bits((127 - 100) << 23);
/// Factor by which the sum of all such dividends must not overflow.
const DIVIDEND_HEADROOM: f32 = f32::from_bits((127 + 32) << 23);
/// Independent chains of the tests of dividends.
const RANGE_CHAINS: usize = 4;

/// Emits the f32 quotients by a common divisor, rounded to nearest.
///
/// The product with the rounded reciprocal, corrected once by a fused multiply-add, is the rounded
/// quotient (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000
/// processor", 1990), if no step overflows or underflows. Threads with an operand outside of that
/// range use `div.rn`.
pub fn quotients(b: &mut Builder, dividends: &[Operand], divisor: Operand) -> Vec<Operand> {
    let ty = Ty::F32;
    let dividends: Vec<Operand> = dividends.iter().map(|&x| b.reg(x, RegClass::F32).into()).collect_vec();
    let (slow, done) = (b.new_label(), b.new_label());
    let in_range = are_in_range(b, &dividends, divisor);
    b.bra_if(in_range, true, slow, false);
    let inverse = b.float(FloatOp::Rcp, ty, FloatMods::RN, &[divisor]);
    let negated = b.fneg(ty, inverse);
    let corrected = |&x: &Operand| {
        let quotient = b.fmul(ty, x, inverse);
        let minus_x = b.fneg(ty, x);
        // The negated remainder, so that the quotient of a negative zero keeps its sign.
        let remainder = b.fma(ty, quotient, divisor, minus_x);
        let quotient = b.fma(ty, remainder, negated, quotient);
        b.copy(quotient, RegClass::F32)
    };
    let results: Vec<Reg> = dividends.iter().map(corrected).collect_vec();
    b.bra(done, false);
    b.emit_label(slow);
    for (&result, &x) in results.iter().zip(&dividends) {
        b.float_to(result, FloatOp::Div, ty, FloatMods::RN, &[x, divisor]);
    }
    b.emit_label(done);
    results.into_iter().map(Operand::from).collect_vec()
}

/// Emits the test that the quotients are corrected products with the reciprocal.
fn are_in_range(b: &mut Builder, dividends: &[Operand], divisor: Operand) -> Reg {
    // Twice the bits minus one: the order of magnitudes, with both zeros at the end.
    let order = |b: &mut Builder, x: Operand| {
        let bits = b.bitcast(x, RegClass::B32);
        b.mad(Ty::U32, bits, 2i64, -1i64)
    };
    let mut tests = Vec::new();
    for chain in 0..RANGE_CHAINS.min(dividends.len()) {
        let (mut smallest, mut sum) = (order(b, dividends[chain]), dividends[chain]);
        sum = b.fmul(Ty::F32, sum, DIVIDEND_HEADROOM);
        for &x in dividends[chain..].iter().step_by(RANGE_CHAINS).skip(1) {
            let next = order(b, x);
            smallest = b.min(Ty::U32, smallest, next);
            sum = b.fma(Ty::F32, x, DIVIDEND_HEADROOM, sum);
        }
        tests.push((smallest, sum));
    }
    let (smallest, sum) = tests
        .into_iter()
        .reduce(|(smallest, sum), (other, more)| (b.min(Ty::U32, smallest, other), b.fadd(Ty::F32, sum, more)))
        .unwrap_or((Operand::Imm(-1), Operand::F32(0.0)));
    let magnitude = b.fabs(Ty::F32, sum);
    let least = i64::from(2 * MIN_DIVIDEND.to_bits() - 1);
    let tests = [
        b.setp(Cmp::Ge, Ty::F32, divisor, DIVISORS[0]),
        b.setp(Cmp::Le, Ty::F32, divisor, DIVISORS[1]),
        b.setp(Cmp::Ge, Ty::U32, smallest, least),
        b.setp(Cmp::Lt, Ty::F32, magnitude, f32::INFINITY),
    ];
    tests.into_iter().reduce(|all, test| b.and(Ty::Pred, all, test).reg()).expect("there are four tests")
}

/// Emits IEEE minimumNumber and maximumNumber, or with `propagate_nan` minimum and maximum; +0 >
/// -0.
fn min_max(b: &mut Builder, op: &Op, dtype: DType, x: &[Operand]) -> Operand {
    let code = if op.code == Opcode::MaxF { FloatOp::Max } else { FloatOp::Min };
    let nan = op.flag(Flag::PropagateNan);
    let mods = FloatMods { nan: nan && dtype != DType::F64, ..FloatMods::NONE }.ftz(op.flag(Flag::FlushToZero));
    let result = b.float(code, ty(dtype), mods, x);
    if !nan || dtype != DType::F64 {
        return result;
    }
    let unordered = b.setp(Cmp::Nan, Ty::F64, x[0], x[1]);
    b.select(RegClass::F64, unordered, f64::NAN, result)
}
