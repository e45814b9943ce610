//! From our semantics to those of Tile IR: what we define and Tile IR leaves undefined becomes ops
//! with the defined result, on a copy of the module before it is written.
//!
//! Nothing is added where facts prove that the undefined case cannot happen. Of tile indices outside
//! of an array, the common ones need nothing either: an index that is a block id or the counter of a
//! loop over tiles is inside whenever grid and extents fit together, which the host checks at each
//! launch ([`Limit`]) at the price of a few integer operations. What is left gets an `if`.

mod arithmetic;
mod bounds;
mod padding;

#[cfg(test)]
mod tests;

pub use bounds::{Bound, Limit};

use crate::ir::Module;
use crate::pass::Facts;

/// Makes the undefined cases of a verified module defined. Gives what a launch must check before it
/// runs the result.
pub fn legalize(module: &mut Module) -> Vec<Limit> {
    let mut limits = Vec::new();
    for entry in module.entries.clone() {
        let facts = Facts::analyze(module, &entry);
        limits.extend(bounds::run(module, &entry, &facts));
        arithmetic::run(module, &entry, &facts);
        padding::run(module, &entry);
    }
    limits
}

/// Takes a block's ops apart and puts them together again with what `rewrite` adds before each.
fn rewrite_blocks(
    module: &mut Module,
    block: crate::ir::BlockId,
    rewrite: &mut impl FnMut(&mut Module, crate::ir::OpId, &mut Vec<crate::ir::OpId>),
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
