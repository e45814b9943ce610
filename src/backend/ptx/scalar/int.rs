//! Integer and bitwise operations.
//!
//! Sub-word integers are computed in 32 bits and truncated; see [`repr`] for their form. No
//! operation traps. The result of an instruction for a zero divisor is unspecified, and replaced.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::{Unsupported, repr};
use crate::dtype::DType;
use crate::ir::{Op, Opcode, Rounding, Sign};

/// Returns the register types for an integer of this width, unsigned and signed.
fn types(dtype: DType) -> (Ty, Ty) {
    if dtype == DType::I64 { (Ty::U64, Ty::S64) } else { (Ty::U32, Ty::S32) }
}

pub(super) fn lower(b: &mut Builder, op: &Op, dtype: DType, x: &[Operand]) -> Result<Operand, Unsupported> {
    if !dtype.is_int() {
        return Err(Unsupported::new(op, dtype));
    }
    if dtype == DType::I1 {
        return lower_bool(b, op, x);
    }
    let (unsigned, signed) = types(dtype);
    let bits = if unsigned == Ty::U64 { Ty::B64 } else { Ty::B32 };
    let is_signed = op.sign() == Sign::Signed;
    let wide = match op.code {
        Opcode::AddI => b.add(signed, x[0], x[1]),
        Opcode::SubI => b.sub(signed, x[0], x[1]),
        Opcode::MulI => b.mul(signed, x[0], x[1]),
        Opcode::AndI => return Ok(b.and(bits, x[0], x[1])),
        Opcode::OrI => return Ok(b.or(bits, x[0], x[1])),
        Opcode::XorI => return Ok(b.xor(bits, x[0], x[1])),
        Opcode::NegI => b.neg(signed, x[0]),
        Opcode::AbsI => magnitude(b, dtype, signed, x[0]),
        Opcode::MaxI if !is_signed => return Ok(b.max(unsigned, x[0], x[1])),
        Opcode::MinI if !is_signed => return Ok(b.min(unsigned, x[0], x[1])),
        Opcode::MaxI | Opcode::MinI => {
            let [p, q] = both_signed(b, dtype, x);
            if op.code == Opcode::MaxI { b.max(signed, p, q) } else { b.min(signed, p, q) }
        }
        Opcode::MulHiI if matches!(dtype, DType::I32 | DType::I64) => b.mul_hi(unsigned, x[0], x[1]),
        Opcode::MulHiI => {
            let product = b.mul(unsigned, x[0], x[1]);
            return Ok(b.shr(unsigned, product, dtype.bits()));
        }
        Opcode::ShlI => {
            let amount = shift_amount(b, dtype, x[1]);
            b.shl(bits, x[0], amount)
        }
        Opcode::ShrI => {
            let amount = shift_amount(b, dtype, x[1]);
            if !is_signed {
                return Ok(b.shr(unsigned, x[0], amount));
            }
            let value = repr::sign_extended(b, dtype, x[0]);
            b.shr(signed, value, amount)
        }
        Opcode::DivI if !is_signed => {
            let quotient = unsigned_div(b, unsigned, op.rounding(), x[0], x[1]);
            return Ok(unless_zero(b, unsigned, x[1], quotient, Operand::Imm(0)));
        }
        Opcode::DivI => {
            let [p, q] = both_signed(b, dtype, x);
            let quotient = signed_div(b, signed, op, p, q);
            unless_zero(b, signed, q, quotient, Operand::Imm(0))
        }
        Opcode::RemI if !is_signed => {
            let rest = b.rem(unsigned, x[0], x[1]);
            return Ok(unless_zero(b, unsigned, x[1], rest, x[0]));
        }
        Opcode::RemI => {
            let [p, q] = both_signed(b, dtype, x);
            let rest = signed_rem(b, signed, p, q);
            unless_zero(b, signed, q, rest, p)
        }
        _ => return Err(Unsupported::new(op, dtype)),
    };
    Ok(repr::truncate(b, dtype, wide))
}

/// Returns the absolute value of an element; that of the minimum is the minimum. ptxas assumes that
/// the result of `abs` is not negative. This is true only of elements narrower than the register.
/// For the others, the code is `(x ^ sign) - sign`.
fn magnitude(b: &mut Builder, dtype: DType, ty: Ty, x: Operand) -> Operand {
    if dtype.bits() < ty.bits() {
        let value = repr::sign_extended(b, dtype, x);
        return b.abs(ty, value);
    }
    let sign = b.shr(ty, x, ty.bits() - 1);
    let flipped = b.xor(ty, x, sign);
    b.sub(ty, flipped, sign)
}

fn both_signed(b: &mut Builder, dtype: DType, x: &[Operand]) -> [Operand; 2] {
    [repr::sign_extended(b, dtype, x[0]), repr::sign_extended(b, dtype, x[1])]
}

/// Returns the amount as a 32-bit number, as PTX requires. PTX clamps amounts beyond the register
/// width; truncation or sign extension completes sub-word values.
fn shift_amount(b: &mut Builder, dtype: DType, amount: Operand) -> Operand {
    if dtype != DType::I64 {
        return amount;
    }
    let clamped = b.min(Ty::U64, amount, 64i64);
    match clamped {
        Operand::Imm(_) => clamped,
        _ => b.cvt(Ty::U32, Ty::U64, CvtRound::None, clamped),
    }
}

