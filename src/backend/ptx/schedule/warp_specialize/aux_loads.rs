//! Auxiliary loads: small tiles loaded into the stage of an MMA operand.
//!
//! A vector that all rows or columns of a tile share has a few hundred bytes, for example a bias,
//! scales or row maxima. Each thread needs many of its elements. A load by the threads is issued
//! early, and its registers are live for a whole iteration. So the producer loads the vector into
//! the stage of a channel, and the threads read it there at the first use.
//!
//! The release of the stage follows the reads: an MMA, which all lanes of a warp issue together, is
//! between them. A tile that is used after the last MMA of the iteration is read while that MMA is
//! in flight.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::producer_slice::SliceBuilder;
use crate::backend::ptx::hardware::{SWIZZLE_ATOM_BYTES, TMA_SMEM_ALIGN, WARP_SIZE};
use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis};
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::load_path::LoadPath;
use crate::backend::ptx::schedule::ir::pipelines::{TmaBox, TmaLoad, WarpSpecialization};
use crate::backend::ptx::tensor_map::{Swizzle, TensorMap};
use crate::ir::{BlockId, OpId, Opcode, Value};
use crate::util::sort;

/// Maximum number of bytes of an auxiliary tile.
const MAX_BYTES: usize = 1 << 10;
/// Maximum number of registers of a tile that is read after the last MMA. They are live until that
/// MMA is complete.
const MAX_REGISTERS_AFTER_MMA: usize = 8;
/// Maximum number of ops between a tile and the operand of an MMA that is computed from it.
const MAX_OPS_TO_OPERAND: usize = 64;
/// Minimum number of threads that hold each element.
const MIN_REPLICATION: usize = 4;

