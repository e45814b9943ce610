//! The operands of a value that is computed at its use, in the layout of the use.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{OpId, Opcode, Value};
use crate::layout::Layout;

impl KernelInfo<'_> {
    /// Returns the operands of an elementwise op or a view, each in the layout from which the
    /// result in layout `required` is computed.
    pub fn inputs_in_layout(&self, id: OpId, required: &Layout) -> Vec<(Value, Layout)> {
        let op = self.module.op(id);
        let layout = match op.code {
            Opcode::Broadcast | Opcode::Reshape | Opcode::Permute | Opcode::Assume | Opcode::WithLayout => {
                self.inference.demand(id, required)
            }
            _ => required.clone(),
        };
        op.operands.iter().map(|&operand| (operand, layout.clone())).collect_vec()
    }

    /// Returns the views and rematerialized values from which a value in layout `required` is
    /// computed, inputs first, without available values. The traversal is iterative, since a chain
    /// may be longer than the stack.
    pub fn missing_inputs(
        &self,
        value: Value,
        required: &Layout,
        is_available: &dyn Fn(Value, &Layout) -> bool,
    ) -> Vec<(Value, Layout)> {
        let at_use = |value: Value| self.inference.origin(value) != ValueOrigin::Register;
        if !at_use(value) {
            return Vec::new();
        }
        let mut planned: Vec<(Value, Layout)> = Vec::new();
        let mut layouts: FxHashMap<Value, Vec<Layout>> = FxHashMap::default();
        let mut pending = vec![(value, required.clone())];
        while let Some((value, required)) = pending.pop() {
            let id = self.module.defining_op(value).filter(|_| at_use(value));
            let mut missing = id.map_or_else(Vec::new, |id| self.inputs_in_layout(id, &required));
            missing.retain(|&(operand, ref layout)| {
                let is_planned = || layouts.get(&operand).is_some_and(|all| all.iter().any(|one| one.is_same(layout)));
                let computed = self.inference.num_elements(operand) > 1 && at_use(operand);
                computed && !is_available(operand, layout) && !is_planned()
            });
            if missing.is_empty() {
                layouts.entry(value).or_default().push(required.clone());
                planned.push((value, required));
            } else {
                pending.push((value, required));
                pending.extend(missing.into_iter().rev());
            }
        }
        planned.pop();
        planned
    }
}
