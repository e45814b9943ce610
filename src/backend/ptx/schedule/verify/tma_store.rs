//! Verifies TMA stores: boxes cover the tile once, buffers are disjoint.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::VerifyResult;
use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::layout_inference::stored;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::Channel;
use crate::backend::ptx::schedule::ir::program::Schedule;
use crate::backend::ptx::schedule::ir::tma_store::{StagingBuffer, StoreSplit, TmaStore};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;
use crate::ir::OpId;
use crate::layout::Layout;
use crate::util::sort;

impl KernelInfo<'_> {
    /// Verifies all TMA stores: boxes cover the tile of each store once, no other op accesses its
    /// array, and staging buffers are reserved and do not overlap.
    pub fn verify_tma_stores(&self, schedule: &Schedule) -> VerifyResult {
        let tma_stores: FxHashSet<OpId> = schedule.tma_stores().map(|tma_store| tma_store.op).collect();
        if tma_stores.is_empty() {
            return Ok(());
        }
        let others = self.arrays_accessed_by_threads(&|id| tma_stores.contains(&id));
        let others = others.ok_or("TMA stores what threads may access")?;
        let mut buffers: Vec<Buffer> = Vec::new();
        for tma_store in schedule.tma_stores() {
            let fault = |what: &str| Err(format!("op {}: {what}", tma_store.op.index()));
            if self.store_exclusion(tma_store.op).is_some() {
                return fault("TMA cannot execute this op");
            }
            let root = self.stored_array(tma_store.op);
            if others.contains(&root) {
                return fault("others access the array");
            }
            let layout = &schedule.layouts.get(tma_store.layout.0 as usize);
            match layout.map(|layout| self.verify_boxes(tma_store, layout)) {
                Some(Ok(())) => {}
                Some(Err(problem)) => return fault(&problem),
                None => return fault("there is no such layout"),
            }
            let Some(staging) = &tma_store.staging else { continue };
            if schedule.tma_stores().filter(|other| self.stored_array(other.op) == root).count() > 1 {
                return fault("warps store without waits, and another op stores to the array");
            }
            self.verify_staging_buffer(schedule, tma_store, staging).or_else(|problem| fault(&problem))?;
            if staging.channel.is_some() {
                continue;
            }
            if buffers.iter().any(|other| other.overlaps(staging.buffer)) {
                return fault("staging buffers overlap");
            }
            buffers.push(staging.buffer);
        }
        let in_stage = |store: OpId| {
            schedule.tma_stores().any(|tma_store| tma_store.op == store && is_staged_in_channel(tma_store))
        };
        match schedule
            .warp_spec
            .iter()
            .flat_map(|warp_spec| &warp_spec.channels)
            .filter_map(|channel| channel.staging_for)
            .find(|&store| !in_stage(store))
        {
            Some(store) => Err(format!("a stage is for op {}, which does not use it", store.index())),
            None => Ok(()),
        }
    }

    /// Verifies that each element of a tile of this layout is in exactly one box, and the boxes
    /// have the format of TMA.
    fn verify_boxes(&self, tma_store: &TmaStore, layout: &Layout) -> VerifyResult {
        let op = self.module.op(tma_store.op);
        let (value, view) = (stored(op), op.operand_group("view")[0]);
        let tile = &tma_store.tile;
        let fault = |what: &str| Err(what.to_owned());
        if !self.inference.op_layouts.get(&tma_store.op).is_some_and(|access| access.is_same(layout)) {
            return fault("the tile has another layout");
        }
        let TmaBoxLayout { shared, boxes, split_bits, order, .. } = tile;
        let bytes = self.element_type(value).storage_bits() as usize / 8;
        if shared.shape != self.module.shape(value) || shared.element_bytes != bytes || layout.replication() > 1 {
            return fault("the tile is another one, or some elements are held twice");
        }
        let again = TmaBoxLayout::from_bit_order(&shared.shape, bytes, boxes.clone(), order.clone(), *split_bits);
        if again.as_ref() != Some(tile) {
            return fault("elements do not stand where their bits say");
        }
        let warps = if tma_store.staging.is_some() { layout.warp_bases() } else { &[] };
        let mut bits: Vec<u32> = order.iter().chain(warps).copied().collect_vec();
        sort::natural(&mut bits);
        let all = layout.num_elements().trailing_zeros();
        if !bits.into_iter().eq((0..all).map(|bit| 1 << bit)) || !tile.selects_warps(layout, warps) {
            return fault("boxes do not cover the tile once");
        }
        let Some(axes) = self.box_axes(view) else { return fault("a view without rows") };
        if !tile.begins_with_boxes(&axes) || !tile.is_cut_by_registers(layout) {
            return fault("boxes are of other elements, or parts are not whole boxes of all threads");
        }
        if self.store_map(tma_store.op, tile).is_err() || tile.writes(layout).is_none() {
            return fault("there are no such boxes");
        }
        Ok(())
    }

    /// Verifies that the staging buffer has space for the boxes of each warp of each consumer
    /// group, and is reserved for this store.
    fn verify_staging_buffer(
        &self,
        schedule: &Schedule,
        tma_store: &TmaStore,
        staging: &StagingBuffer,
    ) -> VerifyResult {
        let (tile, &StagingBuffer { buffer, channel: stage, split: StoreSplit { count, bytes, in_flight } }) =
            (&tma_store.tile, staging);
        let warps = self.consumer_warps();
        if !count.is_power_of_two() || count > 1 << tile.split_bits || count * bytes != tile.bytes() {
            return Err("the split of a warp differs".to_owned());
        }
        if !in_flight.is_power_of_two() || in_flight > count || staging.bytes_per_warp() * warps > buffer.bytes {
            return Err("the staging buffer is too small".to_owned());
        }
        if let Some(channel) = stage {
            let channel = schedule.warp_spec.iter().find_map(|warp_spec| warp_spec.channels.get(channel as usize));
            let fits = |channel: &Channel| {
                channel.staging_for == Some(tma_store.op) && buffer.offset + buffer.bytes <= channel.stage_bytes
            };
            let begins = buffer.offset.is_multiple_of(SWIZZLE_ATOM_BYTES);
            return match channel.is_some_and(fits) && begins && self.consumer_groups() == 1 {
                true => Ok(()),
                false => Err("the staging buffer is in the stage of another channel".to_owned()),
            };
        }
        // Pipeline stages are allocated at lower offsets, and reserved memory ends at
        // `smem.start()`.
        let pipelines = schedule.warp_spec.iter().flat_map(|warp_spec| &warp_spec.pipelines);
        let stages: u32 = pipelines.map(|pipeline| pipeline.num_stages * pipeline.stage_bytes).sum();
        if !buffer.offset.is_multiple_of(SWIZZLE_ATOM_BYTES)
            || buffer.offset < stages
            || buffer.offset + buffer.bytes > schedule.smem.start()
        {
            return Err("the staging buffer is not reserved".to_owned());
        }
        Ok(())
    }
}

/// Returns true if the staging buffer of a store is a pipeline stage.
fn is_staged_in_channel(tma_store: &TmaStore) -> bool {
    tma_store.staging.as_ref().is_some_and(|staging| staging.channel.is_some())
}
