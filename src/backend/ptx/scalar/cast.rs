//! Conversions between element types.
//!
//! All types but f64 widen to f32 exactly; narrower floats round once from there. An f64 or a wide
//! integer that requires a second rounding passes through f32 *rounded to odd*: truncated, with the
//! lowest bit set if the result is inexact. From there each shorter format rounds as if directly.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::{Unsupported, repr, small_float};
use crate::dtype::DType;
use crate::ir::{Op, Opcode, Rounding, Sign};

pub(super) fn lower(b: &mut Builder, op: &Op, from: DType, to: DType, x: Operand) -> Result<Operand, Unsupported> {
    let signed = op.sign() == Sign::Signed;
    match op.code {
        Opcode::IntToPtr | Opcode::PtrToInt | Opcode::PtrToPtr => Ok(x),
        Opcode::Bitcast => Ok(bitcast(b, from, to, x)),
        Opcode::ExtI => Ok(extend(b, from, to, signed, x)),
        Opcode::TruncI => Ok(truncate(b, from, to, x)),
        Opcode::IToF => int_to_float(b, from, to, signed, x).ok_or_else(|| Unsupported::new(op, to)),
        Opcode::FToI => Ok(float_to_int(b, from, to, signed, x)),
        Opcode::FToF => float_to_float(b, from, to, op.rounding(), x).ok_or_else(|| {
            Unsupported(format!("conversion of {from} to {to} with rounding {} is not supported", op.rounding().name()))
        }),
        _ => Err(Unsupported::new(op, from)),
    }
}

fn bitcast(b: &mut Builder, from: DType, to: DType, x: Operand) -> Operand {
    let (source, target) = (repr::class(from), repr::class(to));
    if source == target {
        x
    } else if source.bits() == target.bits() {
        b.bitcast(x, target)
    } else {
        let word = repr::to_word(b, from, x);
        repr::from_word(b, to, word, 0)
    }
}

/// Returns an integer of at most 32 bits as a 32-bit number, extended by its sign.
pub(super) fn as_int32(b: &mut Builder, dtype: DType, signed: bool, x: Operand) -> Operand {
    match (dtype, signed) {
        (DType::I1, true) => b.select(RegClass::B32, x, -1i64, 0i64),
        (DType::I1, false) => b.pred_to_int(x),
        (_, true) => repr::sign_extended(b, dtype, x),
        (_, false) => x,
    }
}

fn extend(b: &mut Builder, from: DType, to: DType, signed: bool, x: Operand) -> Operand {
    if from == to {
        return x;
    }
    let word = as_int32(b, from, signed, x);
    match (to, word) {
        (DType::I64, Operand::Imm(value)) if signed => Operand::Imm(value),
        (DType::I64, Operand::Imm(value)) => Operand::Imm(i64::from(value as u32)),
        (DType::I64, word) if signed => b.cvt(Ty::S64, Ty::S32, CvtRound::None, word),
        (DType::I64, word) => b.cvt(Ty::U64, Ty::U32, CvtRound::None, word),
        (_, word) => repr::truncate(b, to, word),
    }
}

fn truncate(b: &mut Builder, from: DType, to: DType, x: Operand) -> Operand {
    let word = match (from, x) {
        (DType::I64, Operand::Imm(value)) => Operand::Imm(i64::from(value as i32)),
        (DType::I64, x) => b.cvt(Ty::U32, Ty::U64, CvtRound::None, x),
        (_, x) => x,
    };
    if to != DType::I1 {
        return repr::truncate(b, to, word);
    }
    let bit = b.and(Ty::B32, word, 1i64);
    match bit {
        Operand::Imm(value) => (value != 0).into(),
        bit => b.setp(Cmp::Ne, Ty::B32, bit, 0i64).into(),
    }
}

/// Converts a float of at most 32 bits to f32, exactly.
pub(super) fn widen(b: &mut Builder, from: DType, x: Operand) -> Operand {
    match from {
        DType::F32 | DType::TF32 => x,
        DType::F16 => b.cvt(Ty::F32, Ty::F16, CvtRound::None, x),
        DType::BF16 => b.cvt(Ty::F32, Ty::BF16, CvtRound::None, x),
        _ => small_float::decode(b, from, x),
    }
}

