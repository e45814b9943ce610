//! Deferred loads: tiles with at most one element per thread, e.g. one scale per row of an MMA.
//!
//! A coalesced layout gives each thread at most one element, and each use in another layout then
//! needs a barrier. Such a load, and values computed from such loads alone, therefore have no
//! layout of their own. Each thread loads the elements that it uses, at their use.

use rustc_hash::FxHashMap;

use super::{Inference, ValueOrigin};
use crate::ir::{OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Elements that a thread loads itself; of more, the exchange through shared memory is left as it
/// is.
const MOST_ELEMENTS: usize = 16;

impl Inference<'_> {
    /// The layout of a load: that of its accesses, or, where it is thin, that of its first use.
    pub(super) fn load(&mut self, id: OpId) -> Layout {
        let value = self.module.op(id).results[0];
        let Some(coalesced) = self.accesses.get(&id).cloned() else { return self.default_layout(value) };
        let elements = self.num_elements(value);
        if elements == 1 || elements > self.num_warps * 32 || !self.module.op(id).is_weak_load() {
            return coalesced;
        }
        self.unanchored.insert(value);
        let wish = self.requested_layouts.get(&value).map(Layout::canonical);
        let layout = wish.filter(|layout| layout.num_registers() <= MOST_ELEMENTS).unwrap_or(coalesced);
        self.accesses.insert(id, layout.clone());
        layout
    }

    /// Is the layout of a value, or of what it is another view of, nobody's choice?
    pub(super) fn is_unanchored(&self, value: Value) -> bool {
        if self.unanchored.contains(&value) {
            return true;
        }
        let Some(op) = self.module.defining_op(value).map(|op| self.module.op(op)) else { return false };
        self.source(value) == ValueOrigin::View
            && self.num_elements(op.operands[0]) > 1
            && self.is_unanchored(op.operands[0])
    }

    /// Is an elementwise op computed from such values alone, in a layout that they have?
    pub(super) fn has_unanchored_operands_only(&self, operands: &[Value]) -> bool {
        operands
            .iter()
            .all(|&value| self.num_elements(value) == 1 || self.natural(value).is_none() || self.is_unanchored(value))
    }

    /// The values that a loop carries, by what its body ends with: each with its place in the next
    /// iteration.
    pub(super) fn carried_on(&self) -> Vec<(Value, Value)> {
        let mut pairs = Vec::new();
        for &id in self.regions.ops() {
            let op = self.module.op(id);
            if op.code == Opcode::For {
                let block = self.module.block(op.regions[0]);
                let last = block.ops.last().map(|&last| self.module.op(last));
                if let Some(last) = last.filter(|last| last.code == Opcode::Continue) {
                    pairs.extend(last.operands.iter().copied().zip(block.args[1..].iter().copied()));
                }
            }
        }
        pairs.retain(|&(value, arg)| value != arg && self.is_unanchored(arg));
        pairs
    }

    /// The wish of an operand whose result only gives its elements another place.
    pub(super) fn requested_through(&self, id: OpId, requested_layouts: &FxHashMap<Value, Layout>) -> Option<Layout> {
        let op = self.module.op(id);
        let result = op.results[0];
        (self.source(result) == ValueOrigin::View && matches!(self.module.ty(result), Type::Tile { .. }))
            .then(|| requested_layouts.get(&result).map(|wish| self.demand(id, wish)))?
    }
}
