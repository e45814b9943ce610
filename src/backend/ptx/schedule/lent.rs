//! Stages that are lent to stores.
//!
//! Where stages want all of shared memory, boxes of warps stand in one of them, and have no place of their own. It comes to the store
//! as tiles come to products: the agent that loads goes through its ring there, too, and passes the next stage on with nothing in it;
//! who multiplies takes it, and gives it back when the copy engine has read the boxes.

use super::Context;
use super::cut::{BOX_ALIGN, Parts};
use super::sends::{Boxed, Outbox};
use super::streams::{Channel, Repeats, Roles};
use super::structure::Structure;
use crate::backend::ptx::boxed::BoxedTile;
use crate::backend::ptx::shared::Buffer;
use crate::ir::OpId;

impl Context<'_> {
    /// The channel that lends a stage to the store of a kernel, if there is one alone and a ring for it: that of the loads which come last before
    /// it, since what comes next is loaded through the others.
    pub fn lending(&self, roles: &Roles, structure: &Structure) -> Option<Channel> {
        let mut stores = self.boxed.keys();
        let (&store, None) = (stores.next()?, stores.next()) else { return None };
        let block = self.op_blocks[store.index()]?;
        let alone = self.teams == 1 && self.options.num_ctas.unwrap_or(1) == 1;
        // The agent that loads comes to the block.
        if !alone || !roles.channels.iter().any(|channel| channel.block == block) {
            return None;
        }
        let tile = self.tile_of_warps(store)?;
        let place = |id: OpId| self.module.block(block).ops.iter().position(|&other| other == id);
        let lends = |last: &Channel| {
            let ring = &roles.rings[last.ring];
            let (stage_bytes, loads) = (ring.stage_bytes, Vec::new());
            let lent_to = Some(store);
            let lent = Channel { block, loads, stage_bytes, ring: last.ring, last: store, early: true, lent_to };
            let mut users = roles.channels.iter().filter(|user| user.ring == lent.ring);
            let fits = ring.repeats == Repeats::Inner && self.parts_in_stage(&tile, stage_bytes).is_some();
            let apart = |user: &Channel| match user.block == block {
                true => place(user.last) < place(store),
                false => self.are_apart(user, &lent, structure),
            };
            (fits && users.all(apart)).then_some(lent)
        };
        roles.channels.iter().rev().find_map(lends)
    }

    /// A store by boxes of each warp in a stage that is lent to it.
    pub fn in_lent_stage(&self, id: OpId, roles: &Roles) -> Option<Boxed> {
        let channel = roles.lent_to(id)?;
        let tile = self.tile_of_warps(id)?;
        let parts = self.parts_in_stage(&tile, roles.channels[channel as usize].stage_bytes)?;
        let bytes = parts.slots * parts.bytes * self.inference.num_warps as u32;
        let outbox = Some(Outbox { place: Buffer { offset: 0, bytes }, stage: Some(channel), parts });
        Some(Boxed { layout: self.boxed[&id].layout.clone(), tile, outbox })
    }

    fn parts_in_stage(&self, tile: &BoxedTile, bytes: u32) -> Option<Parts> {
        let warps = self.inference.num_warps as u32;
        Parts::of_warp(tile, bytes / warps / BOX_ALIGN * BOX_ALIGN, warps)
    }
}
