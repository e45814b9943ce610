//! Early exits: which kernels can leave a body before its end.

use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{BlockId, Opcode};

impl KernelInfo<'_> {
    /// Is there an exit between a load and the MMA that it may feed, or out of the kernel? There
    /// the warps that load would have to know what the others have left undone.
    pub fn has_inner_exit(&self, body: BlockId) -> bool {
        let mut amid = false;
        let mut blocks = vec![body];
        while let Some(block) = blocks.pop() {
            let (mut loaded, mut left) = (false, false);
            for &id in &self.module.block(block).ops {
                let op = self.module.op(id);
                loaded |= op.code == Opcode::LoadView;
                amid |= left && self.regions.has_mma(id);
                left |= loaded && op.code == Opcode::If && self.regions.has_exit(id);
                // Where the kernel ends early its last op is not a `return` of the entry. And a
                // branch in which it waits for another kernel is none that those warps go through.
                amid |= matches!(op.code, Opcode::Return | Opcode::GdcWait) && block != body;
                blocks.extend(&op.regions);
            }
        }
        amid
    }
}
