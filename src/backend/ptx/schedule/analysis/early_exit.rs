//! Early exits: kernels that can leave a body before its end.

use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{BlockId, Opcode};

impl KernelInfo<'_> {
    /// Returns true if a branch can leave a loop between a load and an MMA, or if the kernel can
    /// end early. The producer would need to know which loads the consumers then skip.
    pub fn has_early_exit(&self, body: BlockId) -> bool {
        let mut exits_early = false;
        let mut blocks = vec![body];
        while let Some(block) = blocks.pop() {
            let (mut loaded, mut left) = (false, false);
            for &id in &self.module.block(block).ops {
                let op = self.module.op(id);
                loaded |= op.code == Opcode::LoadView;
                exits_early |= left && self.regions.has_mma(id);
                left |= loaded && op.code == Opcode::If && self.regions.has_exit(id);
                // A `return` outside of the body of the entry ends the kernel early. The producer
                // does not execute a branch that waits for another kernel.
                exits_early |= matches!(op.code, Opcode::Return | Opcode::GdcWait) && block != body;
                blocks.extend(&op.regions);
            }
        }
        exits_early
    }
}
