//! Canonicalization: folds constants, simplifies identities and chains of shape ops, and removes
//! branches on constants and loops with at most one iteration. Loop-carried values that never
//! change are replaced by their initial values.
//!
//! One traversal in program order: the operands of an op are already simplified, because
//! definitions precede uses. Each rule preserves all effects and all results bit for bit, except
//! that one NaN may become another one. Unused ops remain for dead code elimination. No pass has to
//! run before.

mod control;
mod float;
pub(crate) mod int;
mod rules;

pub(crate) use control::collect_continues;
use rules::Step;

use crate::ir::op_table::Effect;
use crate::ir::{BlockId, ConstData, Module, OpId, Substitution};

/// Canonicalizes each entry.
pub(crate) fn run(module: &mut Module) {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect();
    let mut walk = Canonicalizer { module, values: Substitution::new() };
    entries.into_iter().for_each(|body| walk.block(body));
}

struct Canonicalizer<'m> {
    module: &'m mut Module,
    /// Replacements of simplified values.
    values: Substitution,
}

impl Canonicalizer<'_> {
    /// Simplifies the ops of a block in order.
    fn block(&mut self, block: BlockId) {
        let ops = std::mem::take(&mut self.module.block_mut(block).ops);
        let mut kept = Vec::with_capacity(ops.len());
        self.ops(ops, &mut kept);
        self.module.block_mut(block).ops = kept;
    }

    /// Appends the simplified ops to `out`, up to the first terminator.
    fn ops(&mut self, ops: Vec<OpId>, out: &mut Vec<OpId>) {
        for id in ops {
            self.values.apply_to(self.module, id);
            if self.module.op(id).regions.is_empty() {
                self.simple(id, out);
            } else {
                self.simplify_region_op(id, out);
            }
            // An inlined branch may contain a terminator.
            if out.last().is_some_and(|&last| self.module.op(last).code.spec().effect == Effect::Terminator) {
                return;
            }
        }
    }

    fn simple(&mut self, id: OpId, out: &mut Vec<OpId>) {
        // Each step shortens a chain by one op. The limit bounds the time.
        for _ in 0..8 {
            match rules::step(self.module, id) {
                Step::Keep => break,
                Step::Use(value) => {
                    let result = self.module.op(id).results[0];
                    self.values.replace(result, value);
                    return;
                }
                Step::Splat(bits) => {
                    self.module.make_constant(id, ConstData::Splat(bits));
                    break;
                }
                Step::Change(operands, attrs) => {
                    let op = self.module.op_mut(id);
                    op.operands = operands;
                    op.attrs = attrs;
                }
            }
        }
        out.push(id);
    }
}
