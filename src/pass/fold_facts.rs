//! Integer ops whose value the facts decide become constants: comparisons of known ranges above all.
//!
//! Runs best after canonicalisation. Sound because a fact holds whenever the op is computed; ops with
//! effects and `assume` stay, the former for their effects, the latter because facts rest on them.

use super::Facts;
use crate::ir::table::Effect;
use crate::ir::{ConstData, Module, OpId, Opcode, Type};

/// Folds what facts decide in every entry.
pub(super) fn run(module: &mut Module) {
    for index in 0..module.entries.len() {
        let facts = Facts::analyze(module, &module.entries[index]);
        let mut decided: Vec<(OpId, u64)> = Vec::new();
        module.walk(module.entries[index].body, &mut |id| {
            if let Some(bits) = decide(module, &facts, id) {
                decided.push((id, bits));
            }
        });
        for (id, bits) in decided {
            module.make_constant(id, ConstData::Splat(bits));
        }
    }
}

fn decide(module: &Module, facts: &Facts, id: OpId) -> Option<u64> {
    let op = module.op(id);
    let foldable = op.code.spec().effect == Effect::Pure && !matches!(op.code, Opcode::Constant | Opcode::Assume);
    match *op.results.as_slice() {
        [result] if foldable => {
            let Type::Tile { elem, .. } = module.ty(result) else { return None };
            let bits = elem.dtype().filter(|d| d.bits() != 4)?.bits();
            facts.constant(result).map(|value| value as u64 & (u64::MAX >> (64 - bits)))
        }
        _ => None,
    }
}
