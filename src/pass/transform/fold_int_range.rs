//! Integer ops whose value the facts decide become constants: comparisons of known ranges above all. A maximum or
//! minimum that they decide becomes one of its operands, and so does an `assume` of what is known anyway (of a view that is made again in each round of a
//! loop, say, which then need not be).
//!
//! Runs best after canonicalisation. Sound because a fact holds whenever the op is computed; ops with
//! effects and every other `assume` stay, the former for their effects, the latter because facts rest on them.

use crate::ir::op_table::Effect;
use crate::ir::{
    Attr, AttrKind, ConstData, Module, OpId, Opcode, Overflow, Predicate, Sign, Substitution, Type, Value,
};
use crate::pass::Facts;

/// Folds what facts decide in every entry.
pub(crate) fn run(module: &mut Module) {
    for index in 0..module.entries.len() {
        let facts = Facts::analyze(module, &module.entries[index]);
        let body = module.entries[index].body;
        let (mut decided, mut values) = (Vec::new(), Substitution::new());
        module.walk(body, &mut |id| {
            if let Some(bits) = decide(module, &facts, id) {
                decided.push((id, bits));
            } else {
                let operand = larger_or_smaller(module, &facts, id).or_else(|| promised_twice(module, &facts, id));
                operand.into_iter().for_each(|operand| values.replace(module.op(id).results[0], operand));
            }
        });
        for (id, bits) in decided {
            module.make_constant(id, ConstData::Splat(bits));
        }
        values.apply(module, body);
    }
}

/// The operand that a maximum or minimum always is.
fn larger_or_smaller(module: &Module, facts: &Facts, id: OpId) -> Option<Value> {
    let op = module.op(id);
    if !matches!(op.code, Opcode::MaxI | Opcode::MinI) {
        return None;
    }
    let [a, b] = [op.operands[0], op.operands[1]];
    let (x, y) = (facts.range(a)?, facts.range(b)?);
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

/// The operand of a promise that says nothing new.
fn promised_twice(module: &Module, facts: &Facts, id: OpId) -> Option<Value> {
    let op = module.op(id);
    let Some(Attr::Predicate(predicate)) = op.attr(AttrKind::Predicate).filter(|_| op.code == Opcode::Assume) else {
        return None;
    };
    let operand = op.operands[0];
    let holds = match *predicate {
        Predicate::DivBy { divisor, every: None, along: None } => {
            divisor.is_power_of_two() && facts.divisor(operand) >= divisor
        }
        Predicate::Bounded { lower, upper } => facts.range(operand).is_some_and(|range| {
            lower.is_none_or(|least| range.lo >= least) && upper.is_none_or(|most| range.hi <= most)
        }),
        _ => false,
    };
    holds.then_some(operand)
}

fn decide(module: &Module, facts: &Facts, id: OpId) -> Option<u64> {
    let op = module.op(id);
    // What states a promise stays, for the interpreter to check.
    let promises = op.code == Opcode::Assume || op.overflow() != Overflow::None;
    let foldable = op.code.spec().effect == Effect::Pure && op.code != Opcode::Constant && !promises;
    match *op.results.as_slice() {
        [result] if foldable => {
            let Type::Tile { elem, .. } = module.ty(result) else { return None };
            let bits = elem.dtype().filter(|d| d.bits() != 4)?.bits();
            facts.constant(result).map(|value| value as u64 & (u64::MAX >> (64 - bits)))
        }
        _ => None,
    }
}
