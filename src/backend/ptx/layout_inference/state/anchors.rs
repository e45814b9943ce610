//! Unanchored values: values whose layout no anchor determines.

use super::core::{Inference, ValueOrigin};
use crate::ir::Value;
use crate::layout::Layout;

impl Inference<'_> {
    /// Returns true if a value, or the value that it is a view of, is unanchored.
    pub fn is_unanchored(&self, value: Value) -> bool {
        if self.unanchored.contains(&value) {
            return true;
        }
        let Some(op) = self.module.defining_op(value).map(|op| self.module.op(op)) else { return false };
        self.origin(value) == ValueOrigin::View
            && self.num_elements(op.operands[0]) > 1
            && self.is_unanchored(op.operands[0])
    }

    /// Returns true if all operands with a layout are unanchored.
    pub fn has_unanchored_operands_only(&self, operands: &[Value]) -> bool {
        operands
            .iter()
            .all(|&value| self.num_elements(value) == 1 || self.natural(value).is_none() || self.is_unanchored(value))
    }

    /// Marks a value as unanchored and returns its layout: the requested or the default one.
    pub fn unanchored_layout(&mut self, value: Value) -> Layout {
        self.unanchored.insert(value);
        self.requested_layouts.get(&value).cloned().unwrap_or_else(|| self.default_layout(value))
    }

    /// Returns the layout of an elementwise op: that of the operand with the most distinct
    /// elements. Of several, anchored ones are first: unanchored ones follow their layout.
    pub fn elementwise_layout(&self, operands: &[Value]) -> Option<Layout> {
        let mut best: Option<((usize, bool), Layout)> = None;
        for &operand in operands {
            let Some(layout) = self.natural(operand) else { continue };
            let weight = (layout.num_elements() / layout.replication(), !self.is_unanchored(operand));
            if best.as_ref().is_none_or(|(w, _)| weight > *w) {
                best = Some((weight, layout));
            }
        }
        best.map(|(_, layout)| layout)
    }
}
