//! The slice of a kernel that a producer runs: the control flow around the loads that it makes, and the scalars
//! that their indices and that control flow depend on.

use std::collections::HashSet;

use super::Lowering;
use super::roles::Structure;
use crate::ir::table::Effect;
use crate::ir::{BlockId, Def, OpId, Opcode, Type, Value};

/// Finds the ops that scalars and control flow depend on.
pub struct Slicer<'a, 'm> {
    lowering: &'a Lowering<'m>,
    structure: &'a Structure,
    /// The ops found.
    pub ops: HashSet<OpId>,
    /// Carried values and results of region ops among what they need.
    pub carried: HashSet<Value>,
}

impl<'a, 'm> Slicer<'a, 'm> {
    /// Nothing found yet.
    pub fn new(lowering: &'a Lowering<'m>, structure: &'a Structure) -> Slicer<'a, 'm> {
        Slicer { lowering, structure, ops: HashSet::new(), carried: HashSet::new() }
    }

    /// Adds what a scalar or a view depends on; false if one thread cannot compute it.
    fn value(&mut self, value: Value) -> bool {
        let module = self.lowering.module;
        match module.ty(value) {
            Type::Tile { .. } if self.lowering.inference.num_elements(value) != 1 => return false,
            Type::Token => return true,
            _ => {}
        }
        match module.def(value) {
            Def::Arg(block, position) => match self.structure.owners.get(&block) {
                Some(&owner) => self.argument(owner, value, position as usize),
                None => true,
            },
            Def::Result(id, position) => self.result(id, value, position as usize),
        }
    }

    /// Adds what these depend on; false if one thread cannot compute it.
    pub fn values(&mut self, values: &[Value]) -> bool {
        values.iter().all(|&value| self.value(value))
    }

    /// A value that the op `owner` gives to its region.
    fn argument(&mut self, owner: OpId, value: Value, position: usize) -> bool {
        let op = self.lowering.module.op(owner);
        if !self.control(owner) || !self.carried.insert(value) {
            return self.ops.contains(&owner);
        }
        match op.code {
            Opcode::For if position == 0 => true,
            Opcode::For => {
                self.carried.insert(op.results[position - 1]);
                self.value(op.group(3)[position - 1]) && self.leaving(owner, Opcode::Continue, position - 1)
            }
            Opcode::Loop => self.value(op.group(0)[position]) && self.leaving(owner, Opcode::Continue, position),
            _ => false,
        }
    }

    fn result(&mut self, id: OpId, value: Value, position: usize) -> bool {
        let module = self.lowering.module;
        let op = module.op(id);
        match op.code {
            Opcode::For => {
                let argument = module.block(op.regions[0]).args[position + 1];
                self.value(argument)
            }
            Opcode::Loop => {
                let known = !self.carried.insert(value);
                known || (self.control(id) && self.leaving(id, Opcode::Break, position))
            }
            Opcode::If => {
                let known = !self.carried.insert(value);
                known || (self.control(id) && self.leaving(id, Opcode::Yield, position))
            }
            Opcode::LoadView => {
                let read_only = self.lowering.memory.is_read_only(module, op.group(0)[0]);
                read_only && (!self.ops.insert(id) || self.values(&op.operands))
            }
            code if code.spec().effect == Effect::Pure => !self.ops.insert(id) || self.values(&op.operands),
            _ => false,
        }
    }

    /// Operand `position` of every terminator that leaves the regions of `owner`.
    fn leaving(&mut self, owner: OpId, terminator: Opcode, position: usize) -> bool {
        let mut values = Vec::new();
        for &region in &self.lowering.module.op(owner).regions {
            self.exits(region, terminator, &mut |operands| values.push(operands[position]));
        }
        self.values(&values)
    }

    fn exits(&self, block: BlockId, terminator: Opcode, visit: &mut impl FnMut(&[Value])) {
        let module = self.lowering.module;
        for &id in &module.block(block).ops {
            let op = module.op(id);
            if op.code == terminator {
                visit(&op.operands);
            }
            if op.code == Opcode::If && terminator != Opcode::Yield {
                op.regions.iter().for_each(|&region| self.exits(region, terminator, visit));
            }
        }
    }

    /// Adds the control flow that leads to an op.
    pub fn control_of(&mut self, id: OpId) -> bool {
        match self.lowering.op_blocks[id.index()].and_then(|block| self.structure.owners.get(&block)) {
            Some(&owner) => self.control(owner),
            None => true,
        }
    }

    /// Adds a loop or branch, and the control flow that leads to it.
    fn control(&mut self, id: OpId) -> bool {
        if !self.ops.insert(id) {
            return true;
        }
        let op = self.lowering.module.op(id);
        let own = match op.code {
            Opcode::For => self.values(op.group(0)) && self.values(op.group(1)) && self.values(op.group(2)),
            Opcode::If => self.value(op.operands[0]),
            Opcode::Loop => true,
            _ => false,
        };
        own && self.control_of(id) && self.early_exits(id)
    }

    /// The branches of a loop that leave it early.
    fn early_exits(&mut self, id: OpId) -> bool {
        let module = self.lowering.module;
        if !matches!(module.op(id).code, Opcode::For | Opcode::Loop) {
            return true;
        }
        let mut leaving = Vec::new();
        let mut pending = module.op(id).regions.clone();
        while let Some(block) = pending.pop() {
            for &inner in &module.block(block).ops {
                let op = module.op(inner);
                if op.code != Opcode::If {
                    continue;
                }
                let mut exits = false;
                for terminator in [Opcode::Continue, Opcode::Break] {
                    op.regions.iter().for_each(|&region| self.exits(region, terminator, &mut |_| exits = true));
                }
                if exits {
                    leaving.push(inner);
                    pending.extend(&op.regions);
                }
            }
        }
        leaving.into_iter().all(|inner| self.control(inner))
    }
}
