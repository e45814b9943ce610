//! Rules of arithmetic, comparisons, select and pointer offsets: one rule per class, with the
//! allowed roundings.

use super::rule::{OpRule, Rule, demand};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, Elem, Flag, Opcode, Overflow, Rounding, Sign, Type};

const DIRECTED: &[Rounding] = &[Rounding::NearestEven, Rounding::Zero, Rounding::NegInf, Rounding::PosInf];

/// Checks float arithmetic: one base float type, and the modes of the op.
pub(super) fn float(rule: &OpRule) -> Rule {
    let op = rule.op;
    rule.floats(op.operands[0])?;
    rule.one_type(op.operands.iter().chain(&op.results).copied())?;
    let (dtype, _) = rule.floats(rule.result())?;
    demand(!op.flag(Flag::FlushToZero) || dtype == DType::F32, || {
        format!("flush_to_zero is for f32 only, not {}", rule.text(rule.result()))
    })?;
    let Some(Attr::Rounding(mode)) = op.attr(AttrKind::Rounding) else { return Ok(()) };
    let only_f32: &[Rounding] = match op.code {
        Opcode::DivF => &[Rounding::Approx, Rounding::Full],
        Opcode::Sqrt | Opcode::Exp | Opcode::Tanh | Opcode::Sin | Opcode::Cos | Opcode::Log | Opcode::Log2 => {
            &[Rounding::Approx]
        }
        _ => &[],
    };
    let general: &[Rounding] = match op.code {
        Opcode::Exp | Opcode::Tanh => &[Rounding::Full],
        Opcode::Sin | Opcode::Cos | Opcode::Log | Opcode::Log2 => &[],
        _ => DIRECTED,
    };
    let allowed = general.contains(mode) || (only_f32.contains(mode) && dtype == DType::F32);
    demand(allowed, || format!("rounding {} is not defined for {}", mode.name(), rule.text(rule.result())))
}

/// Checks integer arithmetic: one integer type.
pub(super) fn int(rule: &OpRule) -> Rule {
    let op = rule.op;
    rule.ints(op.operands[0])?;
    rule.one_type(op.operands.iter().chain(&op.results).copied())?;
    match op.code {
        Opcode::DivI => {
            let mode = op.rounding();
            demand(matches!(mode, Rounding::Zero | Rounding::NegInf | Rounding::PosInf), || {
                format!("rounding {} of an integer division: zero, negative_inf or positive_inf", mode.name())
            })?;
            demand(mode != Rounding::NegInf || op.sign() == Sign::Signed, || {
                "an unsigned division that rounds to negative_inf: use zero".to_string()
            })
        }
        Opcode::NegI => demand(op.overflow() != Overflow::Nuw, || {
            "a negation without unsigned wrap is of 0 only: no_unsigned_wrap is refused".to_string()
        }),
        _ => Ok(()),
    }
}

/// Checks comparisons: operands of one type, and an i1 result of the same shape.
pub(super) fn comparison(rule: &OpRule) -> Rule {
    let [lhs, rhs] = [rule.op.operands[0], rule.op.operands[1]];
    let (_, shape) = if rule.op.code == Opcode::CmpF { rule.floats(lhs)? } else { rule.ints(lhs)? };
    rule.same(lhs, rhs)?;
    rule.has_type(rule.result(), &Type::tile(DType::I1, shape))
}

pub(super) fn select(rule: &OpRule) -> Rule {
    let [cond, yes, no] = [rule.op.operands[0], rule.op.operands[1], rule.op.operands[2]];
    let (elem, shape) = rule.tile(yes)?;
    demand(elem != Elem::Num(DType::F4E2M1FN), || rule.expected(yes, "a tile of anything but f4E2M1FN"))?;
    rule.one_type([yes, no, rule.result()])?;
    rule.has_type(cond, &Type::tile(DType::I1, shape))
}

pub(super) fn powi(rule: &OpRule) -> Rule {
    let [base, exponent] = [rule.op.operands[0], rule.op.operands[1]];
    rule.floats(base)?;
    rule.same(base, rule.result())?;
    rule.same_shape(base, exponent)?;
    let (dtype, _) = rule.ints(exponent)?;
    demand(dtype != DType::I64, || rule.expected(exponent, "a tile of i1, i8, i16 or i32"))
}

pub(super) fn inline_ptx(rule: &OpRule) -> Rule {
    for &operand in &rule.op.operands {
        rule.same_shape(operand, rule.result())?;
    }
    // The first operand in place of the semantics: an op for code generation alone.
    if rule.op.operands[3] == rule.op.operands[0] {
        return Ok(());
    }
    rule.same(rule.op.operands[3], rule.result())
}

pub(super) fn offset(rule: &OpRule) -> Rule {
    let [ptr, offset] = [rule.op.operands[0], rule.op.operands[1]];
    rule.pointers(ptr)?;
    rule.ints(offset)?;
    rule.same_shape(ptr, offset)?;
    rule.same(ptr, rule.result())
}
