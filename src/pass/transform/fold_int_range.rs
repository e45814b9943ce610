//! Folding by integer ranges: ops whose result the ranges determine become constants, mainly
//! comparisons.
//!
//! A maximum or minimum of disjoint ranges becomes one of its operands. An `assume` whose predicate
//! is already proved becomes its operand, for example for a view that each iteration of a loop
//! makes again.
//!
//! Most effective after `canonicalize`. Sound because a range holds at each execution of the op.
//! Kept are ops with effects, and every other `assume`, because ranges depend on it.

use crate::ir::op_table::Effect;
use crate::ir::{
    Attr, AttrKind, ConstData, Module, OpId, Opcode, Overflow, Predicate, Sign, Substitution, Type, Value,
};
use crate::pass::IntRanges;

/// Folds ops of each entry.
pub(crate) fn run(module: &mut Module) {
    for index in 0..module.entries.len() {
        let ranges = IntRanges::analyze(module, &module.entries[index]);
        let body = module.entries[index].body;
        let (mut decided, mut values) = (Vec::new(), Substitution::new());
        module.walk(body, &mut |id| {
            if let Some(bits) = decide(module, &ranges, id) {
                decided.push((id, bits));
            } else {
                let operand =
                    decided_operand(module, &ranges, id).or_else(|| redundant_assumption(module, &ranges, id));
                operand.into_iter().for_each(|operand| values.replace(module.op(id).results[0], operand));
            }
        });
        for (id, bits) in decided {
            module.make_constant(id, ConstData::Splat(bits));
        }
        values.apply(module, body);
    }
}

/// Returns the operand to which a maximum or minimum is always equal.
fn decided_operand(module: &Module, ranges: &IntRanges, id: OpId) -> Option<Value> {
    let op = module.op(id);
    if !matches!(op.code, Opcode::MaxI | Opcode::MinI) {
        return None;
    }
    let [a, b] = [op.operands[0], op.operands[1]];
    let (x, y) = (ranges.range(a)?, ranges.range(b)?);
    if op.sign() == Sign::Unsigned && (x.lo < 0 || y.lo < 0) {
        return None;
    }
    let (larger, smaller) = if x.lo >= y.hi {
        (a, b)
    } else if y.lo >= x.hi {
        (b, a)
    } else {
        return None;
    };
    Some(if op.code == Opcode::MaxI { larger } else { smaller })
}

/// Returns the operand of an `assume` whose predicate is already proved.
fn redundant_assumption(module: &Module, ranges: &IntRanges, id: OpId) -> Option<Value> {
    let op = module.op(id);
    let Some(Attr::Predicate(predicate)) = op.attr(AttrKind::Predicate).filter(|_| op.code == Opcode::Assume) else {
        return None;
    };
    let operand = op.operands[0];
    let holds = match *predicate {
        Predicate::DivBy { divisor, every: None, along: None } => {
            divisor.is_power_of_two() && ranges.divisor(operand) >= divisor
        }
        Predicate::Bounded { lower, upper } => ranges.range(operand).is_some_and(|range| {
            lower.is_none_or(|least| range.lo >= least) && upper.is_none_or(|most| range.hi <= most)
        }),
        _ => false,
    };
    holds.then_some(operand)
}

fn decide(module: &Module, ranges: &IntRanges, id: OpId) -> Option<u64> {
    let op = module.op(id);
    // Ops with an assumption are kept, since the interpreter checks them.
    let has_assumption = op.code == Opcode::Assume || op.overflow() != Overflow::None;
    let foldable = op.code.spec().effect == Effect::Pure && op.code != Opcode::Constant && !has_assumption;
    match *op.results.as_slice() {
        [result] if foldable => {
            let Type::Tile { elem, .. } = module.ty(result) else { return None };
            let bits = elem.dtype().filter(|d| d.bits() != 4)?.bits();
            ranges.constant(result).map(|value| value as u64 & (u64::MAX >> (64 - bits)))
        }
        _ => None,
    }
}
