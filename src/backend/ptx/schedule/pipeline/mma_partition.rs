//! MMA partition: the instruction of each MMA, and the rows and columns per warp group.

use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{BlockId, OpId};

impl KernelInfo<'_> {
    /// Of each MMA of a kernel, in the order of the program, its instruction and what of it each
    /// group of warps does.
    pub fn mma_partitions(&self, body: BlockId) -> Vec<(OpId, String)> {
        let mut all = Vec::new();
        self.module.walk(body, &mut |id| {
            if let Some(Ok(plan)) = self.inference.products.get(&id) {
                all.push((id, plan.describe()));
            }
        });
        all
    }
}
