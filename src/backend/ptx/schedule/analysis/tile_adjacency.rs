//! Tile adjacency: adjacent tiles of one array, and disjoint accesses to it, found by their start
//! coordinates.

use crate::backend::ptx::layout_inference::ViewShape;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::memory_effects::{MemoryEffect, Residues};
use crate::backend::ptx::tensor_map::MAX_EXTENT;
use crate::ir::{OpId, Opcode, Value};
use crate::util::collect::CollectVec as _;

/// Start of a tile along an axis, in elements: `factor` times a dynamic number, plus `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    number: Option<Value>,
    factor: i128,
    offset: i128,
}

/// Magnitude of a start from which on the whole tile is outside of every array that TMA supports.
const OUT_OF_RANGE: i128 = 2 * MAX_EXTENT as i128;

impl KernelInfo<'_> {
    /// Returns the memory effect of an op, if it has one.
    pub fn memory_effect_of(&self, id: OpId) -> Option<MemoryEffect> {
        let layout = |tensor: OpId| {
            let layout = self.inference.op_layouts.get(&id)?;
            // A tensor that a loop defines may have another address in each iteration.
            (!self.is_in_loop(tensor)).then(|| layout.clone())
        };
        MemoryEffect::of(self.module, id, self.is_result_used(id), layout, self.residues(id))
    }

    /// Returns true if a load begins `distance` elements after another one along an axis, and at
    /// the same start along all other axes. Both tiles belong to one array and have equal extents
    /// along the other axes. The start of a tile outside of every array is irrelevant.
    pub fn is_adjacent_after(&self, load: OpId, other: OpId, axis: usize, distance: i64) -> bool {
        let (op, before) = (self.module.op(load), self.module.op(other));
        let shapes = [op, before].map(|op| ViewShape::of(self.module, op.group(0)[0]));
        let [Some(here), Some(there)] = shapes else { return false };
        let alike = here.sparse.is_none() && there.sparse.is_none() && here.dim_map == there.dim_map;
        if !alike || here.tensor != there.tensor || op.attrs != before.attrs {
            return false;
        }
        (0..here.tile.len()).all(|d| {
            let required = if d == axis { distance } else { 0 };
            let [here_at, there_at] =
                [(op, &here), (before, &there)].map(|(op, shape)| (op.group(1)[d], shape.steps[d]));
            (d == axis || here.tile[d] == there.tile[d])
                && self.distance_between(self.start(there_at), self.start(here_at)) == Some(required.into())
        })
    }

    /// Returns the residues of the elements of an access through a view, along the dimensions whose
    /// starts have a constant remainder. The tensor view is defined outside of loops.
    fn residues(&self, id: OpId) -> Vec<Residues> {
        let op = self.module.op(id);
        if !matches!(op.code, Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView) {
            return Vec::new();
        }
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index"));
        let shape = ViewShape::of(self.module, view).filter(|shape| shape.sparse.is_none());
        let Some(shape) = shape.filter(|shape| !self.is_in_loop(shape.tensor)) else { return Vec::new() };
        let along = |axis: usize| {
            let Start { factor: modulus, offset, .. } = self.start((index[axis], shape.steps[axis]));
            let first = if modulus > 0 { offset.rem_euclid(modulus) } else { return None };
            let range = (first, first + i128::from(shape.tile[axis]));
            let (tensor, dim) = (shape.tensor, shape.dim_map[axis]);
            (range.1 <= modulus).then_some(Residues { tensor, dim, modulus, range })
        };
        (0..shape.tile.len()).filter_map(along).collect_vec()
    }

    /// Returns the distance between two starts, if it is constant.
    fn distance_between(&self, from: Start, to: Start) -> Option<i128> {
        let alike = (from.number, from.factor) == (to.number, to.factor);
        alike.then_some(to.offset - from.offset)
    }

    /// Returns the start of the tile with this index. Tiles begin every `step` elements.
    fn start(&self, (index, step): (Value, i64)) -> Start {
        let mut start = Start { number: Some(index), factor: step.into(), offset: 0 };
        while let Some(next) = start.number.and_then(|number| self.simpler(start, number)) {
            start = next;
        }
        start
    }

    /// Returns the same start in terms of an operand of its number.
    fn simpler(&self, start: Start, number: Value) -> Option<Start> {
        if let Some(constant) = self.inference.int_ranges.constant(number) {
            let offset = start.offset + start.factor * i128::from(constant);
            return Some(Start { number: None, factor: 0, offset });
        }
        let op = self.module.op(self.module.defining_op(number)?);
        if op.code == Opcode::Assume {
            return Some(Start { number: Some(op.operands[0]), ..start });
        }
        let [a, b] = op.operands[..] else { return None };
        let (value, constant) = match (self.inference.int_ranges.constant(a), self.inference.int_ranges.constant(b)) {
            (_, Some(constant)) => (a, i128::from(constant)),
            (Some(constant), None) if op.code != Opcode::SubI => (b, i128::from(constant)),
            _ => return None,
        };
        let (factor, offset) = match op.code {
            Opcode::AddI => (1, constant),
            Opcode::SubI => (1, -constant),
            Opcode::MulI => (constant, 0),
            // The clamped starts are outside of all arrays, before and after clamping.
            Opcode::MinI | Opcode::MaxI if (constant * start.factor).abs() - start.offset.abs() >= OUT_OF_RANGE => {
                (1, 0)
            }
            _ => return None,
        };
        let bits = self.module.dtype(number).bits();
        let most = (1i128 << (bits - 1)) - 1;
        let range = self.inference.int_ranges.range(value)?;
        let holds = |bound: i64| (-most - 1..=most).contains(&(i128::from(bound) * factor + offset));
        (holds(range.lo) && holds(range.hi)).then_some(Start {
            number: Some(value),
            factor: start.factor * factor,
            offset: start.offset + start.factor * offset,
        })
    }
}
