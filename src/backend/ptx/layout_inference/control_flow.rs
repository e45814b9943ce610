//! Layouts of values that loops carry and branches return.

use super::Inference;
use crate::ir::{BlockId, OpId, Opcode, Type, Value};
use crate::layout::Layout;

impl<'m> Inference<'m> {
    /// Layouts of carried values: first what the body makes of them, then what they start with. A
    /// body whose layouts are all as they were is not walked again: otherwise nested loops would
    /// double the walks with each level.
    fn carried(&mut self, id: OpId, args: &[Value], inits: &[Value]) {
        let block = self.module.op(id).regions[0];
        let before = self.changes;
        self.block(block);
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
            let layout = found.or_else(|| self.natural(init)).unwrap_or_else(|| self.default_layout(arg));
            self.set(arg, layout);
        }
        if self.changes != before {
            self.block(block);
        }
    }

    /// What a loop carries is nobody's choice where it starts with such a value and goes on with
    /// them.
    fn carry_open(&mut self, body: BlockId, args: &[Value], inits: &[Value]) {
        let Some(&last) = self.module.block(body).ops.last() else { return };
        let nexts = &self.module.op(last).operands;
        for ((&arg, &init), &next) in args.iter().zip(inits).zip(nexts) {
            if self.is_unanchored(init) && (next == arg || self.is_unanchored(next)) {
                self.unanchored.insert(arg);
            }
        }
    }

    pub fn for_loop(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let body = op.regions[0];
        let args = &module.block(body).args;
        let counter = Layout::replicated(&[], self.num_warps);
        self.set(args[0], counter);
        self.carried(id, &args[1..], op.group(3));
        self.carry_open(body, &args[1..], op.group(3));
        for (&result, &arg) in op.results.iter().zip(&args[1..]) {
            if let Some(layout) = self.layouts[arg.index()].clone() {
                self.set(result, layout);
            }
        }
    }

    pub fn endless_loop(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let body = op.regions[0];
        let args = &module.block(body).args;
        self.carried(id, args, op.group(0));
        self.results_from_exits(id, Opcode::Break);
    }

    pub fn branches(&mut self, id: OpId) {
        let module = self.module;
        for &region in &module.op(id).regions {
            self.block(region);
        }
        self.results_from_exits(id, Opcode::Yield);
    }

    /// The results of a region op take the layout of the first value that leaves for them.
    fn results_from_exits(&mut self, id: OpId, terminator: Opcode) {
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
