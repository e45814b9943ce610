//! Packed halves: f16x2 and bf16x2, with the first element in the low half of a B32.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::repr;
use crate::dtype::DType;
use crate::ir::{Flag, Op, Opcode, Rounding};

/// Returns true if `op` has a packed form.
pub fn exists(op: &Op, dtype: DType) -> bool {
    use Opcode::*;
    matches!(dtype, DType::F16 | DType::BF16)
        && op.rounding() == Rounding::NearestEven
        && matches!(op.code, AddF | SubF | MulF | Fma | MaxF | MinF | AbsF | NegF)
}

/// Returns the packed form of `op` on pairs of f16 or bf16: sums, differences, products,
/// multiply-adds, minima, maxima, signs, all rounded to nearest. `None` for other ops, whose
/// elements are lowered separately.
pub fn lower(b: &mut Builder, op: &Op, dtype: DType, x: &[Operand]) -> Option<Operand> {
    let ty = match dtype {
        DType::F16 => Ty::F16x2,
        DType::BF16 => Ty::BF16x2,
        _ => return None,
    };
    if op.rounding() != Rounding::NearestEven {
        return None;
    }
    let nan = op.flag(Flag::PropagateNan);
    let mods = FloatMods { nan, ..FloatMods::NONE };
    Some(match op.code {
        Opcode::AddF => arithmetic(b, FloatOp::Add, ty, x),
        Opcode::SubF => arithmetic(b, FloatOp::Sub, ty, x),
        Opcode::MulF => arithmetic(b, FloatOp::Mul, ty, x),
        Opcode::Fma => b.fma(ty, x[0], x[1], x[2]),
        Opcode::MaxF => b.float(FloatOp::Max, ty, mods, x),
        Opcode::MinF => b.float(FloatOp::Min, ty, mods, x),
        Opcode::AbsF => b.fabs(ty, x[0]),
        Opcode::NegF => repr::negate_halves(b, Ty::B32, x[0]),
        _ => return None,
    })
}

/// Emits arithmetic as [`super::float::native_half`]: bf16 has only `fma` before sm_90.
fn arithmetic(b: &mut Builder, op: FloatOp, ty: Ty, x: &[Operand]) -> Operand {
    if ty == Ty::F16x2 || b.target.arch >= 90 {
        return b.float(op, ty, FloatMods::RN, &x[..2]);
    }
    const ONES: u32 = 0x3f80_3f80;
    const MINUS_ONES: u32 = 0xbf80_bf80;
    const MINUS_ZEROS: u32 = 0x8000_8000;
    match op {
        FloatOp::Add => b.fma(ty, x[0], ONES, x[1]),
        FloatOp::Sub => b.fma(ty, x[1], MINUS_ONES, x[0]),
        _ => b.fma(ty, x[0], x[1], MINUS_ZEROS),
    }
}

/// Rounds two f32 to a pair of halves, to nearest even, by one instruction.
pub fn narrow(b: &mut Builder, dtype: DType, low: Operand, high: Operand) -> Option<Operand> {
    match dtype {
        DType::F16 => Some(b.cvt_pack(Ty::F16x2, CvtRound::Rn, low, high)),
        DType::BF16 => Some(b.cvt_pack(Ty::BF16x2, CvtRound::Rn, low, high)),
        _ => None,
    }
}