/// Converts f32 to f16 or bf16. Approximate roundings count as nearest even.
pub(super) fn narrow(b: &mut Builder, to: DType, rounding: Rounding, x: Operand) -> Operand {
    let round = match rounding {
        Rounding::Zero | Rounding::IntToZero => CvtRound::Rz,
        Rounding::NegInf => CvtRound::Rm,
        Rounding::PosInf => CvtRound::Rp,
        Rounding::NearestEven | Rounding::NearestAway | Rounding::Approx | Rounding::Full => CvtRound::Rn,
    };
    match to {
        DType::F16 => b.cvt(Ty::F16, Ty::F32, round, x),
        DType::BF16 if matches!(round, CvtRound::Rn | CvtRound::Rz) => b.cvt(Ty::BF16, Ty::F32, round, x),
        DType::BF16 => bf16_directed(b, round == CvtRound::Rp, x),
        _ => x,
    }
}

/// Converts f32 to bf16 upwards or downwards, which PTX lacks.
fn bf16_directed(b: &mut Builder, up: bool, x: Operand) -> Operand {
    let bits = b.bitcast(x, RegClass::B32);
    // For the sign whose rounding is away from zero, an inexact magnitude is increased.
    let grows = b.setp(if up { Cmp::Ge } else { Cmp::Lt }, Ty::S32, bits, 0i64);
    let step = b.select(RegClass::B32, grows, 0xffffi64, 0i64);
    let rounded = b.add(Ty::U32, bits, step);
    let nan = b.setp(Cmp::Nan, Ty::F32, x, x);
    let rounded = b.select(RegClass::B32, nan, 0x7fff_0000i64, rounded);
    b.unpack(rounded).1
}

/// Converts f64 to f32, rounded to odd.
fn f64_to_odd(b: &mut Builder, x: Operand) -> Operand {
    let short = b.cvt(Ty::F32, Ty::F64, CvtRound::Rz, x);
    let back = b.cvt(Ty::F64, Ty::F32, CvtRound::None, short);
    let lost = b.setp(Cmp::Neu, Ty::F64, back, x);
    set_lowest_bit(b, lost, short)
}

/// Converts a 32- or 64-bit integer to f32, rounded to odd.
fn int_to_odd(b: &mut Builder, ty: Ty, x: Operand) -> Operand {
    let short = b.cvt(Ty::F32, ty, CvtRound::Rz, x);
    let back = b.cvt(ty, Ty::F32, CvtRound::Rzi, short);
    let lost = b.setp(Cmp::Ne, ty, back, x);
    set_lowest_bit(b, lost, short)
}

fn set_lowest_bit(b: &mut Builder, when: Reg, x: Operand) -> Operand {
    let bits = b.bitcast(x, RegClass::B32);
    let odd = b.or(Ty::B32, bits, 1i64);
    let bits = b.select(RegClass::B32, when, odd, bits);
    b.bitcast(bits, RegClass::F32)
}

/// Converts an integer to a float, to nearest even; `None` for f8E8M0FNU.
fn int_to_float(b: &mut Builder, from: DType, to: DType, signed: bool, x: Operand) -> Option<Operand> {
    let (x, ty) = match from {
        DType::I64 => (x, if signed { Ty::S64 } else { Ty::U64 }),
        _ => (as_int32(b, from, signed, x), if signed { Ty::S32 } else { Ty::U32 }),
    };
    let exact_in_f32 = from.bits() <= 16;
    Some(match to {
        DType::F64 => b.cvt(Ty::F64, ty, CvtRound::Rn, x),
        DType::F32 => b.cvt(Ty::F32, ty, CvtRound::Rn, x),
        DType::F16 => b.cvt(Ty::F16, ty, CvtRound::Rn, x),
        DType::BF16 if b.target.arch >= 90 => b.cvt(Ty::BF16, ty, CvtRound::Rn, x),
        DType::F8E8M0FNU => return None,
        _ => {
            let wide = if exact_in_f32 { b.cvt(Ty::F32, ty, CvtRound::Rn, x) } else { int_to_odd(b, ty, x) };
            float_to_float(b, DType::F32, to, Rounding::NearestEven, wide)?
        }
    })
}

