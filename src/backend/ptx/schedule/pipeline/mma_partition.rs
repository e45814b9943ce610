//! MMA partition: the instruction of each MMA, and the rows and columns per warp group.

use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::OpId;
use crate::util::collect::CollectVec as _;

impl KernelInfo<'_> {
    /// Returns the instruction of each MMA, with the rows and columns of each warp group, in
    /// program order.
    pub fn mma_partitions(&self) -> Vec<(OpId, String)> {
        let describe = |id| Some((id, self.inference.mma_plans.get(&id)?.as_ref().ok()?.describe()));
        self.regions.ops().iter().filter_map(|&id| describe(id)).collect_vec()
    }
}
