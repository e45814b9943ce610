//! Constant propagation: instructions whose result is a constant become `mov`.
//!
//! The builder folds operands that are constants when it emits an instruction. This pass also folds
//! registers that hold constants: of pairs of words, of conversions, of comparisons and selections,
//! of values that reach a `mov_to`. Only registers with one definition take part, so control flow
//! does not matter: one pass in the order of the text sees each definition before its uses.

use super::super::isa::builder::fold;
use super::super::isa::emit::Function;
use super::super::isa::inst::*;
use super::definitions::{Definitions, only_result, operands};

/// Replaces each instruction whose result is a constant by a `mov`, and notes the constants.
pub(super) fn propagate(function: &mut Function, definitions: &mut Definitions) {
    for line in &mut function.lines {
        let Line::Inst(inst) = line else { continue };
        let Some(result) = only_result(inst).filter(|&reg| definitions.is_single(reg)) else { continue };
        match simplified(inst, definitions) {
            Some(Simplified::Constant(value)) => {
                let value = fold::wrap(value.into(), result.class.bits());
                let value = if result.class == RegClass::Pred { value & 1 } else { value };
                definitions.set_constant(result, value);
                if let Some(ty) = untyped(result.class).filter(|_| !matches!(inst.op, Opcode::Mov(_))) {
                    (inst.op, inst.srcs) = (Opcode::Mov(ty), vec![Operand::Imm(value).into()]);
                }
            }
            Some(Simplified::Same(operand)) => {
                if let Some(ty) = untyped(result.class) {
                    (inst.op, inst.srcs) = (Opcode::Mov(ty), vec![operand.into()]);
                }
            }
            None => {}
        }
    }
}

/// The result of an instruction that needs no computation.
enum Simplified {
    Constant(i64),
    Same(Operand),
}

/// The type of a `mov` to a register of integers or bit patterns.
fn untyped(class: RegClass) -> Option<Ty> {
    match class {
        RegClass::B16 => Some(Ty::B16),
        RegClass::B32 => Some(Ty::B32),
        RegClass::B64 => Some(Ty::B64),
        RegClass::Pred | RegClass::F32 | RegClass::F64 => None,
    }
}

/// Returns the result of an instruction if it is a constant or one of the sources.
fn simplified(inst: &Inst, definitions: &Definitions) -> Option<Simplified> {
    if let Opcode::Selp(_) = inst.op {
        let [taken, other, condition] = operands(inst)?;
        let chosen = match definitions.constant(condition) {
            Some(condition) => [other, taken][(condition & 1) as usize],
            None => return constant(inst, definitions).map(Simplified::Constant),
        };
        return Some(definitions.constant(chosen).map_or(Simplified::Same(chosen), Simplified::Constant));
    }
    constant(inst, definitions).map(Simplified::Constant)
}

/// Returns the value of an instruction if it is a constant.
fn constant(inst: &Inst, definitions: &Definitions) -> Option<i64> {
    let known = |operand: Operand| definitions.constant(operand);
    match inst.op {
        Opcode::Mov(_) => match &inst.srcs[..] {
            [Arg::One(operand)] => known(*operand),
            // `{low, high}` into a register of twice the width.
            [Arg::Vector(halves)] => {
                let [low, high] = halves[..] else { return None };
                let Operand::Reg(half) = low else { return None };
                let bits = half.class.bits();
                let low = known(low)? as u64 & (u64::MAX >> (64 - bits));
                Some(((known(high)? as u64) << bits | low) as i64)
            }
            _ => None,
        },
        Opcode::Int(op, ty) if ty != Ty::Pred => match inst.srcs.len() {
            1 => fold::constant(op, ty, known(operands::<1>(inst)?[0])?, 0),
            _ => {
                let [a, b] = operands(inst)?;
                let (x, y) = (known(a).map_or(a, Operand::Imm), known(b).map_or(b, Operand::Imm));
                match (x.as_imm(), y.as_imm()) {
                    (Some(x), Some(y)) => fold::constant(op, ty, x, y),
                    _ => fold::identity(op, ty, x, y).and_then(Operand::as_imm),
                }
            }
        },
        Opcode::Int(op, _) => match (op, inst.srcs.len()) {
            (IntOp::Not, 1) => Some(1 - (known(operands::<1>(inst)?[0])? & 1)),
            (IntOp::And | IntOp::Or | IntOp::Xor, 2) => {
                let [a, b] = operands(inst)?;
                let absorbing = i64::from(op == IntOp::Or);
                match (op, known(a), known(b)) {
                    (IntOp::And | IntOp::Or, Some(x), _) | (IntOp::And | IntOp::Or, _, Some(x)) if x == absorbing => {
                        Some(x)
                    }
                    (IntOp::And, Some(x), Some(y)) => Some(x & y),
                    (IntOp::Or, Some(x), Some(y)) => Some(x | y),
                    (_, Some(x), Some(y)) => Some(x ^ y),
                    _ => None,
                }
            }
            _ => None,
        },
        Opcode::Mad(ty) => sum_of_product(IntOp::MulLo, ty, ty, operands(inst)?.map(known)),
        Opcode::MadWide(ty) => {
            let wide = if ty.is_signed() { Ty::S64 } else { Ty::U64 };
            sum_of_product(IntOp::MulWide, ty, wide, operands(inst)?.map(known))
        }
        Opcode::MadHi(ty) => sum_of_product(IntOp::MulHi, ty, ty, operands(inst)?.map(known)),
        Opcode::Bfe(ty) => {
            let [a, position, length] = operands(inst)?.map(known);
            fold::field(ty, a?, position?, length?)
        }
        Opcode::Lop3(table) => {
            let [a, b, c, _] = operands(inst)?.map(known);
            Some(fold::three_inputs(table, a?, b?, c?))
        }
        Opcode::Setp { cmp, ty, .. } if ty.is_int() => {
            let [a, b] = operands(inst)?.map(known);
            match (cmp, b, ty) {
                // No number is below zero without a sign.
                (Cmp::Lt | Cmp::Ge, Some(0), Ty::U16 | Ty::U32 | Ty::U64) => Some(i64::from(cmp == Cmp::Ge)),
                _ => fold::comparison(cmp, ty, a?, b?).map(i64::from),
            }
        }
        Opcode::Selp(_) => {
            let [taken, other, _] = operands(inst)?.map(known);
            taken.filter(|_| taken == other)
        }
        Opcode::Cvt { dst, src, mods } if mods == CvtMods::default() => {
            let [a] = operands(inst)?;
            fold::conversion(dst, src, known(a)?)
        }
        _ => None,
    }
}

/// Returns `a * b + c` of constants.
fn sum_of_product(product: IntOp, ty: Ty, sum: Ty, [a, b, c]: [Option<i64>; 3]) -> Option<i64> {
    fold::constant(IntOp::Add, sum, fold::constant(product, ty, a?, b?)?, c?)
}
