//! Epilogue shared-memory reuse: a TMA store stages its tile in a free pipeline stage.
//!
//! Where stages want all of shared memory, boxes of warps stand in one of them, and have no place of their own. It comes to the store
//! as tiles come to products: the agent that loads goes through its ring there, too, and passes the next stage on with nothing in it;
//! who multiplies takes it, and gives it back when the copy engine has read the boxes.

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::region_tree::RegionTree;
use crate::backend::ptx::schedule::ir::pipelines::{Channel, LoopNesting, WarpSpecialization};
use crate::backend::ptx::schedule::ir::tma_store::StoreSplit;
use crate::ir::OpId;

impl KernelInfo<'_> {
    /// The channel that lends a stage to the store of a kernel, if there is one alone and a ring for it: that of the loads which come last before
    /// it, since what comes next is loaded through the others.
    pub fn staging_channel(&self, roles: &WarpSpecialization, structure: &RegionTree) -> Option<Channel> {
        let mut stores = self.tma_stores.keys();
        let (&store, None) = (stores.next()?, stores.next()) else { return None };
        let block = self.op_blocks[store.index()]?;
        let alone = self.consumer_groups() == 1 && self.options.num_ctas.unwrap_or(1) == 1;
        // The agent that loads comes to the block.
        if !alone || !roles.channels.iter().any(|channel| channel.block == block) {
            return None;
        }
        let (tile, warps) = (self.warp_box_tile(store)?, self.inference.num_warps as u32);
        let place = |id: OpId| self.module.block(block).ops.iter().position(|&other| other == id);
        let lends = |last: &Channel| {
            let ring = &roles.pipelines[last.pipeline];
            let (stage_bytes, loads) = (ring.stage_bytes, Vec::new());
            let lent_to = Some(store);
            let lent = Channel {
                block,
                loads,
                stage_bytes,
                pipeline: last.pipeline,
                last_use: store,
                wait_at_acquire: true,
                staging_for: lent_to,
            };
            let mut users = roles.channels.iter().filter(|user| user.pipeline == lent.pipeline);
            let fits =
                ring.nesting == LoopNesting::Innermost && StoreSplit::for_stage(&tile, stage_bytes, warps).is_some();
            let apart = |user: &Channel| match user.block == block {
                true => place(user.last_use) < place(store),
                false => self.can_share_pipeline(user, &lent, structure),
            };
            (fits && users.all(apart)).then_some(lent)
        };
        roles.channels.iter().rev().find_map(lends)
    }
}
