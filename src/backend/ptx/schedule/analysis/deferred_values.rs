//! Deferred values: conditions, paddings and scalars computed at their use.

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{ConstData, OpId, Opcode, Type, Value};

impl KernelInfo<'_> {
    /// Is a condition known to hold?
    pub fn is_always_true(&self, condition: Value) -> bool {
        let maker = self.module.defining_op(condition).map(|id| self.module.op(id));
        matches!(maker.and_then(|op| op.const_data()), Some(ConstData::Splat(bits)) if bits & 1 == 1)
    }

    /// The bits of a padding value that is the same for all elements; none needed is zero.
    pub fn constant_padding(&self, padding: Option<Value>) -> Option<u64> {
        let Some(mut value) = padding else { return Some(0) };
        loop {
            let op = self.module.op(self.module.defining_op(value)?);
            match op.code {
                Opcode::Broadcast | Opcode::Reshape => value = op.operands[0],
                _ => match op.const_data()? {
                    ConstData::Splat(bits) => return Some(*bits),
                    ConstData::Dense(_) => return None,
                },
            }
        }
    }

    /// What deferred ops of this one are made of, of what is not free: in the order in which it is
    /// asked for.
    pub fn deferred_inputs(&self, id: OpId) -> Vec<Value> {
        let mut leaves = Vec::new();
        let mut pending = self.module.op(id).operands.clone();
        while let Some(value) = pending.pop() {
            match self.deferred_op(value) {
                Some(op) => pending.extend(&self.module.op(op).operands),
                // What is free needs no exchange wherever it is computed.
                None if matches!(self.module.ty(value), Type::Tile { .. })
                    && self.inference.source(value) != ValueOrigin::Rematerialized =>
                {
                    leaves.push(value);
                }
                None => {}
            }
        }
        leaves
    }

    /// The op of a value that is computed where it is used.
    pub fn deferred_op(&self, value: Value) -> Option<OpId> {
        self.module.defining_op(value).filter(|id| self.rematerialized.contains(id))
    }
}

/// Does the op only name values, or give what is computed where it is used?
pub fn is_computed_at_use(info: &KernelInfo<'_>, id: OpId) -> bool {
    let op = info.module.op(id);
    let renames = matches!(op.code, Opcode::Constant | Opcode::Iota | Opcode::Assume)
        || matches!(op.code, Opcode::Broadcast | Opcode::Reshape | Opcode::Permute);
    let named = op.code == Opcode::WithLayout && info.inference.source(op.results[0]) == ValueOrigin::View;
    renames || named || op.code.is_elementwise() && info.inference.source(op.results[0]) == ValueOrigin::Rematerialized
}