/// Returns `value`, or its replacement `otherwise` for a zero divisor.
fn unless_zero(b: &mut Builder, ty: Ty, divisor: Operand, value: Operand, otherwise: Operand) -> Operand {
    match divisor.as_imm() {
        Some(0) => otherwise,
        Some(_) => value,
        None => {
            let is_zero = b.setp(Cmp::Eq, ty, divisor, 0i64);
            b.select(ty.class(), is_zero, otherwise, value)
        }
    }
}

fn unsigned_div(b: &mut Builder, ty: Ty, rounding: Rounding, p: Operand, q: Operand) -> Operand {
    let quotient = b.div(ty, p, q);
    if rounding != Rounding::PosInf {
        return quotient;
    }
    let product = b.mul(ty, quotient, q);
    let inexact = b.setp(Cmp::Ne, ty, product, p);
    let up = b.add(ty, quotient, 1i64);
    b.select(ty.class(), inexact, up, quotient)
}

/// Returns log2 of a positive constant power of two.
fn log2(value: Operand) -> Option<u32> {
    let value = value.as_imm()?;
    (value > 0 && value & (value - 1) == 0).then(|| value.trailing_zeros())
}

/// Adds the bias to `p` by which an arithmetic shift by `log` rounds to zero.
fn biased(b: &mut Builder, ty: Ty, p: Operand, log: u32) -> Operand {
    let unsigned = if ty == Ty::S64 { Ty::U64 } else { Ty::U32 };
    let sign = b.shr(ty, p, ty.bits() - 1);
    let bias = b.shr(unsigned, sign, ty.bits() - log);
    b.add(ty, p, bias)
}

fn signed_div(b: &mut Builder, ty: Ty, op: &Op, p: Operand, q: Operand) -> Operand {
    let rounding = op.rounding();
    if let Some(log) = log2(q) {
        return match rounding {
            _ if log == 0 => p,
            Rounding::NegInf => b.shr(ty, p, log),
            Rounding::PosInf => {
                let floor = b.shr(ty, p, log);
                let rest = b.and(if ty == Ty::S64 { Ty::B64 } else { Ty::B32 }, p, (1i64 << log) - 1);
                let inexact = b.setp(Cmp::Ne, ty, rest, 0i64);
                let up = b.add(ty, floor, 1i64);
                b.select(ty.class(), inexact, up, floor)
            }
            _ => {
                let p = biased(b, ty, p, log);
                b.shr(ty, p, log)
            }
        };
    }
    let quotient = b.div(ty, p, q);
    let step = match rounding {
        Rounding::NegInf => -1i64,
        Rounding::PosInf => 1,
        _ => return quotient,
    };
    let product = b.mul(ty, quotient, q);
    let rest = b.sub(ty, p, product);
    let inexact = b.setp(Cmp::Ne, ty, rest, 0i64);
    // The exact quotient is negative if remainder and divisor differ in sign.
    let signs = b.xor(if ty == Ty::S64 { Ty::B64 } else { Ty::B32 }, rest, q);
    let required = b.setp(if step < 0 { Cmp::Lt } else { Cmp::Ge }, ty, signs, 0i64);
    let adjust = b.and(Ty::Pred, inexact, required);
    let stepped = b.add(ty, quotient, step);
    b.select(ty.class(), adjust, stepped, quotient)
}

fn signed_rem(b: &mut Builder, ty: Ty, p: Operand, q: Operand) -> Operand {
    match log2(q) {
        Some(0) => Operand::Imm(0),
        Some(log) => {
            let rounded = biased(b, ty, p, log);
            let multiple = b.and(if ty == Ty::S64 { Ty::B64 } else { Ty::B32 }, rounded, -1i64 << log);
            b.sub(ty, p, multiple)
        }
        None => b.rem(ty, p, q),
    }
}

/// Lowers i1 arithmetic modulo 2; read as signed, true is -1.
fn lower_bool(b: &mut Builder, op: &Op, x: &[Operand]) -> Result<Operand, Unsupported> {
    let signed = op.sign() == Sign::Signed;
    Ok(match op.code {
        Opcode::AddI | Opcode::SubI | Opcode::XorI => b.xor(Ty::Pred, x[0], x[1]),
        Opcode::MulI | Opcode::AndI => b.and(Ty::Pred, x[0], x[1]),
        Opcode::OrI => b.or(Ty::Pred, x[0], x[1]),
        Opcode::NegI | Opcode::AbsI => x[0],
        Opcode::MaxI if signed => b.and(Ty::Pred, x[0], x[1]),
        Opcode::MaxI => b.or(Ty::Pred, x[0], x[1]),
        Opcode::MinI if signed => b.or(Ty::Pred, x[0], x[1]),
        Opcode::MinI => b.and(Ty::Pred, x[0], x[1]),
        Opcode::DivI => b.and(Ty::Pred, x[0], x[1]),
        Opcode::MulHiI => false.into(),
        Opcode::ShrI if signed => x[0],
        Opcode::RemI | Opcode::ShlI | Opcode::ShrI => {
            let keep = b.not(Ty::Pred, x[1]);
            b.and(Ty::Pred, x[0], keep)
        }
        _ => return Err(Unsupported::new(op, DType::I1)),
    })
}