/// Converts two bytes, which are integers or small floats, to a pair of f16 or bf16, exactly.
/// `None` if there is no form that is shorter than two conversions.
///
/// An unsigned byte under the upper byte of 1024 is the f16 of 1024 plus its value. Seven bits
/// under that of 128 are the bf16 of 128 plus their value; the sign bit alone is 128 or 256.
pub fn byte_pair(b: &mut Builder, op: &Op, from: DType, to: DType, [low, high]: [Operand; 2]) -> Option<Operand> {
    const F16_1024: i64 = 0x6400_6400;
    const F16_1152: i64 = 0x6480_6480;
    match (op.code, from, to) {
        (Opcode::FToF, DType::F8E4M3FN | DType::F8E5M2, DType::F16 | DType::BF16) => {
            let halves = small_float::decode_pair(b, from, low, high)?;
            if to == DType::F16 {
                return Some(halves);
            }
            let (low, high) = b.unpack(halves);
            let [low, high] = [low, high].map(|half| widen(b, DType::F16, half));
            super::f16x2::narrow(b, to, low, high)
        }
        (Opcode::IToF, DType::I8, DType::F16) => {
            let (flip, zero) = match op.sign() {
                Sign::Signed => (0x80, F16_1152),
                Sign::Unsigned => (0, F16_1024),
            };
            let pair = b.bytes_below(low, high, 0x64, flip);
            Some(b.float(FloatOp::Sub, Ty::F16x2, FloatMods::RN, &[pair, Operand::Imm(zero)]))
        }
        (Opcode::IToF, DType::I8, DType::BF16) if op.sign() == Sign::Signed && b.target.arch >= 90 => {
            let pair = b.bytes_below(low, high, 0x43, 0);
            let [value, sign] = [0xff7f_ff7fu32, 0xff80_ff80].map(|mask| b.and(Ty::B32, pair, mask));
            Some(b.float(FloatOp::Sub, Ty::BF16x2, FloatMods::RN, &[value, sign]))
        }
        _ => None,
    }
}

/// Converts a float to an integer by truncation. Values out of range saturate; NaN results in 0.
fn float_to_int(b: &mut Builder, from: DType, to: DType, signed: bool, x: Operand) -> Operand {
    let (x, source) = if from == DType::F64 { (x, Ty::F64) } else { (widen(b, from, x), Ty::F32) };
    let ty = match (to, signed) {
        (DType::I64, true) => Ty::S64,
        (DType::I64, false) => Ty::U64,
        (_, true) => Ty::S32,
        (_, false) => Ty::U32,
    };
    let mut value = b.cvt(ty, source, CvtRound::Rzi, x);
    if source == Ty::F64 || to == DType::I64 {
        // For NaN, PTX returns 2^(w-1) for these types, 0 for the others.
        let nan = b.setp(Cmp::Nan, source, x, x);
        value = b.select(ty.class(), nan, 0i64, value);
    }
    let bits = to.bits();
    if bits < 32 {
        let top = (1i64 << (bits - u32::from(signed))) - 1;
        value = b.min(ty, value, top);
        if signed {
            value = b.max(ty, value, -top - 1);
        }
    }
    if to == DType::I1 {
        return b.setp(Cmp::Ne, Ty::B32, value, 0i64).into();
    }
    repr::truncate(b, to, value)
}

