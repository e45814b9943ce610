//! Early exits: which loops and kernels can leave their body before its end.

use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{BlockId, OpId, Opcode};

impl KernelInfo<'_> {
    /// Returns true if an iteration of this body may end before its end.
    pub fn ends_early(&self, body: BlockId) -> bool {
        let branch = |&id: &OpId| self.module.op(id).code == Opcode::If && self.has_exit(id);
        self.module.block(body).ops.iter().any(branch)
    }

    /// Returns true if a branch leaves its loop, an iteration of it, or the kernel.
    fn has_exit(&self, branch: OpId) -> bool {
        self.module.op(branch).regions.iter().any(|&region| {
            self.module.block(region).ops.iter().any(|&id| match self.module.op(id).code {
                Opcode::Break | Opcode::Continue | Opcode::Return => true,
                Opcode::If => self.has_exit(id),
                _ => false,
            })
        })
    }

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
                amid |= left && self.contains_mma(id);
                left |= loaded && op.code == Opcode::If && self.has_exit(id);
                // Where the kernel ends early its last op is not a `return` of the entry. And a
                // branch in which it waits for another kernel is none that those warps go through.
                amid |= matches!(op.code, Opcode::Return | Opcode::GdcWait) && block != body;
                blocks.extend(&op.regions);
            }
        }
        amid
    }

    fn contains_mma(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        let mut found = op.code.is_mma();
        for &region in &op.regions {
            self.module.walk(region, &mut |id| {
                found |= self.module.op(id).code.is_mma();
            });
        }
        found
    }
}
