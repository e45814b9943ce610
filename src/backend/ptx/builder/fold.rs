//! Constant folding and identities of integer instructions.

use super::super::inst::*;

/// `value` as the signed number that its low `bits` bits stand for.
pub(super) fn wrap(value: i128, bits: u32) -> i64 {
    let shift = 128 - bits.min(64);
    ((value << shift) >> shift) as i64
}

/// `value`, sign-extended from `bits`, as `ty` reads it.
fn read(value: i64, ty: Ty) -> i128 {
    let bits = ty.bits();
    if ty.is_signed() {
        i128::from(wrap(value.into(), bits))
    } else {
        i128::from(value as u64 & (u64::MAX >> (64 - bits)))
    }
}

/// The result of an integer operation on constants, where it is defined.
pub(super) fn constant(op: IntOp, ty: Ty, a: i64, b: i64) -> Option<i64> {
    let (x, y, bits) = (read(a, ty), read(b, ty), ty.bits());
    let amount = read(b, Ty::U32);
    let value = match op {
        IntOp::Add => x + y,
        IntOp::Sub => x - y,
        IntOp::MulLo => x.wrapping_mul(y),
        IntOp::MulHi if ty.is_signed() => (x * y) >> bits,
        IntOp::MulHi => ((x as u128).wrapping_mul(y as u128) >> bits) as i128,
        IntOp::MulWide => x * y,
        IntOp::Div => x.checked_div(y)?,
        IntOp::Rem => x.checked_rem(y)?,
        IntOp::Min => x.min(y),
        IntOp::Max => x.max(y),
        IntOp::And => x & y,
        IntOp::Or => x | y,
        IntOp::Xor => x ^ y,
        IntOp::Shl if amount >= i128::from(bits) => 0,
        IntOp::Shl => x << amount,
        IntOp::Shr => x >> amount.min(i128::from(bits)),
        IntOp::Abs => x.abs(),
        IntOp::Neg => -x,
        IntOp::Not => !x,
        IntOp::Popc => i128::from((x as u128 & ((1 << bits) - 1)).count_ones()),
        IntOp::Clz | IntOp::Brev => return None,
    };
    Some(wrap(value, if op == IntOp::MulWide { 64 } else { bits }))
}

/// Is this a constant all of whose bits are set?
pub(super) fn is_ones(x: Operand, ty: Ty) -> bool {
    x.as_imm().is_some_and(|v| wrap(v.into(), ty.bits()) == -1)
}

/// What `op(a, b)` is equal to, when one side is a constant that makes the operation trivial.
pub(super) fn identity(op: IntOp, ty: Ty, a: Operand, b: Operand) -> Option<Operand> {
    let ones = |x: Operand| is_ones(x, ty);
    let is = |x: Operand, value: i64| x.as_imm() == Some(value);
    match op {
        IntOp::Add | IntOp::Or | IntOp::Xor if is(a, 0) => Some(b),
        IntOp::Add | IntOp::Sub | IntOp::Or | IntOp::Xor | IntOp::Shl | IntOp::Shr if is(b, 0) => Some(a),
        IntOp::MulLo | IntOp::And if is(a, 0) || is(b, 0) => Some(Operand::Imm(0)),
        IntOp::MulLo if is(a, 1) => Some(b),
        IntOp::MulLo | IntOp::Div if is(b, 1) => Some(a),
        IntOp::And if ones(a) => Some(b),
        IntOp::And if ones(b) => Some(a),
        IntOp::Or if ones(a) || ones(b) => Some(Operand::Imm(-1)),
        IntOp::Rem if is(b, 1) => Some(Operand::Imm(0)),
        IntOp::Shl | IntOp::Shr if is(a, 0) => Some(Operand::Imm(0)),
        _ => None,
    }
}

/// log2 of a constant that is a power of two at this width.
pub(super) fn log2(operand: Operand, ty: Ty) -> Option<u32> {
    let value = operand.as_imm()? as u64 & (u64::MAX >> (64 - ty.bits()));
    value.is_power_of_two().then(|| value.trailing_zeros())
}

/// The table of `lop3` for `op` after an `and`: (a & b) op c.
pub(super) fn after_mask(op: IntOp) -> Option<u8> {
    match op {
        IntOp::Xor => Some(0x6a),
        IntOp::Or => Some(0xea),
        _ => None,
    }
}
