//! Prefetches: tiles that the consumers load around the main loop, for example a converted left
//! operand or a residual of an epilogue.
//!
//! The consumers load such a tile where the program has the load, and wait for global memory. The
//! producer reaches this position earlier than the consumers, by the stages of its pipelines. It
//! prefetches the tile to the L2 cache there (`cp.async.bulk.prefetch.tensor`). A prefetch changes
//! no result, so the array may be written by the kernel.

use super::producer_slice::SliceBuilder;
use crate::backend::ptx::hardware::MAX_TMA_BOX;
use crate::backend::ptx::layout_inference::ViewShape;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::tensor_map::{Swizzle, TensorMap};
use crate::ir::{OpId, Opcode};

/// Minimum number of bytes of a prefetched tile. Smaller tiles are few lines of the cache, and each
/// prefetch needs a tensor map among the parameters.
const MIN_BYTES: usize = 1 << 10;

impl KernelInfo<'_> {
    /// Adds the tiles that the producer prefetches.
    pub fn add_prefetches(&self, warp_spec: &mut WarpSpecialization) {
        if !self.is_enabled(Optimization::PrefetchBoxes) {
            return;
        }
        for &load in self.regions.ops().iter().filter(|&&id| self.module.op(id).code == Opcode::LoadView) {
            if warp_spec.is_producer_load(load) || !self.is_around_channel(load, warp_spec) {
                continue;
            }
            let (Some(map), Some(slice)) = (self.prefetch_map(load), SliceBuilder::for_load(self, load)) else {
                continue;
            };
            warp_spec.producer_ops.extend(slice.ops);
            warp_spec.producer_live.extend(slice.live);
            warp_spec.prefetches.insert(load, map);
        }
        // Loads of the producer's own indices.
        let WarpSpecialization { prefetches, producer_ops, .. } = warp_spec;
        prefetches.retain(|load, _| !producer_ops.contains(load));
    }

    /// Returns true if a loop with a channel is in the block of a load. The block is the body of
    /// another loop, or the loop precedes the load: otherwise the producer reaches the load at the
    /// same time as the consumers.
    fn is_around_channel(&self, load: OpId, warp_spec: &WarpSpecialization) -> bool {
        let Some(block) = self.regions.block_of(load) else { return false };
        if !self.allows_tma(load) || self.can_use_producer(self.regions.loop_of_block(block)).is_err() {
            return false;
        }
        let ops = &self.module.block(block).ops;
        let position = |id: OpId| ops.iter().position(|&other| other == id);
        let is_outer_loop = self.regions.loop_of_block(block).is_some();
        let loads = warp_spec.channels.iter().filter_map(|channel| channel.loads.first());
        let mut loops = loads.filter_map(|first| self.regions.ancestor_in(block, first.load));
        loops.any(|inner| self.module.op(inner).code.is_loop() && (is_outer_loop || position(inner) < position(load)))
    }

    /// Returns the tensor map of a tile with one box.
    fn prefetch_map(&self, load: OpId) -> Option<TensorMap> {
        let op = self.module.op(load);
        let (view, index) = (op.group(0)[0], op.group(1));
        let shape = ViewShape::of(self.module, view)?;
        let bytes = shape.tile.iter().product::<i64>() as usize * shape.elem.storage_bits() as usize / 8;
        if bytes < MIN_BYTES || shape.tile.iter().any(|&extent| extent > i64::from(MAX_TMA_BOX)) {
            return None;
        }
        self.tma_map((view, index), &shape.tile, Swizzle::None, false).ok()
    }
}
