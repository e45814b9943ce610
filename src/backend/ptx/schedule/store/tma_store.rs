//! Selects stores for TMA, per CTA or per warp.
//!
//! It is for tiles whose registers are not in the order of the array (results of matrix products above all), which would go
//! through shared memory anyway.
//!
//! Beside a producer, each warp has boxes of its own where it holds such: it writes them and issues their copies from a place
//! that is reserved for it, and no warp waits for another one. Then one that is done with a tile goes on to the next while
//! others multiply.
//!
//! The engine's writes are not ordered with those of threads. An array is stored this way by all stores of the kernel or by
//! none, and by none where the kernel reads it; between two stores to one array the engine finishes the first. Atomic additions
//! go the same way (the engine adds up where the array is), but need no order.

use std::collections::{HashMap, HashSet};

use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis, stored};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::kernel_info::is_weak;
use crate::backend::ptx::schedule::analysis::memory_effects::is_unknown;
use crate::backend::ptx::schedule::analysis::smem_budget::CONVERSION_BYTES;
use crate::backend::ptx::schedule::analysis::tensor_maps::{added, box_order};
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::schedule::ir::tma_store::{StagingBuffer, StoreSplit, TmaStorePlan};
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory};
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;
use crate::backend::ptx::tensor_map::TensorMap;
use crate::ir::table::Effect;
use crate::ir::{AtomicMode, Attr, AttrKind, BlockId, MemOrder, MemScope, Module, OpId, Opcode, Value};
use crate::layout::Conversion;

/// Bytes of a row that the lanes of a warp touch together; from here on they store as fast themselves.
const WIDE_RUN: usize = 64;

/// Bytes of a thread below which a tile is not worth a copy.
const LEAST_BYTES_PER_THREAD: usize = 16;

/// Is this an addition as the engine makes it: of these types, relaxed, for the device?
fn adds_as_the_engine(module: &Module, id: OpId) -> bool {
    let op = module.op(id);
    let mode = match op.attr(AttrKind::AtomicMode) {
        Some(Attr::AtomicMode(mode)) => *mode,
        _ => return false,
    };
    let adds = added(module.dtype(stored(op))).is_some() && matches!(mode, AtomicMode::Add | AtomicMode::AddF);
    let relaxed = matches!(op.attr(AttrKind::MemOrder), Some(Attr::MemOrder(MemOrder::Relaxed)));
    adds && relaxed && !matches!(op.attr(AttrKind::MemScope), Some(Attr::MemScope(MemScope::System)))
}

