//! Requested layouts: for unanchored values the layouts of their first uses, by a backward walk.

use std::collections::HashMap;

use super::state::core::{Inference, ValueOrigin};
use crate::ir::{BlockId, OpId, Opcode, Type, Value};
use crate::layout::Layout;

impl Inference<'_> {
    /// For each value whose layout is nobody's choice that of its first use, where there is one.
    pub fn collect_requested_layouts(&self, body: BlockId) -> HashMap<Value, Layout> {
        let mut requested_layouts = HashMap::new();
        let mut ops = Vec::new();
        self.module.walk(body, &mut |id| ops.push(id));
        let carried = self.carried_on(body);
        // What the end of a loop's body is used in is known when the uses of what the loop carries
        // are.
        let rounds = if carried.is_empty() { 1 } else { 2 };
        for &id in std::iter::repeat_n(&ops, rounds).flat_map(|ops| ops.iter().rev()) {
            for (position, value) in self.module.op(id).operands.iter().enumerate() {
                if self.is_unanchored(*value)
                    && let Some(layout) = self.used_in(id, position, &requested_layouts, &carried)
                    && layout.shape() == self.module.shape(*value)
                {
                    requested_layouts.insert(*value, layout);
                }
            }
        }
        requested_layouts.retain(|value, layout| self.layout(*value).is_some_and(|own| !own.is_same(layout)));
        requested_layouts
    }

    /// The layout in which an op uses an operand, if it has one of its own.
    fn used_in(
        &self,
        id: OpId,
        position: usize,
        requested_layouts: &HashMap<Value, Layout>,
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
            Opcode::Broadcast | Opcode::Reshape | Opcode::Permute | Opcode::Assume => {
                self.requested_through(id, requested_layouts)
            }
            Opcode::Loop => of(self.module.block(op.regions[0]).args[position]),
            Opcode::MmaF | Opcode::MmaI if position == 2 => of(op.results[0]),
            Opcode::LoadView => self.list_in(id, op.group(0)[0]).filter(|_| position > 0),
            Opcode::Gather if position > 0 => of(op.results[0]),
            Opcode::Gather => self.accesses.get(&id).cloned(),
            Opcode::StoreView if position > 0 => self.list_in(id, op.group(1)[0]),
            Opcode::StoreView
            | Opcode::AtomicRedView
            | Opcode::Reduce
            | Opcode::Scan
            | Opcode::Histogram
            | Opcode::LoadPtr
            | Opcode::StorePtr => self.accesses.get(&id).cloned(),
            Opcode::WithLayout => self.chosen(op),
            code if code.is_elementwise() => of(op.results[0]),
            _ => None,
        }
    }

    /// The values that a loop carries, by what its body ends with: each with its place in the next
    /// iteration.
    fn carried_on(&self, body: BlockId) -> Vec<(Value, Value)> {
        let mut pairs = Vec::new();
        self.module.walk(body, &mut |id| {
            let op = self.module.op(id);
            if op.code == Opcode::For {
                let block = self.module.block(op.regions[0]);
                let last = block.ops.last().map(|&last| self.module.op(last));
                if let Some(last) = last.filter(|last| last.code == Opcode::Continue) {
                    pairs.extend(last.operands.iter().copied().zip(block.args[1..].iter().copied()));
                }
            }
        });
        pairs.retain(|&(value, arg)| value != arg && self.is_unanchored(arg));
        pairs
    }

    /// The wish of an operand whose result only gives its elements another place.
    fn requested_through(&self, id: OpId, requested_layouts: &HashMap<Value, Layout>) -> Option<Layout> {
        let op = self.module.op(id);
        let result = op.results[0];
        (self.source(result) == ValueOrigin::View && matches!(self.module.ty(result), Type::Tile { .. }))
            .then(|| requested_layouts.get(&result).map(|wish| self.demand(id, wish)))?
    }
}