impl KernelInfo<'_> {
    /// Adds each small tile to a channel whose stage is acquired before the tile is read, and
    /// released after it.
    pub fn add_aux_loads(&self, warp_spec: &mut WarpSpecialization) {
        if self.data_partitions > 1 || !self.is_enabled(Optimization::AuxLoads) {
            return;
        }
        for &load in self.regions.ops().iter().filter(|&&id| self.module.op(id).code == Opcode::LoadView) {
            if warp_spec.is_producer_load(load) {
                continue;
            }
            let Some(channel) = self.aux_channel_for(load, warp_spec) else { continue };
            let (Some((map, bytes)), Some(slice)) = (self.aux_box(load), SliceBuilder::for_load(self, load)) else {
                continue;
            };
            warp_spec.producer_ops.extend(slice.ops);
            warp_spec.producer_live.extend(slice.live);
            warp_spec.load_paths.insert(load, LoadPath::TmaAux { channel: channel as u32 });
            let rank = map.dims.len();
            let boxes = vec![TmaBox { coord: vec![0; rank], smem_offset: 0 }];
            let this = &warp_spec.channels[channel];
            let end_of = |last: &TmaLoad| (last.smem_offset + last.bytes).next_multiple_of(TMA_SMEM_ALIGN);
            let aux_loads = this.loads.iter().filter(|other| warp_spec.aux_channel(other.load).is_some());
            let offset = aux_loads.map(end_of).max().unwrap_or(this.stage_bytes);
            let this = &mut warp_spec.channels[channel];
            this.stage_bytes = (offset + bytes).next_multiple_of(SWIZZLE_ATOM_BYTES);
            this.loads.push(TmaLoad { load, smem_offset: offset, map, boxes, bytes, panel_rows: 1, partitions: 1 });
            let ops = &self.module.block(this.block).ops;
            sort::by_key(&mut this.loads, |load| ops.iter().position(|&op| op == load.load));
        }
    }

    /// Returns the index of the channel whose stage can hold a tile until it is read.
    fn aux_channel_for(&self, load: OpId, warp_spec: &WarpSpecialization) -> Option<usize> {
        let block = self.regions.block_of(load)?;
        let enclosing_loop = self.regions.loop_of_block(block);
        if enclosing_loop.is_none() || self.can_use_producer(enclosing_loop).is_err() || !self.allows_tma(load) {
            return None;
        }
        let ops = &self.module.block(block).ops;
        let position = |id: OpId| ops.iter().position(|&other| other == id);
        let mmas: Vec<OpId> = ops.iter().copied().filter(|id| self.inference.mma_plans.contains_key(id)).collect_vec();
        let several = mmas.iter().map(|&id| self.mma_groups.last_of(id)).collect::<FxHashSet<OpId>>().len() > 1;
        let read = position(self.first_use(ops, load)?)?;
        // With a single MMA the registers suffice, and its operands are loaded as early as
        // possible. One exception is an MMA that all threads wait for, without other work. The
        // other one is a tile that converts an operand: while it is loaded, no MMA is issued.
        let few = self
            .inference
            .op_layouts
            .get(&load)
            .is_some_and(|layout| layout.num_registers() <= MAX_REGISTERS_AFTER_MMA);
        let after_mma = few && self.start_from_zero(&mmas);
        let before_mma = several || self.makes_operand(block, load);
        warp_spec.channels.iter().enumerate().position(|(number, channel)| {
            let acquired = warp_spec.consumer_anchor(number as u32).and_then(position);
            let last = position(channel.last_use);
            let is_async = mmas.contains(&channel.last_use) && self.is_async(&[channel.last_use]);
            channel.block == block
                && !self.has_exit_between(block, channel.first(), self.first_use(ops, load).unwrap_or(load))
                && !channel.wait_at_acquire
                && acquired.is_some_and(|acquired| {
                    acquired < read
                        || self.can_acquire_before(ops, acquired, read)
                            && ops[read..acquired]
                                .iter()
                                .all(|&id| warp_spec.operand_channel(id).is_none_or(|c| c == number as u32))
                })
                && last.is_some_and(|last| (before_mma && read <= last) || (after_mma && is_async && last < read))
        })
    }

    /// Returns true if an operand of an MMA of the block is computed from the tile of a load.
    fn makes_operand(&self, block: BlockId, load: OpId) -> bool {
        let mut pending = vec![self.module.op(load).results[0]];
        let mut seen: FxHashSet<Value> = FxHashSet::default();
        while let Some(value) = pending.pop().filter(|_| seen.len() <= MAX_OPS_TO_OPERAND) {
            for &(user, position) in self.uses.users(value) {
                let op = self.module.op(user);
                if self.inference.mma_plans.contains_key(&user) && position < 2 {
                    return true;
                }
                let passes = op.code.is_elementwise() || op.code.is_alias();
                if passes && self.regions.block_of(user) == Some(block) && seen.insert(op.results[0]) {
                    pending.push(op.results[0]);
                }
            }
        }
        false
    }

    /// Returns true if the stage of a load at `acquired` can be acquired before the op at `read`
    /// already: its operands are there, and no MMA and no region is between.
    fn can_acquire_before(&self, ops: &[OpId], acquired: usize, read: usize) -> bool {
        let between = &ops[read..acquired];
        let defines = |value: &Value| self.module.defining_op(*value).is_some_and(|id| between.contains(&id));
        !self.module.op(ops[acquired]).operands.iter().any(defines)
            && !between.iter().any(|&id| {
                let op = self.module.op(id);
                self.inference.mma_plans.contains_key(&id) || !op.regions.is_empty()
            })
    }

    /// Returns true if all accumulators of a block start from zero, so that their MMAs complete in
    /// the block.
    fn start_from_zero(&self, mmas: &[OpId]) -> bool {
        let sums: FxHashSet<Value> = mmas.iter().map(|&id| self.module.op(id).results[0]).collect();
        !mmas.is_empty()
            && mmas.iter().map(|&id| self.module.op(id).operands[2]).all(|acc| self.is_zero(acc) || sums.contains(&acc))
    }

    /// Returns the tensor map and the bytes of a tile that is one vector and is replicated in
    /// several threads.
    pub fn aux_box(&self, load: OpId) -> Option<(TensorMap, u32)> {
        let module = self.module;
        let op = module.op(load);
        let (view, index) = (op.group(0)[0], op.group(1));
        let shape = ViewShape::of(module, view)?;
        let fastest = contiguous_axis(module, &shape)?;
        let layout = self.inference.op_layouts.get(&load)?;
        let count = layout.num_elements();
        let registers = layout.num_registers() * (self.inference.num_warps * WARP_SIZE as usize);
        let bytes = count * shape.elem.storage_bits() as usize / 8;
        let is_vector = shape.tile[fastest] == count as i64;
        if !(is_vector && bytes <= MAX_BYTES && registers >= MIN_REPLICATION * count && self.is_invariant_load(load)) {
            return None;
        }
        let map = self.tma_map((view, index), &shape.tile, Swizzle::None, false).ok()?;
        Some((map, bytes as u32))
    }

    /// Returns the first op of a block that uses the tile of a load or a view of it, itself or in
    /// its regions.
    pub fn first_use(&self, ops: &[OpId], load: OpId) -> Option<OpId> {
        let names = self.load_and_views(ops, load);
        let values: FxHashSet<Value> = names.iter().flat_map(|&id| &self.module.op(id).results).copied().collect();
        let reads = |id: OpId| {
            let mut operands = self.regions.with_nested(id).iter().flat_map(|&inner| &self.module.op(inner).operands);
            operands.any(|value| values.contains(value))
        };
        ops.iter().copied().find(|&id| !names.contains(&id) && reads(id))
    }

    /// Returns a load and the ops of its block that are aliases of its tile.
    pub fn load_and_views(&self, ops: &[OpId], load: OpId) -> Vec<OpId> {
        let mut names = vec![load];
        let mut values = vec![self.module.op(load).results[0]];
        for &id in ops {
            let op = self.module.op(id);
            if op.code.is_alias() && op.operands.first().is_some_and(|operand| values.contains(operand)) {
                names.push(id);
                values.extend(&op.results);
            }
        }
        names
    }
}
