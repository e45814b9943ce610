//! Layouts of carried values and of the results of loops and branches.

use super::super::state::core::Inference;
use crate::ir::{BlockId, Def, OpId, Opcode, Type, Value};
use crate::layout::Layout;

impl Inference<'_> {
    /// Sets the layouts of the values that a loop carries: those at the end of its body, else those
    /// of the initial values. Unanchored values at the end follow anchored initial values.
    pub fn join_carried(&mut self, id: OpId, args: &[Value], inits: &[Value]) {
        let mut next: Vec<Option<Layout>> = vec![None; args.len()];
        for operands in self.regions.exits(self.module, id, Opcode::Continue) {
            for (slot, &value) in next.iter_mut().zip(operands) {
                if slot.is_none() && matches!(self.module.ty(value), Type::Tile { .. }) && !args.contains(&value) {
                    *slot = self.natural(value);
                }
            }
        }
        for ((&arg, &init), found) in args.iter().zip(inits).zip(next) {
            if !matches!(self.module.ty(arg), Type::Tile { .. }) {
                continue;
            }
            let found = found.filter(|_| !self.follows_initial_value(id, arg, init));
            let layout = found.or_else(|| self.natural(init)).unwrap_or_else(|| self.default_layout(arg));
            self.set(arg, layout);
        }
    }

    /// Returns true if all values that a loop passes to a carried value are unanchored, and the
    /// initial value has an anchor.
    fn follows_initial_value(&self, id: OpId, arg: Value, init: Value) -> bool {
        let Def::Arg(block, position) = self.module.def(arg) else { return false };
        let first = self.module.block(block).args.len() - self.module.carried_args(id).len();
        let is_anchored = self.num_elements(init) > 1 && self.natural(init).is_some() && !self.is_unanchored(init);
        let nexts = self.regions.exits(self.module, id, Opcode::Continue);
        is_anchored && nexts.map(|all| all[position as usize - first]).all(|next| self.is_unanchored(next))
    }

    /// Marks a carried value as unanchored if its initial value and its next value are.
    fn mark_carried(&mut self, body: BlockId, args: &[Value], inits: &[Value]) {
        let Some(&last) = self.module.block(body).ops.last() else { return };
        let nexts = &self.module.op(last).operands;
        for ((&arg, &init), &next) in args.iter().zip(inits).zip(nexts) {
            if self.is_unanchored(init) && (next == arg || self.is_unanchored(next)) {
                self.unanchored.insert(arg);
            }
        }
    }

    /// Sets the layouts of the results of a `for` to those of its carried values.
    pub fn leave_for(&mut self, id: OpId) {
        let op = self.module.op(id);
        let body = op.regions[0];
        let args = &self.module.block(body).args[1..];
        self.mark_carried(body, args, op.group(3));
        for (&result, &arg) in op.results.iter().zip(args) {
            if let Some(layout) = self.layouts[arg.index()].clone() {
                self.set(result, layout);
            }
        }
    }

    /// Sets the layouts of the results of a region op: those of the first exit that has one.
    pub fn join_exits(&mut self, id: OpId, terminator: Opcode) {
        let module = self.module;
        let results = &module.op(id).results;
        let mut found: Vec<Option<Layout>> = vec![None; results.len()];
        for operands in self.regions.exits(module, id, terminator) {
            for (slot, &value) in found.iter_mut().zip(operands) {
                if slot.is_none() && matches!(module.ty(value), Type::Tile { .. }) {
                    *slot = self.natural(value);
                }
            }
        }
        for (&result, layout) in results.iter().zip(found) {
            if matches!(module.ty(result), Type::Tile { .. }) {
                let layout = layout.unwrap_or_else(|| self.default_layout(result));
                self.set(result, layout);
            }
        }
    }
}
