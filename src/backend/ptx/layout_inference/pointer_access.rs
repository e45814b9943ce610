//! Layouts of accesses through pointers.
//!
//! If addresses are contiguous along an axis ([`AxisInfoAnalysis`]), the access has a coalesced
//! layout: 16 bytes per thread if the addresses are multiples of that. Values that only such
//! addresses and masks use are deferred: the access computes them once for each wide access. Any
//! other access has the layout of its pointers, else of its value.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Inference;
use super::axis_info::{AxisInfoAnalysis, AxisPattern, PointerContiguity};
use super::coalesce::{RUN_BYTES, VECTOR_BYTES};
use crate::dtype::DType;
use crate::ir::{Elem, Module, Op, OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Longest chains of ops that are left until they are asked for.
const CHAIN: usize = 48;

/// The pointers of an op that accesses memory through them.
pub fn pointers_of(op: &Op) -> Option<Value> {
    match op.code {
        Opcode::LoadPtr | Opcode::StorePtr | Opcode::AtomicRmw | Opcode::AtomicCas => Some(op.operands[0]),
        _ => None,
    }
}

/// The mask of such an op.
pub fn mask_of(op: &Op) -> Option<Value> {
    op.operand_group("mask").first().copied()
}

fn pointee(module: &Module, pointers: Value) -> Option<DType> {
    match module.ty(pointers) {
        Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } => Some(*pointee),
        _ => None,
    }
}

impl Inference<'_> {
    /// Finds the accesses whose addresses run, and what is computed for them alone.
    pub(super) fn collect_pointer_runs(&mut self) {
        let module = self.module;
        let facts = self.facts.clone();
        let mut runs = AxisInfoAnalysis::new(module, &facts);
        let regions = self.regions.clone();
        for &id in regions.ops() {
            let op = module.op(id);
            if let Some(pointers) = pointers_of(op)
                && let Some(run) = widest_run(module, &mut runs, pointers)
            {
                let order = run_order(module.shape(pointers).len(), run.axis);
                let widest = self.blocked.entry((module.shape(pointers).to_vec(), order)).or_insert(1);
                *widest = (*widest).max(run.vector);
                self.pointer_contiguity.insert(id, run);
            }
        }
        self.deferred = self.waiting_values(regions.ops());
    }

    /// The coalesced layouts of those accesses, when the widest access of each form is known.
    pub(super) fn place_pointer_runs(&mut self) {
        for (id, run) in self.pointer_contiguity.clone() {
            let pointers = self.module.op(id).operands[0];
            let shape = self.module.shape(pointers);
            let order = run_order(shape.len(), run.axis);
            let vector = self.blocked[&(shape.to_vec(), order.clone())];
            let layout = self.blocked_layout(shape, &order, vector, 1);
            self.accesses.insert(id, layout);
        }
    }

    /// Elementwise values that only addresses and masks of such accesses are made of.
    fn waiting_values(&self, ops: &[OpId]) -> FxHashSet<Value> {
        let module = self.module;
        let mut asked: FxHashMap<Value, usize> = FxHashMap::default();
        let mut deferred = FxHashSet::default();
        for &id in ops.iter().rev() {
            let op = module.op(id);
            if self.pointer_contiguity.contains_key(&id) {
                let addresses = op.operands.first().into_iter().copied().chain(mask_of(op));
                addresses.for_each(|value| *asked.entry(value).or_default() += 1);
            } else if op.code.is_elementwise()
                && let &[result] = op.results.as_slice()
                && asked.get(&result).is_some_and(|&count| self.uses.count(result) == count)
                && self.num_elements(result) > 1
            {
                deferred.insert(result);
                op.operands.iter().for_each(|&value| *asked.entry(value).or_default() += 1);
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

    /// The layout of an access through pointers; a load's result gets it.
    pub(super) fn pointer_access(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let pointers = op.operands[0];
        let stored = match op.code {
            Opcode::LoadPtr => None,
            _ => Some(op.operands[1]),
        };
        let layout = match self.pointer_contiguity.get(&id).copied() {
            Some(run) => {
                let coalesced = self.accesses[&id].clone();
                let natural = stored.and_then(|value| self.natural(value));
                natural.filter(|layout| self.is_as_good(pointers, run, layout, &coalesced)).unwrap_or(coalesced)
            }
            None => {
                let of_any = |values: &[Value]| self.elementwise_layout(values);
                let found = of_any(&[pointers]).or_else(|| stored.and_then(|value| of_any(&[value])));
                let found = found.or_else(|| mask_of(op).and_then(|mask| of_any(&[mask])));
                found.unwrap_or_else(|| self.default_layout(pointers))
            }
        };
        self.accesses.insert(id, layout.clone());
        for &result in op.results.iter().filter(|&&result| matches!(module.ty(result), Type::Tile { .. })) {
            self.set(result, layout.clone());
        }
    }

    /// Do the lanes of a warp touch as long a run of memory in this layout?
    fn is_as_good(&self, pointers: Value, run: PointerContiguity, layout: &Layout, coalesced: &Layout) -> bool {
        let size = pointee(self.module, pointers).map_or(1, |dtype| dtype.storage_bits().div_ceil(8) as usize);
        let shape = self.module.shape(pointers);
        let length = |layout: &Layout| {
            let inner: i64 = shape[run.axis + 1..].iter().product();
            let mut run_length = layout.vector_len(run.axis).min(run.vector) as i64;
            while run_length < shape[run.axis] && layout.lane_images().contains(&((run_length * inner) as u32)) {
                run_length *= 2;
            }
            run_length as usize * size
        };
        length(layout) >= RUN_BYTES.min(length(coalesced))
    }
}

/// The axis that runs in memory first, then the others as a row-major tile has them.
fn run_order(rank: usize, axis: usize) -> Vec<usize> {
    std::iter::once(axis).chain((0..rank).rev().filter(|&other| other != axis)).collect()
}

/// The axis along which the addresses run, and how wide an access may be.
fn widest_run(module: &Module, runs: &mut AxisInfoAnalysis<'_>, pointers: Value) -> Option<PointerContiguity> {
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

impl Inference<'_> {
    /// Is the mask of an access the same in every group of so many neighbours?
    pub fn is_same_in_groups(&self, value: Value, axis: usize, length: usize) -> bool {
        length < 2
            || AxisInfoAnalysis::new(self.module, &self.facts).along(value, axis, length as u64).pattern
                == AxisPattern::Constant
    }
}
