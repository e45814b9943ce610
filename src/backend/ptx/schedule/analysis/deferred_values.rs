//! Deferred values: conditions, paddings and scalars computed at their use.

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{ConstData, OpId, Opcode, Type, Value};

impl KernelInfo<'_> {
    /// Returns true if a condition is the constant true.
    pub fn is_always_true(&self, condition: Value) -> bool {
        let maker = self.module.defining_op(condition).map(|id| self.module.op(id));
        matches!(maker.and_then(|op| op.const_data()), Some(ConstData::Splat(bits)) if bits & 1 == 1)
    }

    /// Returns the bits of a padding value that is equal for all elements. Without padding they are
    /// zero.
    pub fn constant_padding(&self, padding: Option<Value>) -> Option<u64> {
        let Some(mut value) = padding else { return Some(0) };
        loop {
            let op = self.module.op(self.module.defining_op(value)?);
            match op.code {
                code if code.has_operand_elements() => value = op.operands[0],
                _ => match op.const_data()? {
                    ConstData::Splat(bits) => return Some(*bits),
                    ConstData::Dense(_) => return None,
                },
            }
        }
    }

    /// Returns the tiles that the deferred operands of an op depend on, without rematerialized
    /// ones. They are in the order of their use.
    pub fn deferred_inputs(&self, id: OpId) -> Vec<Value> {
        let mut leaves = Vec::new();
        let mut pending = self.module.op(id).operands.clone();
        while let Some(value) = pending.pop() {
            match self.deferred_op(value) {
                Some(op) => pending.extend(&self.module.op(op).operands),
                // Rematerialized values need no layout conversion.
                None if matches!(self.module.ty(value), Type::Tile { .. })
                    && self.inference.origin(value) != ValueOrigin::Rematerialized =>
                {
                    leaves.push(value);
                }
                None => {}
            }
        }
        leaves
    }

    /// Returns the op of a deferred value.
    pub fn deferred_op(&self, value: Value) -> Option<OpId> {
        self.module.defining_op(value).filter(|id| self.rematerialized.contains(id))
    }
}

/// Returns true if the op only renames values, or its result is computed at its use.
pub fn is_computed_at_use(info: &KernelInfo<'_>, id: OpId) -> bool {
    let op = info.module.op(id);
    let renames = op.code.is_alias() || matches!(op.code, Opcode::Constant | Opcode::Iota);
    let named = op.code == Opcode::WithLayout && info.inference.origin(op.results[0]) == ValueOrigin::View;
    renames || named || op.code.is_elementwise() && info.inference.origin(op.results[0]) == ValueOrigin::Rematerialized
}
