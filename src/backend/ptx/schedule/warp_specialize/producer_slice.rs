//! Producer slice: the control flow and scalars the producer needs for its loads.

use rustc_hash::FxHashSet;

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::region_tree::RegionTree;
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Def, OpId, Opcode, Type, Value};

/// What a load needs in the slice.
#[derive(Default)]
pub struct ProducerSlice {
    /// Ops that the producer runs.
    pub ops: FxHashSet<OpId>,
    /// Carried values and results of region ops that it needs.
    pub live: FxHashSet<Value>,
}

/// Finds the ops that scalars and control flow depend on.
pub struct SliceBuilder<'a, 'm> {
    info: &'a KernelInfo<'m>,
    region_tree: &'a RegionTree,
    slice: ProducerSlice,
    seen: FxHashSet<Value>,
    /// Values whose makers have still to be looked at.
    pending: Vec<Value>,
    /// Something was met that one thread cannot compute.
    failed: bool,
}

impl<'a, 'm> SliceBuilder<'a, 'm> {
    /// The slice for a load: its view, its indices and the control flow that leads to it; `None` if
    /// one thread cannot compute that.
    pub fn for_load(info: &'a KernelInfo<'m>, region_tree: &'a RegionTree, load: OpId) -> Option<ProducerSlice> {
        let mut builder = SliceBuilder {
            info,
            region_tree,
            slice: ProducerSlice::default(),
            seen: FxHashSet::default(),
            pending: Vec::new(),
            failed: false,
        };
        let op = info.module.op(load);
        builder.pending.extend(op.group(0).iter().chain(op.group(1)));
        builder.add_enclosing_control(load);
        while let Some(value) = builder.pending.pop().filter(|_| !builder.failed) {
            if builder.seen.insert(value) {
                builder.add_value(value);
            }
        }
        (!builder.failed).then_some(builder.slice)
    }

    /// Adds what makes a scalar or a view.
    fn add_value(&mut self, value: Value) {
        let module = self.info.module;
        match module.ty(value) {
            Type::Tile { .. } if self.info.inference.num_elements(value) != 1 => return self.failed = true,
            Type::Token => return,
            _ => {}
        }
        match module.def(value) {
            Def::Arg(block, position) => {
                if let Some(&owner) = self.region_tree.owners.get(&block) {
                    self.add_argument(owner, value, position as usize);
                }
            }
            Def::Result(id, position) => self.add_result(id, value, position as usize),
        }
    }

    /// A value that the op `owner` gives to its region.
    fn add_argument(&mut self, owner: OpId, value: Value, position: usize) {
        let op = self.info.module.op(owner);
        self.add_control(owner);
        self.slice.live.insert(value);
        match op.code {
            Opcode::For if position == 0 => {}
            Opcode::For => {
                self.slice.live.insert(op.results[position - 1]);
                self.pending.push(op.group(3)[position - 1]);
                self.add_terminator_operands(owner, Opcode::Continue, position - 1);
            }
            Opcode::Loop => {
                self.pending.push(op.group(0)[position]);
                self.add_terminator_operands(owner, Opcode::Continue, position);
            }
            _ => self.failed = true,
        }
    }

    fn add_result(&mut self, id: OpId, value: Value, position: usize) {
        let module = self.info.module;
        let op = module.op(id);
        match op.code {
            Opcode::For => self.pending.push(module.block(op.regions[0]).args[position + 1]),
            Opcode::Loop | Opcode::If => {
                self.slice.live.insert(value);
                self.add_control(id);
                self.add_terminator_operands(
                    id,
                    if op.code == Opcode::Loop { Opcode::Break } else { Opcode::Yield },
                    position,
                );
            }
            Opcode::LoadView if self.info.is_invariant_load(id) => self.computed(id),
            // In these all threads of a block take part.
            Opcode::Reduce | Opcode::Scan | Opcode::Gather | Opcode::Histogram => self.failed = true,
            code if code.is_mma() => self.failed = true,
            code if code.spec().effect == Effect::Pure => self.computed(id),
            _ => self.failed = true,
        }
    }

    /// An op that the producer runs as it is.
    fn computed(&mut self, id: OpId) {
        if self.slice.ops.insert(id) {
            self.pending.extend(&self.info.module.op(id).operands);
        }
    }

    /// Operand `position` of every terminator that leaves the regions of `owner`.
    fn add_terminator_operands(&mut self, owner: OpId, terminator: Opcode, position: usize) {
        let mut values = Vec::new();
        for &region in &self.info.module.op(owner).regions {
            self.exits(region, terminator, &mut |operands| values.push(operands[position]));
        }
        self.pending.extend(values);
    }

    fn exits(&self, block: BlockId, terminator: Opcode, visit: &mut impl FnMut(&[Value])) {
        let module = self.info.module;
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
    fn add_enclosing_control(&mut self, id: OpId) {
        let block = self.info.op_blocks[id.index()];
        if let Some(&owner) = block.and_then(|block| self.region_tree.owners.get(&block)) {
            self.add_control(owner);
        }
    }

    /// Adds a loop or branch, and the control flow that leads to it.
    fn add_control(&mut self, id: OpId) {
        if !self.slice.ops.insert(id) {
            return;
        }
        let op = self.info.module.op(id);
        match op.code {
            Opcode::For => (0..3).for_each(|group| self.pending.extend(op.group(group))),
            Opcode::If => self.pending.push(op.operands[0]),
            Opcode::Loop => {}
            _ => self.failed = true,
        }
        self.add_enclosing_control(id);
        self.early_exits(id);
    }

    /// The branches of a loop that leave it early.
    fn early_exits(&mut self, id: OpId) {
        let module = self.info.module;
        if !module.op(id).code.is_loop() {
            return;
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
        leaving.into_iter().for_each(|inner| self.add_control(inner));
    }
}
