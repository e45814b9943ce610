//! Coalesced layouts of view accesses (Triton `Coalesce`).
//!
//! A thread accesses 16 bytes if alignment and contiguity are proved; adjacent threads access
//! adjacent elements. Accesses of one tile shape in a kernel share a layout.
//!
//! Deferred loads are loads of tiles with at most one element per thread, e.g. of one scale for
//! each row of an MMA. From a coalesced layout, each conversion would need a barrier. Such a load,
//! and the values that are computed from such loads alone, are therefore unanchored: each thread
//! loads the elements that it uses. The same holds for large tiles that an epilogue combines with
//! an accumulator, such as a residual: the ops on both can then be strip-mined.

use super::super::analysis::strided_reduction::{ROW_BYTES, StridedReduction, strided_reductions};
use super::super::analysis::view_shape::{RUN_BYTES, VECTOR_BYTES, ViewShape, contiguous_axis, stored};
use super::super::layouts::rows_of_lanes::rows_of_lanes;
use super::super::state::core::Inference;
use crate::backend::ptx::optimizations::Optimization;
use crate::ir::{Def, Module, OpId, Opcode, Value};
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// Maximum number of elements of a deferred load in a thread. With more, a conversion through
/// shared memory is cheaper.
const MAX_ELEMENTS: usize = 16;

/// Maximum number of accesses of 16 bytes of a deferred load in a thread.
const MAX_WIDE_ACCESSES: usize = 4;

/// Maximum number of accesses of a deferred load in a loop with MMAs, and the minimum number of
/// their bytes. A conversion has as many, and a barrier at which the MMAs of all warps wait.
const MAX_MMA_LOOP_ACCESSES: usize = 16;
const MIN_MMA_LOOP_BYTES: usize = 8;

/// Minimum number of elements of a thread of a deferred load in an epilogue. With fewer, both tiles
/// fit into the registers.
const MIN_EPILOGUE_ELEMENTS: usize = 128;

/// Minimum number of contiguous bytes of such a load. The rest of a sector of 32 bytes is in the
/// cache for the next access.
const MIN_RUN_BYTES: usize = 16;

/// Maximum length of a chain of elementwise ops after an MMA.
const MAX_DEPTH: usize = 24;

/// Returns the tile dimensions from the fastest in memory to the slowest, as far as known.
fn memory_order(module: &Module, view: &ViewShape) -> Vec<usize> {
    let fastest = contiguous_axis(module, view);
    let mut order: Vec<usize> = fastest.into_iter().collect_vec();
    // Later dimensions of the array are otherwise assumed to be faster.
    let mut rest: Vec<usize> = (0..view.tile.len()).filter(|a| Some(*a) != fastest).collect_vec();
    sort::by_key(&mut rest, |&axis| std::cmp::Reverse(view.dim_map[axis]));
    order.extend(rest);
    order
}