impl KernelInfo<'_> {
    /// Decides which stores of the kernel the engine does, all of them by the whole block.
    pub fn select_tma_stores(&mut self, body: BlockId) {
        let mut stores: HashMap<OpId, TmaStorePlan> = HashMap::new();
        self.module.walk(body, &mut |id| stores.extend(self.boxed_store(id).map(|store| (id, store))));
        let others = self.accessed_otherwise(body, &|id| stores.contains_key(&id));
        stores.retain(|&id, _| others.as_ref().is_some_and(|others| !others.contains(&self.stored_array(id))));
        let layouts = stores.iter().map(|(&id, store)| (id, store.layout.clone()));
        self.inference.accesses.extend(layouts);
        self.boxed = stores;
    }

    /// The array that a store by the engine is to.
    pub fn stored_array(&self, id: OpId) -> Value {
        self.module.base(self.module.op(id).operand_group("view")[0])
    }

    /// The arrays that a kernel accesses by other ops than stores of the engine; `None` where that may be any.
    pub fn accessed_otherwise(&self, body: BlockId, is_sent: &dyn Fn(OpId) -> bool) -> Option<HashSet<Value>> {
        let module = self.module;
        let mut others: HashSet<Value> = HashSet::new();
        let mut unknown = false;
        module.walk(body, &mut |id| {
            let op = module.op(id);
            match op.code {
                Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => {
                    let view = op.operand_group("view")[0];
                    unknown |= is_unknown(module, view);
                    others.extend((!is_sent(id)).then(|| module.base(view)));
                }
                Opcode::MemoryFenceAlias | Opcode::GdcWait | Opcode::GdcLaunchDependents => unknown = true,
                code => unknown |= matches!(code.spec().effect, Effect::Read | Effect::Write | Effect::ReadWrite),
            }
        });
        (!unknown).then_some(others)
    }

    /// May the engine do this op, as far as it says itself?
    pub fn may_be_sent(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        let may_be = match op.code {
            Opcode::StoreView => is_weak(op),
            Opcode::AtomicRedView => adds_as_the_engine(self.module, id),
            _ => false,
        };
        may_be && self.allows_copy_engine(id)
    }

    /// Are all that the engine does to the array of this op additions? They may come in any order.
    pub fn only_adds(&self, id: OpId, sent: impl IntoIterator<Item = OpId>) -> bool {
        let root = self.stored_array(id);
        let adds =
            |other: OpId| self.module.op(other).code == Opcode::AtomicRedView || self.stored_array(other) != root;
        sent.into_iter().all(adds)
    }

    /// The plan of a store, if the engine is the better way for it.
    fn boxed_store(&self, id: OpId) -> Option<TmaStorePlan> {
        if !self.may_be_sent(id) {
            return None;
        }
        let module = self.module;
        let op = module.op(id);
        let (value, view) = (stored(op), op.operand_group("view")[0]);
        let layout = self.inference.natural(value)?;
        let coalesced = self.inference.accesses.get(&id)?;
        let shape = ViewShape::of(module, view)?;
        let size = shape.elem.storage_bits() / 8;
        let bytes = layout.num_registers() * size as usize;
        if bytes < LEAST_BYTES_PER_THREAD {
            return None;
        }
        let run = self.inference.run_length(&shape, &layout) * size as usize;
        let moves = matches!(Conversion::plan(&layout, coalesced, 8 * size, 0)?, Conversion::Shared(_));
        if !moves && (!layout.is_same(coalesced) || run >= WIDE_RUN) {
            // Nothing has to move between threads, or not much.
            return None;
        }
        let tile = TmaBoxLayout::new(&layout, &self.axes_of_boxes(view)?, size as usize)?;
        if !moves && run >= tile.row_bytes() {
            return None;
        }
        self.sent_map(id, &tile)?;
        tile.writes(&layout)?;
        Some(TmaStorePlan { layout, tile, staging: None })
    }

    /// The map of a store by boxes of this tile, if it may have one.
    pub fn sent_map(&self, id: OpId, tile: &TmaBoxLayout) -> Option<TensorMap> {
        let op = self.module.op(id);
        let at = (op.operand_group("view")[0], op.operand_group("index"));
        self.tma_store_map(at, &tile.boxes, tile.swizzle, op.code == Opcode::AtomicRedView)
    }

    /// The dimensions of a view's tiles in the order of a box.
    pub fn axes_of_boxes(&self, view: Value) -> Option<Vec<usize>> {
        let shape = ViewShape::of(self.module, view)?;
        Some(box_order(shape.tile.len(), contiguous_axis(self.module, &shape)?).collect())
    }

    /// Finds places for boxes of warps, where there are roles. `shared`: with what else is reserved for the whole kernel.
    pub fn allocate_staging_buffers(
        &mut self,
        body: BlockId,
        roles: Option<&WarpSpecialization>,
        shared: &mut SharedMemory,
    ) {
        if let Some(roles) = roles {
            let fetched = |load| roles.operand_channel.contains_key(&load);
            let others = self.other_shared_bytes(body, &fetched, false, CONVERSION_BYTES / self.crews());
            self.part_by_warps(self.crews() * others, roles, shared);
        }
    }

    /// Gives the warps boxes of their own, for arrays that one op alone stores to: then what a warp stores it alone has
    /// stored before, if it was stored. `others`: bytes of shared memory that are wanted for something else.
    fn part_by_warps(&mut self, others: u32, roles: &WarpSpecialization, shared: &mut SharedMemory) {
        let mut ids: Vec<OpId> = self.boxed.keys().copied().collect();
        ids.sort_unstable();
        for &id in &ids {
            let root = self.stored_array(id);
            let alone = ids.iter().filter(|&&other| self.stored_array(other) == root).count() == 1;
            let lent = self.in_lent_stage(id, roles);
            let parted = lent.or_else(|| if alone { self.parted(id, others, shared) } else { None });
            self.boxed.extend(parted.map(|store| (id, store)));
        }
    }

    /// A store by boxes of each warp, whose place it reserves.
    fn parted(&self, id: OpId, others: u32, shared: &mut SharedMemory) -> Option<TmaStorePlan> {
        let tile = self.tile_of_warps(id)?;
        let (warps, all) = (self.inference.num_warps as u32, self.consumer_warps());
        let room = self.smem_for_stages(shared).saturating_sub(others + 2 * SWIZZLE_ATOM_BYTES) / all;
        let parts = StoreSplit::of_warp(&tile, room, warps)?;
        let place = shared.reserve(parts.in_flight * parts.bytes * all, SWIZZLE_ATOM_BYTES)?;
        let layout = self.boxed[&id].layout.clone();
        Some(TmaStorePlan { layout, tile, staging: Some(StagingBuffer { buffer: place, channel: None, split: parts }) })
    }

    /// A store by boxes of each warp in a stage that is lent to it (`warp_specialize/epilogue_smem_reuse`).
    fn in_lent_stage(&self, id: OpId, roles: &WarpSpecialization) -> Option<TmaStorePlan> {
        let channel = roles.staging_channel_of(id)?;
        let (tile, warps) = (self.tile_of_warps(id)?, self.inference.num_warps as u32);
        let parts = StoreSplit::in_stage(&tile, roles.channels[channel as usize].stage_bytes, warps)?;
        let place = Buffer { offset: 0, bytes: parts.in_flight * parts.bytes * warps };
        let outbox = Some(StagingBuffer { buffer: place, channel: Some(channel), split: parts });
        Some(TmaStorePlan { layout: self.boxed[&id].layout.clone(), tile, staging: outbox })
    }

    /// How the tile of a store stands in boxes of each warp.
    pub fn tile_of_warps(&self, id: OpId) -> Option<TmaBoxLayout> {
        let TmaStorePlan { layout, tile, .. } = &self.boxed[&id];
        let axes = self.axes_of_boxes(self.module.op(id).operand_group("view")[0])?;
        let tile = TmaBoxLayout::of_warps(layout, &axes, tile.shared.element_bytes)?;
        tile.writes(layout)?;
        self.sent_map(id, &tile)?;
        Some(tile)
    }
}
