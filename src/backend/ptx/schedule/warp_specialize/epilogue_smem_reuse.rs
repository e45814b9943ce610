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
    pub fn staging_channel(&self, warp_spec: &WarpSpecialization, region_tree: &RegionTree) -> Option<Channel> {
        let mut stores = self.tma_stores.keys();
        let (&store, None) = (stores.next()?, stores.next()) else { return None };
        let block = self.op_blocks[store.index()]?;
        let alone = self.consumer_groups() == 1 && self.options.num_ctas.unwrap_or(1) == 1;
        // The agent that loads comes to the block.
        if !alone || !warp_spec.channels.iter().any(|channel| channel.block == block) {
            return None;
        }
        let (tile, warps) = (self.warp_box_tile(store)?, self.inference.num_warps as u32);
        let position = |id: OpId| self.module.block(block).ops.iter().position(|&other| other == id);
        let staging_in = |last: &Channel| {
            let pipeline = &warp_spec.pipelines[last.pipeline];
            let (stage_bytes, loads) = (pipeline.stage_bytes, Vec::new());
            let staging_for = Some(store);
            let staging = Channel {
                block,
                loads,
                stage_bytes,
                pipeline: last.pipeline,
                last_use: store,
                wait_at_acquire: true,
                staging_for,
            };
            let mut users = warp_spec.channels.iter().filter(|user| user.pipeline == staging.pipeline);
            let fits = pipeline.nesting == LoopNesting::Innermost
                && StoreSplit::for_stage(&tile, stage_bytes, warps).is_some();
            let apart = |user: &Channel| match user.block == block {
                true => position(user.last_use) < position(store),
                false => self.can_share_pipeline(user, &staging, region_tree),
            };
            (fits && users.all(apart)).then_some(staging)
        };
        warp_spec.channels.iter().rev().find_map(staging_in)
    }
}
