//! Constant folding of float ops.
//!
//! Sums, products, quotients and square roots of significands of at most 24 bits are correctly
//! rounded by one rounding of the f64 result. The reason is that an f64 has more than twice as many
//! bits. Ops that return NaN, flush subnormals, or do not round to nearest even are not folded.

use crate::dtype::DType;
use crate::ir::{CmpOrder, CmpPred, Flag, Op, Opcode, Rounding, Sign};
use crate::types::float_codec;

fn rounds_to_nearest(op: &Op) -> bool {
    op.rounding() == Rounding::NearestEven && !op.flag(Flag::FlushToZero)
}

fn encode(dtype: DType, value: f64) -> Option<u64> {
    (!value.is_nan()).then(|| float_codec::encode(dtype, value, Rounding::NearestEven))
}

fn sign_bit(dtype: DType) -> u64 {
    1 << (dtype.storage_bits() - 1)
}

/// Folds an op with one operand of a base float type.
pub(super) fn unary(op: &Op, dtype: DType, a: u64) -> Option<u64> {
    let x = float_codec::decode(dtype, a);
    match op.code {
        Opcode::NegF => Some(a ^ sign_bit(dtype)),
        Opcode::AbsF => Some(a & !sign_bit(dtype)),
        Opcode::Floor => encode(dtype, x.floor()),
        Opcode::Ceil => encode(dtype, x.ceil()),
        Opcode::Sqrt if rounds_to_nearest(op) => encode(dtype, x.sqrt()),
        _ => None,
    }
}

/// Folds an op with two operands of one base float type. A comparison returns 0 or 1.
pub(super) fn binary(op: &Op, dtype: DType, a: u64, b: u64) -> Option<u64> {
    let (x, y) = (float_codec::decode(dtype, a), float_codec::decode(dtype, b));
    let value = match op.code {
        Opcode::CmpF => return Some(u64::from(compare(op, x, y))),
        Opcode::AddF if rounds_to_nearest(op) => x + y,
        Opcode::SubF if rounds_to_nearest(op) => x - y,
        Opcode::MulF if rounds_to_nearest(op) => x * y,
        Opcode::DivF if rounds_to_nearest(op) => x / y,
        Opcode::MaxF | Opcode::MinF if !op.flag(Flag::FlushToZero) && !x.is_nan() && !y.is_nan() => {
            // +0 is larger than -0.
            let first = x.total_cmp(&y).is_ge() == (op.code == Opcode::MaxF);
            return Some(if first { a } else { b });
        }
        _ => return None,
    };
    encode(dtype, value)
}

fn compare(op: &Op, x: f64, y: f64) -> bool {
    if x.is_nan() || y.is_nan() {
        return op.cmp_order() == CmpOrder::Unordered;
    }
    match op.cmp_pred() {
        CmpPred::Eq => x == y,
        CmpPred::Ne => x != y,
        CmpPred::Lt => x < y,
        CmpPred::Le => x <= y,
        CmpPred::Gt => x > y,
        CmpPred::Ge => x >= y,
    }
}

/// Folds conversions from and to floats.
pub(super) fn cast(op: &Op, from: DType, to: DType, a: u64) -> Option<u64> {
    match op.code {
        Opcode::FToF => {
            let value = float_codec::decode(from, a);
            // The conversion of an infinity depends on the format.
            (value.is_finite()).then(|| float_codec::encode(to, value, op.rounding()))
        }
        Opcode::IToF => {
            let unused = 64 - from.bits();
            let value = match op.sign() {
                Sign::Signed => i128::from(((a << unused) as i64) >> unused),
                Sign::Unsigned => i128::from((a << unused) >> unused),
            };
            // Exact as f64, so rounded once.
            (value.unsigned_abs() < 1 << 53).then(|| float_codec::encode(to, value as f64, op.rounding()))
        }
        Opcode::FToI => {
            let value = float_codec::decode(from, a);
            let exact = value.is_finite() && value.abs() < 2f64.powi(31) && to.bits() >= 32;
            let fits = exact && (op.sign() == Sign::Signed || value >= 0.0);
            fits.then(|| (value.trunc() as i64 as u64) & (u64::MAX >> (64 - to.bits())))
        }
        _ => None,
    }
}

/// Returns true if these bits have this value. Zeros of different sign differ.
pub(super) fn has_value(dtype: DType, bits: u64, value: f64) -> bool {
    float_codec::decode(dtype, bits).to_bits() == value.to_bits()
}
