//! Selects stores for TMA, per CTA or per warp.
//!
//! Candidates are tiles whose registers are not in the order of the array (results of MMAs), which
//! would need a conversion through shared memory anyway.
//!
//! With a producer, each warp has its own boxes and staging buffer, so no warp waits for another
//! one. A warp with a finished tile continues while other warps multiply.
//!
//! Writes of TMA are not ordered with writes of threads. Therefore all stores of the kernel to an
//! array use TMA or none, and none if the kernel reads the array. Between two stores to one array,
//! the first one is waited for. Atomic additions use TMA reductions and need no order.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis, stored};
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::kernel_info::is_weak;
use crate::backend::ptx::schedule::analysis::memory_effects::has_unknown_root;
use crate::backend::ptx::schedule::analysis::smem_budget::CONVERSION_BYTES;
use crate::backend::ptx::schedule::analysis::tensor_maps::{FIRST_ARCH, added, box_order};
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::schedule::ir::tma_store::{StagingBuffer, StoreSplit, TmaStorePlan, TmaStoreRejection};
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory};
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;
use crate::backend::ptx::tensor_map::TensorMap;
use crate::ir::op_table::Effect;
use crate::ir::{AtomicMode, Attr, AttrKind, BlockId, MemOrder, MemScope, Module, OpId, Opcode, Value};
use crate::layout::Conversion;
use crate::util::sort;

/// Bytes of a row that the lanes of a warp access together. From this number on, direct stores of
/// threads are as fast as TMA.
const MIN_DIRECT_ROW_BYTES: usize = 64;

const NO_BOXES: &str = "the tile does not consist of TMA boxes";

/// Minimum bytes of a tile per thread for a TMA store.
const MIN_BYTES_PER_THREAD: usize = 16;

