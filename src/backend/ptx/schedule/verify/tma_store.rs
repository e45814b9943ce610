//! Verifies TMA stores: boxes cover the tile once, buffers are disjoint.

use std::collections::HashSet;

use super::VerifyResult;
use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::layout_inference::stored;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::Channel;
use crate::backend::ptx::schedule::ir::program::Schedule;
use crate::backend::ptx::schedule::ir::tma_store::{StagingBuffer, StoreSplit, TmaStore};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;
use crate::ir::{BlockId, OpId};
use crate::layout::Layout;

impl KernelInfo<'_> {
    /// Do boxes cover the tile of each store once, where the copy engine takes them from, and does nobody else access what it
    /// writes, or write where the boxes of warps stand?
    pub fn verify_tma_stores(&self, body: BlockId, schedule: &Schedule) -> VerifyResult {
        let sent: HashSet<OpId> = schedule.sends().map(|send| send.op).collect();
        if sent.is_empty() {
            return Ok(());
        }
        let others = self.accessed_otherwise(body, &|id| sent.contains(&id));
        let others = others.ok_or("the copy engine stores what others may access")?;
        let mut places: Vec<Buffer> = Vec::new();
        for send in schedule.sends() {
            let fault = |what: &str| Err(format!("op {}: {what}", send.op.index()));
            if !self.may_be_sent(send.op) {
                return fault("the copy engine may not do this");
            }
            let root = self.stored_array(send.op);
            if others.contains(&root) {
                return fault("others access the array");
            }
            let layout = &schedule.layouts.get(send.layout.0 as usize);
            match layout.map(|layout| self.has_boxes(send, layout)) {
                Some(Ok(())) => {}
                Some(Err(problem)) => return fault(&problem),
                None => return fault("there is no such layout"),
            }
            let Some(outbox) = &send.staging else { continue };
            if schedule.sends().filter(|other| self.stored_array(other.op) == root).count() > 1 {
                return fault("warps do not wait for each other, and others store to the array");
            }
            self.is_outbox(schedule, send, outbox).or_else(|problem| fault(&problem))?;
            if outbox.channel.is_some() {
                continue;
            }
            if places.iter().any(|other| other.overlaps(outbox.buffer)) {
                return fault("others have boxes there");
            }
            places.push(outbox.buffer);
        }
        let in_stage = |store: OpId| schedule.sends().any(|send| send.op == store && in_stage(send));
        match schedule
            .warp_spec
            .iter()
            .flat_map(|roles| &roles.channels)
            .filter_map(|channel| channel.staging_for)
            .find(|&store| !in_stage(store))
        {
            Some(store) => Err(format!("a stage is lent to op {}, which has no boxes there", store.index())),
            None => Ok(()),
        }
    }

    /// Does each element of a tile of this layout stand in one box, once, as the copy engine wants it?
    fn has_boxes(&self, send: &TmaStore, layout: &Layout) -> VerifyResult {
        let op = self.module.op(send.op);
        let (value, view) = (stored(op), op.operand_group("view")[0]);
        let tile = &send.tile;
        let fault = |what: &str| Err(what.to_owned());
        if !self.inference.accesses.get(&send.op).is_some_and(|access| access.is_same(layout)) {
            return fault("the tile is there in another layout");
        }
        let TmaBoxLayout { shared, boxes, split_bits, order, .. } = tile;
        let bytes = self.element_type(value).storage_bits() as usize / 8;
        if shared.shape != self.module.shape(value) || shared.element_bytes != bytes || layout.replication() > 1 {
            return fault("the tile is another one, or some elements are held twice");
        }
        let again = TmaBoxLayout::standing(&shared.shape, bytes, boxes.clone(), order.clone(), *split_bits);
        if again.as_ref() != Some(tile) {
            return fault("elements do not stand where their bits say");
        }
        let warps = if send.staging.is_some() { layout.warp_images() } else { &[] };
        let mut bits: Vec<u32> = order.iter().chain(warps).copied().collect();
        bits.sort_unstable();
        let all = layout.num_elements().trailing_zeros();
        if !bits.into_iter().eq((0..all).map(|bit| 1 << bit)) || !tile.is_apart(layout, warps) {
            return fault("boxes do not cover the tile once");
        }
        let Some(axes) = self.axes_of_boxes(view) else { return fault("a view without rows") };
        if !tile.begins_with_boxes(&axes) || !tile.is_cut_by_registers(layout) {
            return fault("boxes are of other elements, or parts are not whole boxes of all threads");
        }
        if self.sent_map(send.op, tile).is_none() || tile.writes(layout).is_none() {
            return fault("there are no such boxes");
        }
        Ok(())
    }

    /// Is there a place for the boxes of each warp of each team that is reserved for them?
    fn is_outbox(&self, schedule: &Schedule, send: &TmaStore, outbox: &StagingBuffer) -> VerifyResult {
        let (
            tile,
            &StagingBuffer { buffer: place, channel: stage, split: StoreSplit { count, bytes, in_flight: slots } },
        ) = (&send.tile, outbox);
        let warps = self.consumer_warps();
        if !count.is_power_of_two() || count > 1 << tile.split_bits || count * bytes != tile.bytes() {
            return Err("parts of warps are other ones".to_owned());
        }
        if !slots.is_power_of_two() || slots > count || outbox.bytes_per_warp() * warps > place.bytes {
            return Err("the boxes of warps have no room".to_owned());
        }
        if let Some(channel) = stage {
            let channel = schedule.warp_spec.iter().find_map(|roles| roles.channels.get(channel as usize));
            let fits = |channel: &Channel| {
                channel.staging_for == Some(send.op) && place.offset + place.bytes <= channel.stage_bytes
            };
            let begins = place.offset.is_multiple_of(SWIZZLE_ATOM_BYTES);
            return match channel.is_some_and(fits) && begins && self.crews() == 1 {
                true => Ok(()),
                false => Err("the boxes of warps stand in a stage that is not lent to them".to_owned()),
            };
        }
        // The stages of rings are reserved before them.
        let rings = schedule.warp_spec.iter().flat_map(|roles| &roles.pipelines);
        let stages: u32 = rings.map(|ring| ring.num_stages * ring.stage_bytes).sum();
        if !place.offset.is_multiple_of(SWIZZLE_ATOM_BYTES)
            || place.offset < stages
            || place.offset + place.bytes > schedule.smem.start()
        {
            return Err("the place of warps is not theirs".to_owned());
        }
        Ok(())
    }
}

/// Do the boxes of a store stand in a stage?
fn in_stage(send: &TmaStore) -> bool {
    send.staging.as_ref().is_some_and(|outbox| outbox.channel.is_some())
}