impl Inference<'_> {
    /// Finds the widest access for each tile shape and memory order, and sets the coalesced
    /// layouts.
    pub fn set_coalesced_layouts(&mut self) {
        let module = self.module;
        let mut found = Vec::new();
        for &id in self.regions.ops() {
            let op = module.op(id);
            let (view, index) = match op.code {
                Opcode::LoadView => (op.group(0)[0], op.group(1)),
                Opcode::StoreView => (op.group(1)[0], op.group(2)),
                Opcode::AtomicRedView => (op.group(0)[0], op.group(1)),
                _ => continue,
            };
            let Some(view) = ViewShape::at(module, &self.int_ranges, view, index) else { continue };
            let order = memory_order(module, &view);
            let vector = contiguous_axis(module, &view).map_or(1, |axis| view.vector(module, &self.int_ranges, axis));
            let least = view.min_vector();
            found.push((id, view.tile, order, vector, least));
        }
        for (_, tile, order, vector, _) in &found {
            let widest = self.blocked.entry((tile.clone(), order.clone())).or_insert(1);
            *widest = (*widest).max(*vector);
        }
        for (id, tile, order, _, least) in found {
            let vector = self.blocked[&(tile.clone(), order.clone())];
            let layout = self.blocked_layout(&tile, &order, vector, least);
            self.op_layouts.insert(id, layout);
        }
        if self.optimizations.contains(Optimization::StridedReduction) {
            self.set_layouts_of_strided_reductions();
        }
    }

    /// Sets the layouts of loads that are reduced along a strided axis: lanes load rows of one
    /// cache line, and the reduction needs no exchange between warps if the contiguous axis has
    /// enough cache lines.
    fn set_layouts_of_strided_reductions(&mut self) {
        for StridedReduction { load, contiguous, reduced } in strided_reductions(self.module, &self.regions) {
            let Some(layout) = self.op_layouts.get(&load) else { continue };
            let vector = layout.vector_len(contiguous);
            let bits = self.module.dtype(self.module.op(load).results[0]).storage_bits() as usize;
            let run = (ROW_BYTES * 8 / bits / vector).max(1);
            let rows = rows_of_lanes(layout.shape(), (contiguous, vector, run), reduced, self.num_warps);
            self.op_layouts.insert(load, rows);
        }
    }

    /// Sets the layout of a store or reduction to a view: that of its value if its accesses are
    /// efficient, else the coalesced one.
    pub fn store(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let value = stored(op);
        let Some(layout) = self.natural(value) else { return };
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index"));
        let Some(view) = ViewShape::at(module, &self.int_ranges, view, index) else { return };
        let size = view.elem.storage_bits().div_ceil(8) as usize;
        let coalesced = &self.op_layouts[&id];
        if self.has_user_layout(value) {
            self.op_layouts.insert(id, layout);
            return;
        }
        let enough = RUN_BYTES.min(self.run_length(&view, coalesced) * size);
        if self.run_length(&view, &layout) * size >= enough {
            self.op_layouts.insert(id, layout);
        }
    }

    /// Returns the layout of a load: the coalesced one, or the requested one of a deferred load.
    pub fn load(&mut self, id: OpId) -> Layout {
        let op = self.module.op(id);
        let value = op.results[0];
        let Some(coalesced) = self.op_layouts.get(&id).cloned() else { return self.default_layout(value) };
        let elements = self.num_elements(value);
        let is_enabled = self.optimizations.contains(Optimization::DeferredLoad) && op.is_weak_load();
        let is_small = elements > 1 && elements <= self.num_threads();
        let least = self.min_elements_with_accumulator(id);
        let is_large = least.is_some_and(|least| coalesced.num_registers() >= least);
        if !is_enabled || !is_small && !is_large {
            return coalesced;
        }
        self.unanchored.insert(value);
        let requested = self.requested_layouts.get(&value).map(Layout::canonical);
        let fits = |layout: &Layout| match is_small {
            true => layout.num_registers() <= MAX_ELEMENTS || self.has_wide_accesses(id, layout),
            false => layout.num_registers() == coalesced.num_registers() && self.run_bytes(id, layout) >= MIN_RUN_BYTES,
        };
        let layout = requested.filter(fits).unwrap_or(coalesced);
        self.op_layouts.insert(id, layout.clone());
        layout
    }

    /// Returns true if each thread loads a tile by a few accesses of the largest size. In a loop
    /// with MMAs, more and narrower ones are few.
    fn has_wide_accesses(&self, load: OpId, layout: &Layout) -> bool {
        let op = self.module.op(load);
        let Some(view) = ViewShape::at(self.module, &self.int_ranges, op.group(0)[0], op.group(1)) else {
            return false;
        };
        let Some(axis) = contiguous_axis(self.module, &view) else { return false };
        let vector = view.vector(self.module, &self.int_ranges, axis).min(layout.vector_len(axis));
        let bytes = vector * view.elem.storage_bits() as usize / 8;
        let count = layout.num_registers() / vector;
        let in_mma_loop = self.regions.enclosing_loop(load).is_some_and(|id| self.regions.has_mma(id));
        bytes == VECTOR_BYTES && count <= MAX_WIDE_ACCESSES
            || in_mma_loop && bytes >= MIN_MMA_LOOP_BYTES && count <= MAX_MMA_LOOP_ACCESSES
    }

    /// Returns the number of contiguous bytes that the lanes of a warp load with one vector each.
    fn run_bytes(&self, load: OpId, layout: &Layout) -> usize {
        let op = self.module.op(load);
        let view = ViewShape::at(self.module, &self.int_ranges, op.group(0)[0], op.group(1));
        view.map_or(0, |view| self.run_length(&view, layout) * view.elem.storage_bits() as usize / 8)
    }

    /// Returns the number of elements of a thread from which on a load is deferred. The tile must
    /// be combined with the result of an MMA after elementwise ops of its own. Without deferred
    /// loads, a loop that adds tiles to the result would convert it first.
    fn min_elements_with_accumulator(&self, load: OpId) -> Option<usize> {
        let module = self.module;
        let ops = &module.block(self.regions.block_of(load)?).ops;
        let mut value = module.op(load).results[0];
        if self.mma_plans.is_empty() || ops.iter().any(|&id| module.op(id).code.is_mma()) {
            return None;
        }
        let after = ops.iter().skip_while(|&&id| id != load).skip(1);
        for &id in after {
            let op = module.op(id);
            if !op.operands.contains(&value) {
                continue;
            }
            if self.uses.count(value) != 1 || !op.code.is_elementwise() && !op.code.is_bijective_alias() {
                return None;
            }
            let mut others = op.operands.iter().filter(|&&other| other != value);
            if others.clone().any(|&other| self.is_carried_accumulator(other)) {
                return Some(1);
            }
            if others.any(|&other| self.is_from_accumulator(other, 0)) {
                return Some(MIN_EPILOGUE_ELEMENTS);
            }
            value = op.results[0];
        }
        None
    }

    /// Returns true if a `for` carries a tile whose initial value is from an accumulator.
    fn is_carried_accumulator(&self, value: Value) -> bool {
        let Def::Arg(block, position) = self.module.def(value) else { return false };
        let Some(owner) = self.regions.parent(block) else { return false };
        let op = self.module.op(owner);
        op.code == Opcode::For && position > 0 && self.is_from_accumulator(op.group(3)[position as usize - 1], 0)
    }

    /// Returns true if a tile is computed elementwise from the result of an MMA or of a loop with
    /// MMAs.
    fn is_from_accumulator(&self, value: Value, depth: usize) -> bool {
        let Some(id) = self.module.defining_op(value) else { return false };
        let op = self.module.op(id);
        match op.code {
            code if code.is_mma() => true,
            Opcode::For => self.regions.has_mma(id),
            code if depth < MAX_DEPTH && (code.is_elementwise() || code.is_bijective_alias()) => {
                op.operands.iter().any(|&operand| self.is_from_accumulator(operand, depth + 1))
            }
            _ => false,
        }
    }
}
