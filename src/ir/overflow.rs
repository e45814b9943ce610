//! Check of the no-overflow assumption of integer ops.

use super::{Op, Opcode, Overflow};

/// Returns true if the op overflows on these bits although it is assumed not to.
pub(crate) fn violates_assumption(op: &Op, width: u32, a: u64, b: u64) -> bool {
    let (no_signed, no_unsigned) = match op.overflow() {
        Overflow::None => return false,
        Overflow::Nsw => (true, false),
        Overflow::Nuw => (false, true),
        Overflow::Nw => (true, true),
    };
    (no_signed && !fits(op.code, width, true, a, b)) || (no_unsigned && !fits(op.code, width, false, a, b))
}

/// Returns true if the exact result fits the type. True for ops without overflow assumption.
pub(crate) fn fits(code: Opcode, width: u32, signed: bool, a: u64, b: u64) -> bool {
    let read = |bits: u64| match signed {
        true => i128::from(((bits << (64 - width)) as i64) >> (64 - width)),
        false => i128::from(bits & (u64::MAX >> (64 - width))),
    };
    let (x, y) = (read(a), read(b));
    let exact = match code {
        Opcode::AddI => Some(x + y),
        Opcode::SubI => Some(x - y),
        Opcode::MulI => x.checked_mul(y),
        // The amount is unsigned. A shift by at least the width has no exact result.
        Opcode::ShlI => match b & (u64::MAX >> (64 - width)) {
            amount if amount < u64::from(width) => Some(x << amount),
            _ => None,
        },
        _ => return true,
    };
    let (least, most) = match signed {
        true => (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1),
        false => (0, (1i128 << width) - 1),
    };
    exact.is_some_and(|exact| (least..=most).contains(&exact))
}
