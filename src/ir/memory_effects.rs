//! Memory effects of ops, and the roots of their addresses, for passes that move, merge or repeat
//! accesses.

use super::attr::{Attr, AttrKind, MemOrder};
use super::handle::{BlockId, OpId, Value};
use super::module::{Module, Op};
use super::op_table::{Effect, Opcode};

impl MemOrder {
    /// Returns true if later accesses remain after this one.
    pub fn acquires(self) -> bool {
        matches!(self, MemOrder::Acquire | MemOrder::AcqRel)
    }

    /// Returns true if earlier accesses remain before this one.
    pub fn releases(self) -> bool {
        matches!(self, MemOrder::Release | MemOrder::AcqRel)
    }
}

impl Op {
    /// Returns the memory order of an access.
    pub fn mem_order(&self) -> MemOrder {
        match self.attr(AttrKind::MemOrder) {
            Some(Attr::MemOrder(order)) => *order,
            _ => MemOrder::Weak,
        }
    }

    /// Returns true for a load without memory order, which can be repeated while memory does not
    /// change.
    pub fn is_weak_load(&self) -> bool {
        self.code.spec().effect == Effect::Read
            && self.attr(AttrKind::MemOrder) == Some(&Attr::MemOrder(MemOrder::Weak))
    }

    /// Returns the view or pointers that the op accesses.
    pub fn address(&self) -> Option<Value> {
        let names = ["view", "pointers", "source", "destination"];
        let group = self.code.spec().operands.iter().position(|operand| names.contains(&operand.name))?;
        self.group(group).first().copied()
    }
}

impl Module {
    /// Returns true if this op or a nested one may change memory or order accesses.
    pub fn changes_memory(&self, id: OpId) -> bool {
        let op = self.op(id);
        let changes = match op.code.spec().effect {
            Effect::Pure | Effect::Region | Effect::Terminator => false,
            // A load with a memory order synchronizes.
            Effect::Read => !op.is_weak_load(),
            Effect::Write | Effect::ReadWrite | Effect::Other => true,
        };
        changes || op.regions.iter().any(|&region| self.block_changes_memory(region))
    }

    /// Returns true if an op of this block or a nested one may change memory or order accesses.
    pub fn block_changes_memory(&self, block: BlockId) -> bool {
        self.block(block).ops.iter().any(|&id| self.changes_memory(id))
    }

    /// Returns the root of a view or pointers: the value before all views, offsets, assumptions and
    /// shape ops.
    pub fn base(&self, address: Value) -> Value {
        let mut base = address;
        while let Some(id) = self.defining_op(base) {
            let op = self.op(id);
            match op.code {
                Opcode::Offset | Opcode::PtrToPtr | Opcode::Extract => base = op.operands[0],
                code if code.is_view() || code.is_alias() => base = op.operands[0],
                _ => break,
            }
        }
        base
    }
}
