//! MMA partition: the instruction of each MMA, and the rows and columns per warp group.

use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::OpId;

impl KernelInfo<'_> {
    /// Of each MMA of a kernel, in the order of the program, its instruction and what of it each
    /// group of warps does.
    pub fn mma_partitions(&self) -> Vec<(OpId, String)> {
        let describe = |id| Some((id, self.inference.products.get(&id)?.as_ref().ok()?.describe()));
        self.regions.ops().iter().filter_map(|&id| describe(id)).collect()
    }
}
