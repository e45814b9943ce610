//! Traversal of all blocks of a kernel, for the insertion of ops.

use crate::ir::{BlockId, Module, OpId};

/// Rebuilds the op list of each block, with the ops that `rewrite` inserts before each op.
pub(super) fn rewrite_blocks(
    module: &mut Module,
    block: BlockId,
    rewrite: &mut dyn FnMut(&mut Module, OpId, &mut Vec<OpId>),
) {
    let ops = std::mem::take(&mut module.block_mut(block).ops);
    let mut out = Vec::with_capacity(ops.len());
    for id in ops {
        for region in module.op(id).regions.clone() {
            rewrite_blocks(module, region, rewrite);
        }
        rewrite(module, id, &mut out);
    }
    module.block_mut(block).ops = out;
}
