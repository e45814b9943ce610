//! Layouts of elementwise ops, and of ops without a family.

use super::super::state::core::{Inference, ValueOrigin};
use crate::ir::{OpId, Type};

impl Inference<'_> {
    /// Sets the layout of an elementwise op: that of its largest operand, else the requested one.
    pub fn elementwise(&mut self, id: OpId) {
        let op = self.module.op(id);
        let result = op.results[0];
        if self.origin(result) == ValueOrigin::Register {
            let layout = match self.elementwise_layout(&op.operands) {
                Some(layout) if self.has_unanchored_operands_only(&op.operands) => {
                    self.unanchored.insert(result);
                    self.requested_layouts.get(&result).cloned().unwrap_or(layout)
                }
                Some(layout) => {
                    self.unanchored.remove(&result);
                    layout
                }
                None => self.unanchored_layout(result),
            };
            self.set(result, layout);
        }
    }

    /// Sets the default layout for the results of an op without a family.
    pub fn other_op(&mut self, id: OpId) {
        // Scalars, e.g. CTA ids, are equal in all threads. Views have no registers.
        for &result in &self.module.op(id).results {
            if matches!(self.module.ty(result), Type::Tile { .. }) && self.origin(result) == ValueOrigin::Register {
                let layout = self.default_layout(result);
                self.set(result, layout);
            }
        }
    }
}
