//! Epilogue shared-memory reuse: a TMA store stages its tile in a free pipeline stage.
//!
//! If stages need all of shared memory, the boxes of warps have no buffer of their own. At the
//! position of the store the producer acquires the next stage of its pipeline and passes it on
//! without a load. The consumer advances to that stage, and releases it after TMA has read the
//! boxes.

use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::{Channel, LoopNesting, WarpSpecialization};
use crate::backend::ptx::schedule::ir::tma_store::StoreSplit;
use crate::ir::OpId;

impl KernelInfo<'_> {
    /// Returns the channel whose stage is the staging buffer of the only TMA store of a kernel.
    ///
    /// Its pipeline is that of the last loads before the store, since the next loads use the other
    /// pipelines. A kernel that can end early has none: the producer executes no exit after its
    /// loads.
    pub fn staging_channel(&self, warp_spec: &WarpSpecialization) -> Option<Channel> {
        if !self.is_enabled(Optimization::EpilogueSmemReuse) || self.has_early_return() {
            return None;
        }
        let mut stores = self.tma_stores.keys();
        let (&store, None) = (stores.next()?, stores.next()) else { return None };
        let block = self.regions.block_of(store)?;
        let is_single_group = self.consumer_groups() == 1 && self.options.num_ctas.unwrap_or(1) == 1;
        // The producer executes the block.
        if !is_single_group || !warp_spec.channels.iter().any(|channel| channel.block == block) {
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
            let is_disjoint = |user: &Channel| match user.block == block {
                true => position(user.last_use) < position(store),
                false => self.can_share_pipeline(user, &staging),
            };
            (fits && users.all(is_disjoint)).then_some(staging)
        };
        warp_spec.channels.iter().rev().find_map(staging_in)
    }
}