/// Converts a float; `None` if the rounding mode is not defined for the pair of types.
pub(super) fn float_to_float(
    b: &mut Builder,
    from: DType,
    to: DType,
    rounding: Rounding,
    x: Operand,
) -> Option<Operand> {
    if from == to {
        return Some(x);
    }
    let nearest = rounding == Rounding::NearestEven;
    let towards_zero = rounding == Rounding::Zero;
    Some(match (from, to) {
        (_, DType::F64) => {
            let wide = widen(b, from, x);
            b.cvt(Ty::F64, Ty::F32, CvtRound::None, wide)
        }
        (_, DType::F8E8M0FNU) => {
            let up = match rounding {
                Rounding::Zero => false,
                Rounding::PosInf => true,
                _ => return None,
            };
            let wide = match from {
                DType::F64 => {
                    let magnitude = b.fabs(Ty::F64, x);
                    b.cvt(Ty::F32, Ty::F64, if up { CvtRound::Rp } else { CvtRound::Rz }, magnitude)
                }
                _ => widen(b, from, x),
            };
            small_float::encode_e8m0(b, up, wide)
        }
        (DType::F64, DType::F32) => b.cvt(Ty::F32, Ty::F64, directed(rounding)?, x),
        (DType::F64, _) if towards_zero => {
            let short = b.cvt(Ty::F32, Ty::F64, CvtRound::Rz, x);
            return float_to_float(b, DType::F32, to, rounding, short);
        }
        (DType::F64, _) if nearest => {
            let odd = f64_to_odd(b, x);
            return float_to_float(b, DType::F32, to, rounding, odd);
        }
        (DType::F64, _) => return None,
        (_, DType::F32) => widen(b, from, x),
        (_, DType::TF32) => {
            let wide = widen(b, from, x);
            match from {
                DType::F32 | DType::F8E8M0FNU => round_to_tf32(b, rounding, wide)?,
                _ => wide,
            }
        }
        (_, DType::F16 | DType::BF16) => {
            let wide = widen(b, from, x);
            let exact = match from {
                DType::F8E8M0FNU => false,
                DType::F8E5M3FNU => to == DType::BF16,
                _ => from.bits() <= 8,
            };
            match rounding {
                _ if exact => narrow(b, to, Rounding::NearestEven, wide),
                Rounding::NearestEven | Rounding::Zero | Rounding::NegInf | Rounding::PosInf => {
                    narrow(b, to, rounding, wide)
                }
                Rounding::NearestAway | Rounding::Approx | Rounding::Full | Rounding::IntToZero => return None,
            }
        }
        _ if nearest => {
            let wide = widen(b, from, x);
            small_float::encode(b, to, wide)
        }
        _ => return None,
    })
}

fn directed(rounding: Rounding) -> Option<CvtRound> {
    match rounding {
        Rounding::NearestEven => Some(CvtRound::Rn),
        Rounding::Zero => Some(CvtRound::Rz),
        Rounding::NegInf => Some(CvtRound::Rm),
        Rounding::PosInf => Some(CvtRound::Rp),
        Rounding::Approx | Rounding::Full | Rounding::IntToZero | Rounding::NearestAway => None,
    }
}

/// Rounds f32 to 10 mantissa bits by integer instructions: only Hopper has the instruction for all
/// modes.
pub(super) fn round_to_tf32(b: &mut Builder, rounding: Rounding, x: Operand) -> Option<Operand> {
    let bits = b.bitcast(x, RegClass::B32);
    let moved = match rounding {
        Rounding::Zero => bits,
        Rounding::NearestAway => b.add(Ty::U32, bits, 0x1000i64),
        Rounding::NearestEven => {
            let odd = b.bfe(Ty::U32, bits, 13i64, 1i64);
            let half = b.add(Ty::U32, bits, 0xfffi64);
            b.add(Ty::U32, half, odd)
        }
        Rounding::NegInf | Rounding::PosInf | Rounding::Approx | Rounding::Full | Rounding::IntToZero => return None,
    };
    let kept = b.and(Ty::B32, moved, !0x1fffi64);
    let nan = b.setp(Cmp::Nan, Ty::F32, x, x);
    let kept = b.select(RegClass::B32, nan, 0x7fff_e000i64, kept);
    Some(b.bitcast(kept, RegClass::F32))
}
