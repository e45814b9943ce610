//! Inline PTX ops: their replacement by their Tile IR semantics, and the removal of these
//! semantics.
//!
//! The last operand of such an op is an equivalent value, computed by Tile IR ops that the user
//! provides. Back ends without inline PTX use that value. The ptx back end removes its computation.

use crate::ir::{BlockId, Module, OpId, Opcode, Substitution};

/// Replaces each inline PTX op by its semantics. Returns `None` if the module has no such op.
pub(crate) fn expand_inline_ptx(module: &Module) -> Option<Module> {
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

/// Removes the computations that only define the semantics of inline PTX ops. Returns `None` if the
/// module has no such op. The last operand becomes a copy of the first one: such an op has no
/// semantics.
pub(crate) fn strip_inline_ptx_semantics(module: &Module) -> Option<Module> {
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
