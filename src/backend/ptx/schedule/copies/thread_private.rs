//! Thread-private copies: multistage copies of elements that the same thread reads.
//!
//! Replicas of an element have one copy, because each copy is an access of the second-level cache.
//! Lanes share it after a synchronization of their warp, and warps after a barrier.
//!
//! A copy is possible if the accesses of a thread have 4, 8 or 16 bytes, and the kernel does not
//! write the array. `warp_specialize` reserves memory for those of consumers, and
//! `pipeline` plans them.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::copy_addresses::CopyAddresses;
use crate::backend::ptx::hardware::{SWIZZLE_ATOM_BYTES, WARP_SIZE};
use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis};
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::cp_async::{CpAsync, CpAsyncAccess, CpAsyncPlan};
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::schedule::ir::rejected_loads::CpAsyncRejection;
use crate::ir::{BlockId, OpId, Opcode, Value};
use crate::layout::Layout;
use crate::util::sort;

/// Maximum number of stages of copies.
pub const MAX_STAGES: usize = 4;

/// Bytes of thread-private stages in a kernel with a producer, unless two stages need more.
const PRODUCER_KERNEL_BYTES: usize = 32 << 10;

/// Maximum number of bytes of a replicated tile in a thread-private stage.
const MAX_REPLICATED_BYTES: usize = 8 << 10;

/// Alignment of thread-private tiles in a stage, in bytes.
const THREAD_PRIVATE_ALIGN: usize = 16;

/// The copies of a loop, and values from outside of the loop with the layouts to which they are
/// converted before it.
pub type PlannedCopies = (CpAsyncPlan, Vec<(Value, Layout)>);

