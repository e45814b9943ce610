//! Canonicalisation: constants are folded, identities and chains of shape ops collapse, branches on
//! constants and loops that run never or once dissolve, and loop-carried values that never change are
//! taken from outside.
//!
//! Nothing has to run before. One walk in program order: when an op is reached, its operands are in
//! their final form, because definitions precede uses. Sound because each rule keeps the value of
//! every result, bit by bit (NaN for NaN in floats), and every effect in its place. What becomes unused
//! stays for dead code elimination.

mod control;
mod float;
pub(crate) mod int;
mod rules;

pub(crate) use control::continues;
use rules::Step;

use crate::ir::op_table::Effect;
use crate::ir::{BlockId, ConstData, Module, OpId, Substitution};

/// Canonicalises every entry.
pub(crate) fn run(module: &mut Module) {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect();
    let mut walk = Walk { module, values: Substitution::new() };
    entries.into_iter().for_each(|body| walk.block(body));
}

struct Walk<'m> {
    module: &'m mut Module,
    /// What stands for values that have been simplified away.
    values: Substitution,
}

impl Walk<'_> {
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
                self.structured(id, out);
            }
            // A branch that dissolved may have brought one along.
            if out.last().is_some_and(|&last| self.module.op(last).code.spec().effect == Effect::Terminator) {
                return;
            }
        }
    }

    fn simple(&mut self, id: OpId, out: &mut Vec<OpId>) {
        // Each step shortens a chain; chains of chains need a few.
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
