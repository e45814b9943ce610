//! Instructions of PTX in a kernel: what they mean, for back ends that do not know them; and without that, for the one
//! that does.
//!
//! Whoever writes such an op says what it computes, as ops of Tile IR: its last operand. The op is sound wherever its
//! meaning is, so that either may stand for it.

use crate::ir::{BlockId, Module, OpId, Opcode, Substitution};

/// The module with every such op replaced by its meaning, if it has any.
pub(crate) fn as_meant(module: &Module) -> Option<Module> {
    let body = module.entries.first()?.body;
    if inline_ops(module, body).is_empty() {
        return None;
    }
    let mut module = module.clone();
    let mut values = Substitution::new();
    drop_ops(&mut module, body, &mut values);
    values.apply(&mut module, body);
    Some(module)
}

fn inline_ops(module: &Module, body: BlockId) -> Vec<OpId> {
    let mut found = Vec::new();
    module.walk(body, &mut |id| found.extend((module.op(id).code == Opcode::InlinePtx).then_some(id)));
    found
}

fn drop_ops(module: &mut Module, block: BlockId, values: &mut Substitution) {
    let mut ops = std::mem::take(&mut module.block_mut(block).ops);
    ops.retain(|&id| {
        let op = module.op(id).clone();
        for &region in &op.regions {
            drop_ops(module, region, values);
        }
        if op.code == Opcode::InlinePtx {
            values.replace(op.results[0], op.operands[3]);
        }
        op.code != Opcode::InlinePtx
    });
    module.block_mut(block).ops = ops;
}

/// The module in which nothing is computed for meanings alone, if it has such ops: their last operand is one of the
/// others, which a verifier would not let pass.
pub(crate) fn without_meanings(module: &Module) -> Option<Module> {
    let body = module.entries.first()?.body;
    let found = inline_ops(module, body);
    if found.is_empty() {
        return None;
    }
    let mut module = module.clone();
    for id in found {
        let first = module.op(id).operands[0];
        module.op_mut(id).operands[3] = first;
    }
    crate::pass::tidy(&mut module);
    Some(module)
}
