//! Auxiliary loads: small tiles loaded into the stage of an MMA operand.
//!
//! A vector that all rows or columns of a tile share (a bias, scales, logarithms of sums) is a few hundred bytes, but every thread
//! needs a good part of it. Loaded by the threads it is asked for early, lest they wait for it, and then stands in
//! registers through a whole iteration, several times over. So it goes to the stage of a channel, with whose tiles it arrives, and threads read
//! it there when they first use it.
//!
//! They have read it when the stage is given back: that comes behind a product, which all lanes of a warp issue together. What is
//! used when all products of the iteration have landed is read while the last one runs, which gives the stage back when it has landed.

use std::collections::HashSet;

use super::producer_slice::SliceBuilder;
use crate::backend::ptx::hardware::{SWIZZLE_ATOM_BYTES, TMA_SMEM_ALIGN, WARP_SIZE};
use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::region_tree::RegionTree;
use crate::backend::ptx::schedule::ir::pipelines::{TmaBox, TmaLoad, WarpSpecialization};
use crate::backend::ptx::tensor_map::{Swizzle, TensorMap};
use crate::ir::{BlockId, OpId, Opcode, Value};

/// Most bytes of such a tile.
const MOST_BYTES: usize = 1 << 10;
/// Most registers of one that is read behind the product, and stands in them until that has landed.
const FEW_REGISTERS: usize = 8;
/// So many threads hold each element at least.
const COPIES: usize = 4;

impl KernelInfo<'_> {
    /// Finds a channel for each small tile that arrives with others, and is read before these are done with.
    pub fn add_aux_loads(&self, structure: &RegionTree, roles: &mut WarpSpecialization, body: BlockId) {
        if self.bands > 1 {
            return;
        }
        let mut loads = Vec::new();
        self.module.walk(body, &mut |id| loads.push(id));
        loads.retain(|id| self.module.op(*id).code == Opcode::LoadView && !roles.operand_channel.contains_key(id));
        for load in loads {
            let Some(channel) = self.ride(load, structure, roles) else { continue };
            let (Some((map, bytes)), Some(slice)) = (self.ridden(load), SliceBuilder::of_load(self, structure, load))
            else {
                continue;
            };
            roles.producer_ops.extend(slice.ops);
            roles.producer_live.extend(slice.carried);
            roles.aux_channel.insert(load, channel);
            let rank = map.dims.len();
            let boxes = vec![TmaBox { coord: vec![0; rank], smem_offset: 0 }];
            let this = &mut roles.channels[channel];
            let behind = |last: &TmaLoad| (last.smem_offset + last.bytes).next_multiple_of(TMA_SMEM_ALIGN);
            let riders = this.loads.iter().filter(|other| roles.aux_channel.contains_key(&other.load));
            let offset = riders.map(behind).max().unwrap_or(this.stage_bytes);
            this.stage_bytes = (offset + bytes).next_multiple_of(SWIZZLE_ATOM_BYTES);
            this.loads.push(TmaLoad { load, smem_offset: offset, map, boxes, bytes, panel_rows: 1, partitions: 1 });
            let ops = &self.module.block(this.block).ops;
            this.loads.sort_by_key(|load| ops.iter().position(|&op| op == load.load));
        }
    }

    /// The channel in whose stage a tile may be until it is read.
    fn ride(&self, load: OpId, structure: &RegionTree, roles: &WarpSpecialization) -> Option<usize> {
        let block = self.op_blocks[load.index()]?;
        let loop_around = self.enclosing_loop(block, structure);
        if loop_around.is_none() || self.may_stream(loop_around).is_err() || !self.allows_copy_engine(load) {
            return None;
        }
        let ops = &self.module.block(block).ops;
        let place = |id: OpId| ops.iter().position(|&other| other == id);
        let products: Vec<OpId> = ops.iter().copied().filter(|id| self.inference.products.contains_key(id)).collect();
        let several = products.iter().map(|&id| self.bundles.last(id)).collect::<HashSet<OpId>>().len() > 1;
        let read = place(self.first_use(ops, load)?)?;
        // Beside one product alone there are registers enough, and its operands come as soon as they can; unless all wait for it, with
        // nothing to do but what can be had before.
        let few = self.inference.accesses.get(&load).is_some_and(|layout| layout.num_registers() <= FEW_REGISTERS);
        let beside = few && self.begin_with_zero(&products);
        roles.channels.iter().enumerate().position(|(number, channel)| {
            let taken = roles.consumer_anchor(number as u32).and_then(place);
            let last = place(channel.last_use);
            let runs = products.contains(&channel.last_use) && self.run_on(&[channel.last_use]);
            channel.block == block
                && !channel.wait_at_acquire
                && taken.is_some_and(|taken| taken < read)
                && last.is_some_and(|last| (several && read <= last) || (beside && runs && last < read))
        })
    }

    /// Do all products of a block add to nothing, so that their sums are waited for where they are made?
    fn begin_with_zero(&self, products: &[OpId]) -> bool {
        let sums: HashSet<Value> = products.iter().map(|&id| self.module.op(id).results[0]).collect();
        !products.is_empty()
            && products
                .iter()
                .map(|&id| self.module.op(id).operands[2])
                .all(|acc| self.is_zero(acc) || sums.contains(&acc))
    }

    /// The box of a tile that is one vector, of which most threads hold what others hold, and its bytes.
    pub fn ridden(&self, load: OpId) -> Option<(TensorMap, u32)> {
        let module = self.module;
        let op = module.op(load);
        let (view, index) = (op.group(0)[0], op.group(1));
        let shape = ViewShape::of(module, view)?;
        let fastest = contiguous_axis(module, &shape)?;
        let layout = self.inference.accesses.get(&load)?;
        let count = layout.num_elements();
        let held = layout.num_registers() * (self.inference.num_warps * WARP_SIZE as usize);
        let bytes = count * shape.elem.storage_bits() as usize / 8;
        let is_vector = shape.tile[fastest] == count as i64;
        if !(is_vector && bytes <= MOST_BYTES && held >= COPIES * count && self.is_invariant_load(load)) {
            return None;
        }
        let map = self.tma_map((view, index), &shape.tile, Swizzle::None, false)?;
        Some((map, bytes as u32))
    }

    /// The first op of a block that computes with the tile of a load, itself or in its regions, under whatever name.
    pub fn first_use(&self, ops: &[OpId], load: OpId) -> Option<OpId> {
        let names = self.names_of(ops, load);
        let values: HashSet<Value> = names.iter().flat_map(|&id| &self.module.op(id).results).copied().collect();
        let reads = |id: OpId| {
            let mut found = self.module.op(id).operands.iter().any(|value| values.contains(value));
            for &region in &self.module.op(id).regions {
                self.module.walk(region, &mut |inner| {
                    found |= self.module.op(inner).operands.iter().any(|value| values.contains(value));
                });
            }
            found
        };
        ops.iter().copied().find(|&id| !names.contains(&id) && reads(id))
    }

    /// A load, and the ops of its block that give its tile other names.
    pub fn names_of(&self, ops: &[OpId], load: OpId) -> Vec<OpId> {
        let mut names = vec![load];
        let mut values = vec![self.module.op(load).results[0]];
        for &id in ops {
            let op = self.module.op(id);
            let renames = matches!(op.code, Opcode::Assume | Opcode::Broadcast | Opcode::Reshape | Opcode::Permute);
            if renames && op.operands.first().is_some_and(|operand| values.contains(operand)) {
                names.push(id);
                values.extend(&op.results);
            }
        }
        names
    }
}
