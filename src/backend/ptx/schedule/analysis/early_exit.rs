//! Early exits: branches that end the kernel, a loop or an iteration before the last op.
//!
//! All threads of a CTA decide an exit alike. The producer executes the exits that precede its
//! loads, and those of the loops around them. So each role leaves at the same position. A stage
//! must not be in use there: its TMA loads would complete after the end of the CTA.

use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{BlockId, OpId, Opcode};

impl KernelInfo<'_> {
    /// Returns true if a region waits for the preceding kernel. The producer does not execute it.
    pub fn waits_for_kernel_in_region(&self, body: BlockId) -> bool {
        let wait = |&id: &OpId| self.module.op(id).code == Opcode::GdcWait && self.regions.block_of(id) != Some(body);
        self.regions.ops().iter().any(wait)
    }

    /// Returns true if an op after `first`, up to `last`, can leave their block, or the kernel.
    pub fn has_exit_between(&self, block: BlockId, first: OpId, last: OpId) -> bool {
        let ops = self.module.block(block).ops.iter().copied();
        let mut after = ops.skip_while(|&id| id != first).skip(1);
        let leaves = |id: OpId| {
            let is_return = |&inner: &OpId| self.module.op(inner).code == Opcode::Return;
            let exits = self.module.op(id).code == Opcode::If && self.regions.has_exit(id);
            exits || self.regions.nested(id).iter().any(is_return)
        };
        let mut found = false;
        after.any(|id| {
            found |= leaves(id);
            found || id == last
        }) && found
    }

    /// Returns the regions' ops whose `return` the producer of a load executes: those that precede
    /// the load, and those in a loop around it.
    pub fn returns_before(&self, load: OpId) -> Vec<OpId> {
        let (module, regions) = (self.module, &self.regions);
        let mut before = true;
        let mut owners = Vec::new();
        for &id in regions.ops() {
            before &= id != load;
            if module.op(id).code != Opcode::Return {
                continue;
            }
            let Some(owner) = regions.block_of(id).and_then(|block| regions.parent(block)) else { continue };
            let around = |&outer: &OpId| {
                module.op(outer).code.is_loop() && regions.contains(outer, id) && regions.contains(outer, load)
            };
            if before || regions.ops().iter().any(around) {
                owners.push(owner);
            }
        }
        owners
    }

    /// Returns true if a branch or a loop can end the kernel.
    pub fn has_early_return(&self) -> bool {
        let is_return = |&&id: &&OpId| self.module.op(id).code == Opcode::Return;
        self.regions.ops().iter().filter(is_return).nth(1).is_some()
    }
}
