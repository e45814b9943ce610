//! The operands of a value that is computed at its use, in the layout of the use.

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{OpId, Opcode, Value};
use crate::layout::Layout;

impl KernelInfo<'_> {
    /// Returns the operands of an elementwise op or a view, each in the layout in which it gives
    /// the result in layout `wanted`.
    pub fn inputs_in_layout(&self, id: OpId, wanted: &Layout) -> Vec<(Value, Layout)> {
        let op = self.module.op(id);
        let layout = match op.code {
            Opcode::Broadcast | Opcode::Reshape | Opcode::Permute | Opcode::Assume | Opcode::WithLayout => {
                self.inference.demand(id, wanted)
            }
            _ => wanted.clone(),
        };
        op.operands.iter().map(|&operand| (operand, layout.clone())).collect()
    }
}

/// Values that are available in some layouts, and can be made available in others.
pub trait Materialize {
    type Error;

    /// The kernel of the values.
    fn info(&self) -> &KernelInfo<'_>;

    /// Returns true if a value is available in this layout.
    fn is_available(&self, value: Value, layout: &Layout) -> bool;

    /// Makes a value available in this layout.
    fn materialize(&mut self, value: Value, layout: &Layout) -> Result<(), Self::Error>;

    /// Materializes the operands of a view or a rematerialized value iteratively: chains may be
    /// longer than the stack.
    fn materialize_inputs(&mut self, value: Value, wanted: &Layout) -> Result<(), Self::Error> {
        let mut pending = self.missing_inputs(value, wanted);
        while let Some((operand, layout)) = pending.pop() {
            let missing = self.missing_inputs(operand, &layout);
            if missing.is_empty() {
                self.materialize(operand, &layout)?;
            } else {
                pending.push((operand, layout));
                pending.extend(missing);
            }
        }
        Ok(())
    }

    /// Returns the views and rematerialized values among the operands that are not available, the
    /// first one last.
    fn missing_inputs(&self, value: Value, wanted: &Layout) -> Vec<(Value, Layout)> {
        let info = self.info();
        let at_use = |value: Value| info.inference.source(value) != ValueOrigin::Register;
        let Some(id) = info.module.defining_op(value).filter(|_| at_use(value)) else { return Vec::new() };
        let mut missing = info.inputs_in_layout(id, wanted);
        missing.retain(|&(operand, ref layout)| {
            info.inference.num_elements(operand) > 1 && at_use(operand) && !self.is_available(operand, layout)
        });
        missing.reverse();
        missing
    }
}
