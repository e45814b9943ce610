//! Rewrites of single defects: see the table of the folder.

use super::super::isa::builder::fold;
use super::super::isa::emit::Function;
use super::super::isa::inst::*;
use super::definitions::{Definitions, bank, only_result, operands};
use crate::util::sort;

/// Replaces operations with a constant that leaves the other operand as it is, and unsigned
/// comparisons with zero.
///
/// Symptom: ptxas treats an unsigned `max` with 0 together with a signed `min` with 0 as a clamp to
/// 0. An unsigned comparison with zero that selects is such a `max`, an equality is not.
pub(super) fn remove_trivial(function: &mut Function, definitions: &Definitions) {
    for line in &mut function.lines {
        let Line::Inst(inst) = line else { continue };
        let Some([a, b]) = operands(inst) else { continue };
        let [x, y] = [a, b].map(|operand| definitions.constant(operand).map_or(operand, Operand::Imm));
        match inst.op {
            Opcode::Int(op @ (IntOp::Min | IntOp::Max), ty) => {
                if let Some(same) = fold::identity(op, ty, x, y) {
                    let ty = match ty.bits() {
                        16 => Ty::B16,
                        32 => Ty::B32,
                        _ => Ty::B64,
                    };
                    (inst.op, inst.srcs) = (Opcode::Mov(ty), vec![same.into()]);
                }
            }
            Opcode::Setp { cmp, ty, ftz } if matches!(ty, Ty::U16 | Ty::U32 | Ty::U64) => {
                let equality = match (cmp, x, y) {
                    (Cmp::Gt, _, Operand::Imm(0)) | (Cmp::Lt, Operand::Imm(0), _) => Cmp::Ne,
                    (Cmp::Le, _, Operand::Imm(0)) | (Cmp::Ge, Operand::Imm(0), _) => Cmp::Eq,
                    _ => continue,
                };
                inst.op = Opcode::Setp { cmp: equality, ty, ftz };
            }
            _ => {}
        }
    }
}

/// Merges constant factors of 64-bit products: `(x * C) * D` becomes `x * (C * D)`.
///
/// Symptom: ptxas merges the factors where a sum follows, and keeps the low 32 bits of their
/// product. A register with several definitions, such as the result of a masked load, is copied
/// where the first product reads it.
pub(super) fn merge_factors(function: &mut Function, definitions: &Definitions) {
    let mut copies: Vec<(usize, Inst)> = Vec::new();
    for index in 0..function.lines.len() {
        let Line::Inst(inst) = &function.lines[index] else { continue };
        let Some((source, factor)) = product(inst, definitions) else { continue };
        let Some((line, inner)) = definitions.definition(function, source) else { continue };
        let Some((inner_source, inner_factor)) = product(inner, definitions).or_else(|| shift(inner, definitions))
        else {
            continue;
        };
        let Operand::Reg(variable) = inner_source else { continue };
        if matches!(inner.op, Opcode::Mad(_)) {
            continue;
        }
        let loc = inner.loc;
        let variable = if definitions.is_single(variable) {
            variable
        } else {
            let copy = Reg { class: RegClass::B64, id: function.registers[3] };
            function.registers[3] += 1;
            let (op, srcs) = (Opcode::Mov(Ty::B64), vec![variable.into()]);
            copies.push((line, Inst { guard: None, op, dsts: vec![copy.into()], srcs, loc }));
            copy
        };
        let factor = Operand::Imm(factor.wrapping_mul(inner_factor));
        let Line::Inst(inst) = &mut function.lines[index] else { unreachable!("the line is an instruction") };
        (inst.srcs[0], inst.srcs[1]) = (variable.into(), factor.into());
    }
    if copies.is_empty() {
        return;
    }
    sort::by_key(&mut copies, |(line, _)| *line);
    let mut copies = copies.into_iter().peekable();
    for (index, line) in std::mem::take(&mut function.lines).into_iter().enumerate() {
        while let Some((_, copy)) = copies.next_if(|(line, _)| *line == index) {
            function.lines.push(Line::Inst(copy));
        }
        function.lines.push(line);
    }
}

/// Returns the variable and the constant factor of a 64-bit product.
fn product(inst: &Inst, definitions: &Definitions) -> Option<(Operand, i64)> {
    let (Opcode::Int(IntOp::MulLo, ty) | Opcode::Mad(ty)) = inst.op else { return None };
    let ([Arg::One(a), Arg::One(b), ..], 64, None) = (&inst.srcs[..], ty.bits(), inst.guard) else { return None };
    match (definitions.constant(*a), definitions.constant(*b)) {
        (None, Some(factor)) => Some((*a, factor)),
        (Some(factor), None) => Some((*b, factor)),
        _ => None,
    }
}

/// Returns the operand of a 64-bit left shift by a constant, and the factor that the shift is.
fn shift(inst: &Inst, definitions: &Definitions) -> Option<(Operand, i64)> {
    let (Opcode::Int(IntOp::Shl, ty), None) = (inst.op, inst.guard) else { return None };
    let [a, amount] = operands(inst)?;
    let amount = definitions.constant(amount).filter(|amount| ty.bits() == 64 && (0..64).contains(amount))?;
    definitions.constant(a).is_none().then_some((a, 1i64.wrapping_shl(amount as u32)))
}

/// Rewrites 32-bit `C - x` that a minimum, maximum or selection reads as `!x + (C + 1)`.
///
/// Symptom: ptxas merges difference and maximum into one instruction and swaps minuend and
/// subtrahend, where it learns the minuend late.
pub(super) fn rewrite_minuends(function: &mut Function, definitions: &Definitions) {
    let minuend = |inst: &Inst| -> Option<i64> {
        let Opcode::Int(IntOp::Sub, Ty::S32 | Ty::U32 | Ty::B32) = inst.op else { return None };
        let [a, b] = operands(inst)?;
        only_result(inst).filter(|_| definitions.constant(b).is_none())?;
        definitions.constant(a)
    };
    if !function.lines.iter().any(|line| matches!(line, Line::Inst(inst) if minuend(inst).is_some())) {
        return;
    }
    let mut compared = vec![false; function.registers[2] as usize];
    for line in &function.lines {
        let Line::Inst(inst) = line else { continue };
        if let Opcode::Int(IntOp::Min | IntOp::Max, _) | Opcode::Selp(_) = inst.op {
            for arg in &inst.srcs {
                if let Arg::One(Operand::Reg(reg)) = arg
                    && bank(*reg) == 2
                {
                    compared[reg.id as usize] = true;
                }
            }
        }
    }
    let lines = std::mem::take(&mut function.lines);
    for line in lines {
        if let Line::Inst(inst) = &line
            && let (Some(minuend), Some(result)) = (minuend(inst), only_result(inst))
            && compared[result.id as usize]
        {
            let complement = Reg { class: RegClass::B32, id: function.registers[2] };
            function.registers[2] += 1;
            let [_, subtrahend] = operands(inst).expect("a difference has two operands");
            let sum = Operand::Imm(fold::wrap(i128::from(minuend) + 1, 32));
            let part = |op, dst: Reg, srcs: Vec<Arg>| {
                Line::Inst(Inst { guard: None, op, dsts: vec![dst.into()], srcs, loc: inst.loc })
            };
            function.lines.push(part(Opcode::Int(IntOp::Not, Ty::B32), complement, vec![subtrahend.into()]));
            let sources = vec![complement.into(), sum.into()];
            function.lines.push(part(Opcode::Int(IntOp::Add, Ty::S32), result, sources));
            continue;
        }
        function.lines.push(line);
    }
}
