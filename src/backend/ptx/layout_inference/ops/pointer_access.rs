//! Layouts of accesses through pointers.
//!
//! If addresses are contiguous along an axis ([`AxisInfoAnalysis`]), the access has a coalesced
//! layout: 16 bytes per thread if the addresses are aligned. Values that only such addresses and
//! masks use are deferred: the access computes them once for each vector. Any other access has the
//! layout of its pointers, else of its value, else of its mask.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::analysis::axis_info::{AxisInfoAnalysis, AxisPattern, PointerContiguity};
use super::super::analysis::pointer_ops::{mask_of, pointee, pointers_of};
use super::super::analysis::view_shape::{RUN_BYTES, VECTOR_BYTES};
use super::super::state::core::Inference;
use crate::backend::ptx::optimizations::Optimization;
use crate::ir::{Module, OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Maximum length of a chain of deferred ops.
const CHAIN: usize = 48;

impl Inference<'_> {
    /// Finds the accesses with contiguous addresses, and the values that only they use.
    pub fn collect_contiguous_pointers(&mut self) {
        if !self.optimizations.contains(Optimization::PointerContiguity) {
            return;
        }
        let module = self.module;
        let int_ranges = self.int_ranges.clone();
        let mut runs = AxisInfoAnalysis::new(module, &int_ranges);
        let regions = self.regions.clone();
        for &id in regions.ops() {
            let op = module.op(id);
            if let Some(pointers) = pointers_of(op)
                && let Some(run) = max_contiguity(module, &mut runs, pointers)
            {
                let order = memory_order(module.shape(pointers).len(), run.axis);
                let widest = self.blocked.entry((module.shape(pointers).to_vec(), order)).or_insert(1);
                *widest = (*widest).max(run.vector);
                self.pointer_contiguity.insert(id, run);
            }
        }
        self.deferred = self.deferred_values(regions.ops());
    }

    /// Sets the coalesced layouts of these accesses. The widest access of each form is known then.
    pub fn set_pointer_layouts(&mut self) {
        for (id, run) in self.pointer_contiguity.clone() {
            let pointers = self.module.op(id).operands[0];
            let shape = self.module.shape(pointers);
            let order = memory_order(shape.len(), run.axis);
            let vector = self.blocked[&(shape.to_vec(), order.clone())];
            let layout = self.blocked_layout(shape, &order, vector, 1);
            self.op_layouts.insert(id, layout);
        }
    }

    /// Returns the elementwise values that only addresses and masks of contiguous accesses use.
    fn deferred_values(&self, ops: &[OpId]) -> FxHashSet<Value> {
        let module = self.module;
        let mut requests: FxHashMap<Value, usize> = FxHashMap::default();
        let mut deferred = FxHashSet::default();
        for &id in ops.iter().rev() {
            let op = module.op(id);
            if self.pointer_contiguity.contains_key(&id) {
                let addresses = op.operands.first().into_iter().copied().chain(mask_of(op));
                addresses.for_each(|value| *requests.entry(value).or_default() += 1);
            } else if op.code.is_elementwise()
                && let &[result] = op.results.as_slice()
                && requests.get(&result).is_some_and(|&count| self.uses.count(result) == count)
                && self.num_elements(result) > 1
            {
                deferred.insert(result);
                op.operands.iter().for_each(|&value| *requests.entry(value).or_default() += 1);
            }
        }
        let mut lengths: FxHashMap<Value, usize> = FxHashMap::default();
        for &id in ops {
            let op = module.op(id);
            let Some(&result) = op.results.first().filter(|result| deferred.contains(result)) else { continue };
            let before = op.operands.iter().filter_map(|value| lengths.get(value)).max().copied().unwrap_or(0);
            if before < CHAIN {
                lengths.insert(result, before + 1);
            } else {
                deferred.remove(&result);
            }
        }
        deferred
    }

    /// Sets the layout of an access through pointers, and of its result.
    pub fn pointer_access(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let pointers = op.operands[0];
        let stored = match op.code {
            Opcode::LoadPtr => None,
            _ => Some(op.operands[1]),
        };
        let layout = match self.pointer_contiguity.get(&id).copied() {
            Some(run) => {
                let coalesced = self.op_layouts[&id].clone();
                let natural = stored.and_then(|value| self.natural(value));
                natural.filter(|layout| self.is_as_coalesced(pointers, run, layout, &coalesced)).unwrap_or(coalesced)
            }
            None => {
                let of_any = |values: &[Value]| self.elementwise_layout(values);
                let found = of_any(&[pointers]).or_else(|| stored.and_then(|value| of_any(&[value])));
                let found = found.or_else(|| mask_of(op).and_then(|mask| of_any(&[mask])));
                found.unwrap_or_else(|| self.default_layout(pointers))
            }
        };
        self.op_layouts.insert(id, layout.clone());
        for &result in op.results.iter().filter(|&&result| matches!(module.ty(result), Type::Tile { .. })) {
            self.set(result, layout.clone());
        }
    }

    /// Returns true if adjacent lanes access as many contiguous bytes as in the coalesced layout,
    /// or at least a sector.
    fn is_as_coalesced(&self, pointers: Value, run: PointerContiguity, layout: &Layout, coalesced: &Layout) -> bool {
        let size = pointee(self.module, pointers).map_or(1, |dtype| dtype.storage_bits().div_ceil(8) as usize);
        let shape = self.module.shape(pointers);
        let length = |layout: &Layout| {
            let inner: i64 = shape[run.axis + 1..].iter().product();
            let mut run_length = layout.vector_len(run.axis).min(run.vector) as i64;
            while run_length < shape[run.axis] && layout.lane_bases().contains(&((run_length * inner) as u32)) {
                run_length *= 2;
            }
            run_length as usize * size
        };
        length(layout) >= RUN_BYTES.min(length(coalesced))
    }
}

/// Returns the axes from the fastest in memory to the slowest: `axis`, then row-major.
fn memory_order(rank: usize, axis: usize) -> Vec<usize> {
    std::iter::once(axis).chain((0..rank).rev().filter(|&other| other != axis)).collect_vec()
}

/// Returns the axis of contiguous addresses and the widest access along it.
fn max_contiguity(module: &Module, runs: &mut AxisInfoAnalysis<'_>, pointers: Value) -> Option<PointerContiguity> {
    let dtype = pointee(module, pointers)?;
    let size = (dtype.storage_bits() as usize).div_ceil(8);
    let shape = module.shape(pointers);
    let mut best: Option<PointerContiguity> = None;
    for axis in (0..shape.len()).rev().filter(|&axis| shape[axis] > 1) {
        if runs.along(pointers, axis, 2).pattern != AxisPattern::Contiguous {
            continue;
        }
        let mut vector = 1;
        while 2 * vector * size <= VECTOR_BYTES && 2 * vector as i64 <= shape[axis] {
            let run = runs.along(pointers, axis, 2 * vector as u64);
            if run.pattern != AxisPattern::Contiguous || run.divisibility < (2 * vector * size) as u64 {
                break;
            }
            vector *= 2;
        }
        let extent = |run: &PointerContiguity| (run.vector, shape[run.axis]);
        let run = PointerContiguity { axis, vector };
        if best.as_ref().is_none_or(|best| extent(&run) > extent(best)) {
            best = Some(run);
        }
    }
    best
}
