//! Constant folding of integer ops, with the semantics of all back ends: results wrap; a shift by
//! at least the width returns 0 or the sign; a quotient by zero is 0, and the remainder is the
//! dividend.

use crate::dtype::DType;
use crate::ir::{Op, Opcode, Sign, violates_assumption};

fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// Interprets bits as signed or unsigned.
fn read(sign: Sign, bits: u64, width: u32) -> i128 {
    match sign {
        Sign::Unsigned => i128::from(bits & mask(width)),
        Sign::Signed => i128::from(((bits << (64 - width)) as i64) >> (64 - width)),
    }
}

/// Folds an op with one operand, from one width to another.
pub(in crate::pass) fn unary(op: &Op, from: DType, to: DType, a: u64) -> Option<u64> {
    let signed = read(Sign::Signed, a, from.bits());
    let wide = match op.code {
        Opcode::NegI => -signed,
        Opcode::AbsI => signed.abs(),
        Opcode::ExtI => read(op.sign(), a, from.bits()),
        Opcode::TruncI => signed,
        _ => return None,
    };
    Some(wide as u64 & mask(to.bits()))
}

/// Folds an op with two operands of one type. A comparison returns 0 or 1. A violated assumption is
/// not folded, so that the interpreter reports it.
pub(crate) fn binary(op: &Op, dtype: DType, a: u64, b: u64) -> Option<u64> {
    let width = dtype.bits();
    if violates_assumption(op, width, a, b) {
        return None;
    }
    let (x, y) = (read(op.sign(), a, width), read(op.sign(), b, width));
    let amount = (b & mask(width)).min(127) as u32;
    let wide = match op.code {
        Opcode::AddI => x + y,
        Opcode::SubI => x - y,
        Opcode::MulI => x.wrapping_mul(y),
        Opcode::MulHiI => ((u128::from(a & mask(width)) * u128::from(b & mask(width))) >> width) as i128,
        Opcode::AndI => x & y,
        Opcode::OrI => x | y,
        Opcode::XorI => x ^ y,
        Opcode::MaxI => x.max(y),
        Opcode::MinI => x.min(y),
        Opcode::ShlI => {
            if amount < width {
                x << amount
            } else {
                0
            }
        }
        Opcode::ShrI => x >> amount,
        Opcode::DivI if y == 0 => 0,
        Opcode::RemI if y == 0 => x,
        Opcode::DivI => op.rounding().quotient(x, y),
        Opcode::RemI => x % y,
        Opcode::CmpI => i128::from(op.cmp_pred().holds(x, y)),
        _ => return None,
    };
    Some(wide as u64 & if op.code == Opcode::CmpI { 1 } else { mask(width) })
}
