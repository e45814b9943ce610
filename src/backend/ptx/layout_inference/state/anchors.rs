//! Unanchored values: values whose layout no anchor determines.

use super::core::{Inference, ValueOrigin};
use crate::ir::Value;
use crate::layout::Layout;

impl Inference<'_> {
    /// Is the layout of a value, or of what it is another view of, nobody's choice?
    pub fn is_unanchored(&self, value: Value) -> bool {
        if self.unanchored.contains(&value) {
            return true;
        }
        let Some(op) = self.module.defining_op(value).map(|op| self.module.op(op)) else { return false };
        self.source(value) == ValueOrigin::View
            && self.num_elements(op.operands[0]) > 1
            && self.is_unanchored(op.operands[0])
    }

    /// Is an elementwise op computed from such values alone, in a layout that they have?
    pub fn has_unanchored_operands_only(&self, operands: &[Value]) -> bool {
        operands
            .iter()
            .all(|&value| self.num_elements(value) == 1 || self.natural(value).is_none() || self.is_unanchored(value))
    }

    /// The layout of a value that no operand has a layout for.
    pub fn unanchored_layout(&mut self, value: Value) -> Layout {
        self.unanchored.insert(value);
        self.requested_layouts.get(&value).cloned().unwrap_or_else(|| self.default_layout(value))
    }
}