impl KernelInfo<'_> {
    /// Returns the thread-private copies of tiles from which consumers make operands of MMAs, with
    /// the number of stages that memory is reserved for.
    pub fn copies_with_producer(&self, body: BlockId, warp_spec: &WarpSpecialization) -> Option<PlannedCopies> {
        let ops = &self.module.block(body).ops;
        let one_group = self.consumer_groups() == 1 && self.data_partitions == 1;
        if !one_group || !ops.iter().any(|&id| self.module.op(id).code.is_mma()) {
            return None;
        }
        let (mut copies, mut addresses, mut stage_bytes): (Vec<CpAsync>, CopyAddresses, usize) = Default::default();
        for &load in ops.iter().filter(|&&id| self.module.op(id).code == Opcode::LoadView) {
            if warp_spec.is_producer_load(load) || addresses.ops.contains(&load) {
                continue;
            }
            let Ok(part) = self.copy_addresses(body, load) else { continue };
            let Some((copy, bytes)) = self.copy_in_mma_loop(load, stage_bytes, false) else { continue };
            if copies.iter().all(|copy| !part.ops.contains(&copy.load)) {
                addresses.extend(part);
                stage_bytes += bytes;
                copies.push(copy);
            }
        }
        let CopyAddresses { ops: mut address_ops, hoisted } = addresses;
        self.sort_in_program_order(body, &mut address_ops);
        let stages = (PRODUCER_KERNEL_BYTES / stage_bytes.max(1)).clamp(2, MAX_STAGES);
        let (async_mma, barrier_at_head) = (false, false);
        (!copies.is_empty()).then(|| {
            let plan = CpAsyncPlan { copies, address_ops, stage_bytes, stages, async_mma, barrier_at_head };
            (plan, hoisted)
        })
    }

    /// Returns the bytes of shared memory for the thread-private stages of consumers, in all loops.
    pub fn thread_private_stage_bytes(&self, warp_spec: &WarpSpecialization) -> u32 {
        let loops = self.regions.ops().iter().filter(|&&id| self.module.op(id).code == Opcode::For);
        let of_loop = |&id: &OpId| {
            let (plan, _) = self.copies_with_producer(self.module.op(id).regions[0], warp_spec)?;
            (!self.regions.has_multiple_latches(id)).then(|| plan.bytes() + SWIZZLE_ATOM_BYTES)
        };
        if self.is_enabled(Optimization::CpAsync) { loops.filter_map(of_loop).sum() } else { 0 }
    }

    /// Returns the thread-private copy of a load in a loop with MMAs, and its bytes.
    ///
    /// Each replica of an element takes shared memory accesses of its own. So replicated tiles are
    /// small, and have the widest copies.
    pub fn copy_in_mma_loop(&self, load: OpId, offset: usize, has_barrier: bool) -> Option<(CpAsync, usize)> {
        let once = self.inference.op_layouts.get(&load)?.replication() == 1;
        let (_, bytes) = self.copy_vector(load).ok()?;
        let wide = bytes == 16 && self.replicated_bytes(load)? <= MAX_REPLICATED_BYTES;
        (once || wide).then(|| self.thread_private_copy(load, offset, has_barrier))?
    }

    /// Returns the bytes of a tile that all threads read, with replicas.
    fn replicated_bytes(&self, load: OpId) -> Option<usize> {
        let (vector, bytes) = self.copy_vector(load).ok()?;
        let count = self.inference.op_layouts.get(&load)?.num_registers() / vector;
        Some(count * bytes * self.inference.num_warps * WARP_SIZE as usize)
    }

    /// Returns true if a load that has a thread-private copy has many replicas of each element.
    pub fn is_much_replicated(&self, load: OpId) -> bool {
        let has_copy = self.thread_private_copy(load, 0, false).is_some();
        let bytes = self.replicated_bytes(load).filter(|_| has_copy);
        bytes.is_some_and(|bytes| bytes > self.tile_bytes(load).max(MAX_REPLICATED_BYTES))
    }

    /// Returns the bytes of the tile of a load, each element once.
    pub fn tile_bytes(&self, load: OpId) -> usize {
        let tile = self.module.op(load).results[0];
        (self.inference.num_elements(tile) * self.element_type(tile).storage_bits() as usize).div_ceil(8)
    }

    /// Returns the thread-private copy of a load at a byte offset in the stage, and its bytes.
    /// Replicas of a warp have one copy. `has_barrier`: those of all warps have one.
    pub fn thread_private_copy(&self, load: OpId, offset: usize, has_barrier: bool) -> Option<(CpAsync, usize)> {
        if !self.is_enabled(Optimization::ThreadPrivateCopies) {
            return None;
        }
        let (vector, bytes) = self.copy_vector(load).ok()?;
        let layout = self.inference.op_layouts.get(&load)?;
        let (mut thread, mut replicas, mut distinct) = (Vec::new(), 0, 1);
        for (bit, &basis) in layout.lane_bases().iter().chain(layout.warp_bases()).enumerate() {
            let is_shared = basis == 0 && (has_barrier || bit < layout.lane_bases().len());
            thread.push(if is_shared { 0 } else { (bytes * distinct) as u32 });
            match is_shared {
                true => replicas |= 1 << bit,
                false => distinct *= 2,
            }
        }
        let count = layout.num_registers() / vector;
        let offsets = (0..count).map(|index| (index * vector, (index * distinct * bytes) as u32));
        let accesses = offsets.map(|(register, offset)| CpAsyncAccess { register, xor: 0, offset }).collect_vec();
        let copy = CpAsync {
            load,
            thread_private: true,
            smem_offset: offset,
            vector,
            thread_offsets: thread,
            replicas,
            accesses,
        };
        Some((copy, (count * distinct * bytes).next_multiple_of(THREAD_PRIVATE_ALIGN)))
    }

    /// Returns the elements and bytes of one access by which a thread copies its part of a
    /// load.
    pub fn copy_vector(&self, load: OpId) -> Result<(usize, usize), CpAsyncRejection> {
        let module = self.module;
        let op = module.op(load);
        let view = op.group(0)[0];
        if !self.is_invariant_load(load) {
            return Err(CpAsyncRejection::Written);
        }
        let shape = ViewShape::at(module, &self.inference.int_ranges, view, op.group(1));
        let (Some(shape), Some(layout)) = (shape, self.inference.op_layouts.get(&load)) else {
            return Err(CpAsyncRejection::View);
        };
        let mut vector = 1;
        if let Some(axis) = contiguous_axis(module, &shape).filter(|&axis| shape.sparse != Some(axis)) {
            vector = shape
                .vector(module, &self.inference.int_ranges, axis)
                .min(layout.vector_len(axis))
                .min(layout.num_registers());
            if vector as u64 > shape.extent_divisor(module, &self.inference.int_ranges, shape.dim_map[axis]) {
                return Err(CpAsyncRejection::Extent { elements: vector });
            }
        }
        let bytes = shape.elem.bytes_of(vector).unwrap_or(0);
        match shape.elem.storage_bits() >= 8 && matches!(bytes, 4 | 8 | 16) {
            true => Ok((vector, bytes)),
            false => Err(CpAsyncRejection::Pieces { bytes }),
        }
    }

    /// Sorts address ops in the order of the body, without duplicates.
    pub fn sort_in_program_order(&self, body: BlockId, address_ops: &mut Vec<OpId>) {
        let ops = &self.module.block(body).ops;
        let order: FxHashMap<OpId, usize> = ops.iter().enumerate().map(|(i, &op)| (op, i)).collect();
        sort::by_key(address_ops, |op| order[op]);
        address_ops.dedup();
    }
}
