//! Float ops on constants, where the exact result is at hand: sums, products, quotients and square
//! roots of at most 24-bit significands are right after one rounding of the double result (a double
//! has more than twice as many bits). What would give a NaN, flush subnormals or round otherwise than
//! to nearest even is left alone.

use crate::codec;
use crate::dtype::DType;
use crate::ir::{CmpOrder, CmpPred, Flag, Op, Opcode, Rounding, Sign};

fn rounds_to_nearest(op: &Op) -> bool {
    op.rounding() == Rounding::NearestEven && !op.flag(Flag::FlushToZero)
}

fn encode(dtype: DType, value: f64) -> Option<u64> {
    (!value.is_nan()).then(|| codec::encode(dtype, value, Rounding::NearestEven))
}

fn sign_bit(dtype: DType) -> u64 {
    1 << (dtype.storage_bits() - 1)
}

/// An op with one operand, of a base float type.
pub(super) fn unary(op: &Op, dtype: DType, a: u64) -> Option<u64> {
    let x = codec::decode(dtype, a);
    match op.code {
        Opcode::NegF => Some(a ^ sign_bit(dtype)),
        Opcode::AbsF => Some(a & !sign_bit(dtype)),
        Opcode::Floor => encode(dtype, x.floor()),
        Opcode::Ceil => encode(dtype, x.ceil()),
        Opcode::Sqrt if rounds_to_nearest(op) => encode(dtype, x.sqrt()),
        _ => None,
    }
}

/// An op with two operands of one base float type; comparisons give 0 or 1.
pub(super) fn binary(op: &Op, dtype: DType, a: u64, b: u64) -> Option<u64> {
    let (x, y) = (codec::decode(dtype, a), codec::decode(dtype, b));
    let value = match op.code {
        Opcode::CmpF => return Some(u64::from(holds(op, x, y))),
        Opcode::AddF if rounds_to_nearest(op) => x + y,
        Opcode::SubF if rounds_to_nearest(op) => x - y,
        Opcode::MulF if rounds_to_nearest(op) => x * y,
        Opcode::DivF if rounds_to_nearest(op) => x / y,
        Opcode::MaxF | Opcode::MinF if !op.flag(Flag::FlushToZero) && !x.is_nan() && !y.is_nan() => {
            // Positive zero is the larger one.
            let first = x.total_cmp(&y).is_ge() == (op.code == Opcode::MaxF);
            return Some(if first { a } else { b });
        }
        _ => return None,
    };
    encode(dtype, value)
}

fn holds(op: &Op, x: f64, y: f64) -> bool {
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

/// Conversions from and to floats.
pub(super) fn cast(op: &Op, from: DType, to: DType, a: u64) -> Option<u64> {
    match op.code {
        Opcode::FToF => {
            let value = codec::decode(from, a);
            // Each format says for itself what becomes of infinity.
            (value.is_finite()).then(|| codec::encode(to, value, op.rounding()))
        }
        Opcode::IToF => {
            let unused = 64 - from.bits();
            let value = match op.sign() {
                Sign::Signed => i128::from(((a << unused) as i64) >> unused),
                Sign::Unsigned => i128::from((a << unused) >> unused),
            };
            // Exact as a double, so rounded once.
            (value.unsigned_abs() < 1 << 53).then(|| codec::encode(to, value as f64, op.rounding()))
        }
        Opcode::FToI => {
            let value = codec::decode(from, a);
            let exact = value.is_finite() && value.abs() < 2f64.powi(31) && to.bits() >= 32;
            let fits = exact && (op.sign() == Sign::Signed || value >= 0.0);
            fits.then(|| (value.trunc() as i64 as u64) & (u64::MAX >> (64 - to.bits())))
        }
        _ => None,
    }
}

/// Is this the float with this value (zeros by sign)?
pub(super) fn is(dtype: DType, bits: u64, value: f64) -> bool {
    codec::decode(dtype, bits).to_bits() == value.to_bits()
}
