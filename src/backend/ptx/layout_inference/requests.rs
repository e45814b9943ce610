//! Requested layouts: for each unanchored value the layout of its first use.
//!
//! The ops are walked backward after the first propagation. Requests of the walk are used for
//! operands of earlier ops, so that a request passes through chains of unanchored ops.

use rustc_hash::FxHashMap;

use super::state::core::{Inference, ValueOrigin};
use crate::ir::{OpId, Opcode, Type, Value};
use crate::layout::Layout;

impl Inference<'_> {
    /// Returns the requested layouts that differ from the current layouts.
    pub fn collect_requested_layouts(&self) -> FxHashMap<Value, Layout> {
        let mut requested_layouts = FxHashMap::default();
        let carried = self.unanchored_carried();
        // The requests of values that a loop carries are known after the walk of its body, and the
        // requests of its `continue` depend on them.
        let rounds = if carried.is_empty() { 1 } else { 2 };
        for &id in std::iter::repeat_n(self.regions.ops(), rounds).flat_map(|ops| ops.iter().rev()) {
            for (position, value) in self.module.op(id).operands.iter().enumerate() {
                if self.is_unanchored(*value)
                    && let Some(layout) = self.requested_by(id, position, &requested_layouts, &carried)
                    && layout.shape() == self.module.shape(*value)
                {
                    requested_layouts.insert(*value, layout);
                }
            }
        }
        requested_layouts.retain(|value, layout| self.layout(*value).is_some_and(|own| !own.is_same(layout)));
        requested_layouts
    }

    /// Returns the layout that an op requests for an operand.
    fn requested_by(
        &self,
        id: OpId,
        position: usize,
        requested_layouts: &FxHashMap<Value, Layout>,
        carried: &[(Value, Value)],
    ) -> Option<Layout> {
        let op = self.module.op(id);
        let of = |value: Value| match self.unanchored.contains(&value) {
            true => requested_layouts.get(&value).cloned(),
            false => self.layout(value).cloned(),
        };
        match op.code {
            Opcode::For => {
                let carried = position.checked_sub(3)?;
                of(self.module.block(op.regions[0]).args[carried + 1])
            }
            Opcode::Continue => {
                let is_this = |&&(value, _): &&(Value, Value)| value == op.operands[position];
                of(carried.iter().find(is_this)?.1)
            }
            code if code.is_alias() => self.requested_by_view(id, requested_layouts),
            Opcode::Loop => of(self.module.block(op.regions[0]).args[position]),
            code if code.is_mma() && position == 2 => of(op.results[0]),
            Opcode::LoadView => self.index_list_layout(id, op.group(0)[0]).filter(|_| position > 0),
            Opcode::Gather if position > 0 => of(op.results[0]),
            Opcode::Gather => self.op_layouts.get(&id).cloned(),
            Opcode::StoreView if position > 0 => self.index_list_layout(id, op.group(1)[0]),
            Opcode::StoreView
            | Opcode::AtomicRedView
            | Opcode::Reduce
            | Opcode::Scan
            | Opcode::Histogram
            | Opcode::ClusterAllGather
            | Opcode::Ranks
            | Opcode::LoadPtr
            | Opcode::StorePtr => self.op_layouts.get(&id).cloned(),
            Opcode::WithLayout => self.chosen(op),
            code if code.is_elementwise() => of(op.results[0]),
            _ => None,
        }
    }

    /// Returns the operands of `continue`s, each with the unanchored carried value that it defines.
    fn unanchored_carried(&self) -> Vec<(Value, Value)> {
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

    /// Returns the layout that a view requests for its operand.
    fn requested_by_view(&self, id: OpId, requested_layouts: &FxHashMap<Value, Layout>) -> Option<Layout> {
        let op = self.module.op(id);
        let result = op.results[0];
        (self.origin(result) == ValueOrigin::View && matches!(self.module.ty(result), Type::Tile { .. }))
            .then(|| requested_layouts.get(&result).map(|requested| self.demand(id, requested)))?
    }
}