/// Returns true if an op is an addition that TMA can execute: of a supported type, relaxed, and
/// with the scope of the CTA or the device.
fn is_tma_reduction(module: &Module, id: OpId) -> bool {
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
    /// Selects the stores of the kernel that use TMA, all with boxes of the whole CTA.
    pub fn select_tma_stores(&mut self) {
        if !self.is_enabled(Optimization::TmaStore) {
            return;
        }
        let planned = self.regions.ops().iter().filter_map(|&id| Some((id, self.plan_tma_store(id).ok()?)));
        let mut stores: FxHashMap<OpId, TmaStorePlan> = planned.collect();
        let others = self.arrays_accessed_by_threads(&|id| stores.contains_key(&id));
        stores.retain(|&id, _| others.as_ref().is_some_and(|others| !others.contains(&self.stored_array(id))));
        let layouts = stores.iter().map(|(&id, store)| (id, store.layout.clone()));
        self.inference.op_layouts.extend(layouts);
        self.tma_stores = stores;
    }

    /// Returns the array of a store through a view.
    pub fn stored_array(&self, id: OpId) -> Value {
        self.module.base(self.module.op(id).operand_group("view")[0])
    }

    /// Returns the arrays that a kernel accesses by other ops than TMA stores. `None` if these may
    /// be any arrays.
    pub fn arrays_accessed_by_threads(&self, is_tma_store: &dyn Fn(OpId) -> bool) -> Option<FxHashSet<Value>> {
        let module = self.module;
        let mut others: FxHashSet<Value> = FxHashSet::default();
        let mut unknown = false;
        for &id in self.regions.ops() {
            let op = module.op(id);
            match op.code {
                Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => {
                    let view = op.operand_group("view")[0];
                    unknown |= has_unknown_root(module, view);
                    others.extend((!is_tma_store(id)).then(|| module.base(view)));
                }
                Opcode::MemoryFenceAlias | Opcode::GdcWait | Opcode::GdcLaunchDependents => unknown = true,
                code => unknown |= matches!(code.spec().effect, Effect::Read | Effect::Write | Effect::ReadWrite),
            }
        }
        (!unknown).then_some(others)
    }

    /// Returns the reason why the attributes of an op exclude a TMA store.
    pub fn store_exclusion(&self, id: OpId) -> Option<TmaStoreRejection> {
        let op = self.module.op(id);
        match op.code {
            Opcode::StoreView if !is_weak(op) => Some(TmaStoreRejection::Order),
            Opcode::AtomicRedView if !is_tma_reduction(self.module, id) => Some(TmaStoreRejection::Operation),
            Opcode::StoreView | Opcode::AtomicRedView if !self.allows_tma(id) => Some(TmaStoreRejection::Hint),
            Opcode::StoreView | Opcode::AtomicRedView => None,
            _ => Some(TmaStoreRejection::Pointers),
        }
    }

    /// Returns true if all TMA stores to the array of this op are additions, which need no order.
    pub fn has_only_reductions(&self, id: OpId, tma_stores: impl IntoIterator<Item = OpId>) -> bool {
        let root = self.stored_array(id);
        let adds =
            |other: OpId| self.module.op(other).code == Opcode::AtomicRedView || self.stored_array(other) != root;
        tma_stores.into_iter().all(adds)
    }

    /// Returns the stores of loops that the threads execute, each with the first reason.
    pub fn missed_stores(&self) -> Vec<(OpId, String)> {
        let is_store = |code: Opcode| matches!(code, Opcode::StoreView | Opcode::StorePtr | Opcode::AtomicRedView);
        let in_loops = self.regions.ops().iter().copied().filter(|&id| self.regions.enclosing_loop(id).is_some());
        let stores = in_loops.filter(|&id| is_store(self.module.op(id).code));
        let direct = stores.filter(|id| !self.tma_stores.contains_key(id));
        let tiles = direct.filter(|&id| self.inference.num_elements(stored(self.module.op(id))) > 1);
        let reason = |id| match self.plan_tma_store(id) {
            Ok(_) if !self.is_enabled(Optimization::TmaStore) => TmaStoreRejection::Disabled,
            Ok(_) => TmaStoreRejection::Accessed,
            Err(reason) => reason,
        };
        tiles.map(|id| (id, reason(id).to_string())).collect_vec()
    }

    /// Returns the plan of a store, or the reason why TMA is not possible or not faster.
    fn plan_tma_store(&self, id: OpId) -> Result<TmaStorePlan, TmaStoreRejection> {
        if let Some(reason) = self.store_exclusion(id) {
            return Err(reason);
        }
        if self.inference.target.arch < FIRST_ARCH {
            return Err(TmaStoreRejection::Target);
        }
        if !self.options.tma {
            return Err(TmaStoreRejection::Disabled);
        }
        let module = self.module;
        let op = module.op(id);
        let (value, view) = (stored(op), op.operand_group("view")[0]);
        let layout = self.inference.natural(value).ok_or(TmaStoreRejection::Layout)?;
        let coalesced = self.inference.op_layouts.get(&id).ok_or(TmaStoreRejection::Layout)?;
        let shape = ViewShape::of(module, view).ok_or(TmaStoreRejection::View(NO_BOXES))?;
        let size = shape.elem.storage_bits() / 8;
        let bytes = layout.num_registers() * size as usize;
        if bytes < MIN_BYTES_PER_THREAD {
            return Err(TmaStoreRejection::Small { bytes, least: MIN_BYTES_PER_THREAD });
        }
        let run = self.inference.run_length(&shape, &layout) * size as usize;
        let conversion = Conversion::plan(&layout, coalesced, 8 * size, 0).ok_or(TmaStoreRejection::Layout)?;
        let moves = matches!(conversion, Conversion::Shared(_));
        if !moves && (!layout.is_same(coalesced) || run >= MIN_DIRECT_ROW_BYTES) {
            // Few or no elements move between threads, so direct stores are as good.
            return Err(TmaStoreRejection::Coalesced);
        }
        let axes = self.box_axes(view).ok_or(TmaStoreRejection::View(NO_BOXES))?;
        let tile = TmaBoxLayout::new(&layout, &axes, size as usize).ok_or(TmaStoreRejection::Layout)?;
        if !moves && run >= tile.row_bytes() {
            return Err(TmaStoreRejection::Coalesced);
        }
        self.store_map(id, &tile).map_err(TmaStoreRejection::View)?;
        tile.writes(&layout).ok_or(TmaStoreRejection::Layout)?;
        Ok(TmaStorePlan { layout, tile, staging: None })
    }

    /// Returns the tensor map of a store with these boxes.
    ///
    /// # Errors
    /// The reason why TMA does not support it.
    pub fn store_map(&self, id: OpId, tile: &TmaBoxLayout) -> Result<TensorMap, &'static str> {
        let op = self.module.op(id);
        let at = (op.operand_group("view")[0], op.operand_group("index"));
        self.tma_store_map(at, &tile.boxes, tile.swizzle, op.code == Opcode::AtomicRedView)
    }

    /// Returns the axes of the tiles of a view in the order of a box.
    pub fn box_axes(&self, view: Value) -> Option<Vec<usize>> {
        let shape = ViewShape::of(self.module, view)?;
        Some(box_order(shape.tile.len(), contiguous_axis(self.module, &shape)?).collect_vec())
    }

    /// Allocates staging buffers per warp, with warp specialization. `smem`: shared memory with all
    /// reservations for the whole kernel.
    pub fn allocate_staging_buffers(
        &mut self,
        body: BlockId,
        warp_spec: Option<&WarpSpecialization>,
        smem: &mut SharedMemory,
    ) {
        if let Some(warp_spec) = warp_spec {
            let fetched = |load| warp_spec.operand_channel(load).is_some();
            let others = self.other_smem_bytes(body, &fetched, false, CONVERSION_BYTES / self.consumer_groups());
            self.split_by_warp(self.consumer_groups() * others, warp_spec, smem);
        }
    }

    /// Plans TMA stores by warp, for arrays with one store op only. Each element is then always
    /// stored by the same warp, whose own waits order its stores. A stage is a staging buffer only
    /// in kernels with one TMA store. `others`: bytes of shared memory for other uses.
    fn split_by_warp(&mut self, others: u32, warp_spec: &WarpSpecialization, smem: &mut SharedMemory) {
        let mut ids: Vec<OpId> = self.tma_stores.keys().copied().collect_vec();
        sort::natural(&mut ids);
        for &id in &ids {
            let root = self.stored_array(id);
            let is_only_store = ids.iter().filter(|&&other| self.stored_array(other) == root).count() == 1;
            let stage_store = self.plan_stage_store(id, warp_spec);
            let warp_store =
                stage_store.or_else(|| if is_only_store { self.plan_warp_store(id, others, smem) } else { None });
            self.tma_stores.extend(warp_store.map(|store| (id, store)));
        }
    }

    /// Returns a store with boxes of each warp, and reserves its staging buffer.
    fn plan_warp_store(&self, id: OpId, others: u32, smem: &mut SharedMemory) -> Option<TmaStorePlan> {
        if !self.is_enabled(Optimization::WarpStaging) {
            return None;
        }
        let tile = self.warp_box_tile(id)?;
        let (warps, all) = (self.inference.num_warps as u32, self.consumer_warps());
        let capacity = self.smem_for_stages(smem).saturating_sub(others + 2 * SWIZZLE_ATOM_BYTES) / all;
        let split = StoreSplit::for_warp(&tile, capacity, warps)?;
        let buffer = smem.reserve(split.in_flight * split.bytes * all, SWIZZLE_ATOM_BYTES)?;
        let layout = self.tma_stores[&id].layout.clone();
        Some(TmaStorePlan { layout, tile, staging: Some(StagingBuffer { buffer, channel: None, split }) })
    }

    /// Returns a store with boxes of each warp whose staging buffer is a pipeline stage
    /// (`warp_specialize/epilogue_smem_reuse`).
    fn plan_stage_store(&self, id: OpId, warp_spec: &WarpSpecialization) -> Option<TmaStorePlan> {
        let channel = warp_spec.staging_channel_of(id)?;
        let (tile, warps) = (self.warp_box_tile(id)?, self.inference.num_warps as u32);
        let split = StoreSplit::for_stage(&tile, warp_spec.channels[channel as usize].stage_bytes, warps)?;
        let buffer = Buffer { offset: 0, bytes: split.in_flight * split.bytes * warps };
        let staging = Some(StagingBuffer { buffer, channel: Some(channel), split });
        Some(TmaStorePlan { layout: self.tma_stores[&id].layout.clone(), tile, staging })
    }

    /// Returns the boxes of each warp for the tile of a store.
    pub fn warp_box_tile(&self, id: OpId) -> Option<TmaBoxLayout> {
        let TmaStorePlan { layout, tile, .. } = &self.tma_stores[&id];
        let axes = self.box_axes(self.module.op(id).operand_group("view")[0])?;
        let tile = TmaBoxLayout::per_warp(layout, &axes, tile.shared.element_bytes)?;
        tile.writes(layout)?;
        self.store_map(id, &tile).ok()?;
        Some(tile)
    }
}
