//! Constant folding and identities of integer instructions.

use super::super::inst::*;

/// Returns `value` as the signed number of its low `bits` bits.
pub(in crate::backend::ptx) fn wrap(value: i128, bits: u32) -> i64 {
    let shift = 128 - bits.min(64);
    ((value << shift) >> shift) as i64
}

/// Returns `value`, sign-extended from `bits`, as a value of type `ty`.
fn read(value: i64, ty: Ty) -> i128 {
    let bits = ty.bits();
    if ty.is_signed() {
        i128::from(wrap(value.into(), bits))
    } else {
        i128::from(value as u64 & (u64::MAX >> (64 - bits)))
    }
}

/// Returns the result of an integer operation on constants, if it is defined.
pub(in crate::backend::ptx) fn constant(op: IntOp, ty: Ty, a: i64, b: i64) -> Option<i64> {
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
        IntOp::Clz => i128::from((x as u128 & ((1 << bits) - 1)).leading_zeros()) - i128::from(128 - bits),
        IntOp::Brev => (x as u128).reverse_bits() as i128 >> (128 - bits),
    };
    Some(wrap(value, if op == IntOp::MulWide { 64 } else { bits }))
}

/// Returns true for a constant whose bits are all set.
pub(in crate::backend::ptx) fn is_ones(x: Operand, ty: Ty) -> bool {
    x.as_imm().is_some_and(|v| wrap(v.into(), ty.bits()) == -1)
}

/// Returns the value of `op(a, b)` if one operand is a constant that makes the operation trivial.
pub(in crate::backend::ptx) fn identity(op: IntOp, ty: Ty, a: Operand, b: Operand) -> Option<Operand> {
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
        IntOp::Min | IntOp::Max if ty.bits() >= 16 => extremum(op, ty, a, b).or_else(|| extremum(op, ty, b, a)),
        _ => None,
    }
}

/// Returns the extremum of a number and a constant, if the constant is a bound of the type.
fn extremum(op: IntOp, ty: Ty, x: Operand, end: Operand) -> Option<Operand> {
    let value = read(end.as_imm()?, ty);
    let (least, greatest) = match ty.is_signed() {
        true => (-1i128 << (ty.bits() - 1), (1i128 << (ty.bits() - 1)) - 1),
        false => (0, (1i128 << ty.bits()) - 1),
    };
    let (neutral, absorbing) = if op == IntOp::Max { (least, greatest) } else { (greatest, least) };
    match value {
        _ if value == neutral => Some(x),
        _ if value == absorbing => Some(end),
        _ => None,
    }
}

/// Returns `len` bits of a constant from bit `pos`, extended according to the type, if they are
/// inside its width.
pub(in crate::backend::ptx) fn field(ty: Ty, value: i64, pos: i64, len: i64) -> Option<i64> {
    let bits = i64::from(ty.bits());
    if !(1..=bits).contains(&len) || !(0..=bits - len).contains(&pos) {
        return None;
    }
    let field = wrap(i128::from(value) >> pos, len as u32);
    let mask = (u64::MAX >> (64 - len)) as i64;
    Some(if ty.is_signed() { field } else { wrap((field & mask).into(), ty.bits()) })
}

/// Returns the bitwise function of three constant words; bit `4a + 2b + c` of the table is its
/// value.
pub(in crate::backend::ptx) fn three_inputs(table: u8, a: i64, b: i64, c: i64) -> i64 {
    let word = (0..32).fold(0u32, |word, bit| {
        let input = |x: i64| (x >> bit & 1) as u32;
        let row = 4 * input(a) + 2 * input(b) + input(c);
        word | (u32::from(table) >> row & 1) << bit
    });
    i64::from(word as i32)
}

/// Returns the comparison of two integer constants.
pub(in crate::backend::ptx) fn comparison(cmp: Cmp, ty: Ty, a: i64, b: i64) -> Option<bool> {
    let (x, y) = (read(a, ty), read(b, ty));
    Some(match cmp {
        Cmp::Eq => x == y,
        Cmp::Ne => x != y,
        Cmp::Lt => x < y,
        Cmp::Le => x <= y,
        Cmp::Gt => x > y,
        Cmp::Ge => x >= y,
        _ => return None,
    })
}

/// Returns the conversion of an integer constant between types of full registers.
pub(in crate::backend::ptx) fn conversion(dst: Ty, src: Ty, value: i64) -> Option<i64> {
    (dst.is_int() && src.is_int() && dst.bits() >= 16 && src.bits() >= 8).then(|| wrap(read(value, src), dst.bits()))
}

/// Returns log2 of a constant that is a power of two at this width.
pub(in crate::backend::ptx) fn log2(operand: Operand, ty: Ty) -> Option<u32> {
    let value = operand.as_imm()? as u64 & (u64::MAX >> (64 - ty.bits()));
    value.is_power_of_two().then(|| value.trailing_zeros())
}

/// Returns the `lop3` table of `op` after an `and`: (a & b) op c.
pub(in crate::backend::ptx) fn after_mask(op: IntOp) -> Option<u8> {
    match op {
        IntOp::Xor => Some(0x6a),
        IntOp::Or => Some(0xea),
        _ => None,
    }
}
