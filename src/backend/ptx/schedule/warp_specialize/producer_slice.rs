//! Producer slice: the control flow and scalars that the producer needs for its loads.

use rustc_hash::FxHashSet;

use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::op_table::Effect;
use crate::ir::{Def, OpId, Opcode, Type, Value};

/// Producer slice of one load.
#[derive(Default)]
pub struct ProducerSlice {
    /// Ops that the producer executes.
    pub ops: FxHashSet<OpId>,
    /// Carried values and results of region ops that the producer needs.
    pub live: FxHashSet<Value>,
}

/// Builder of a producer slice: a backward slice over scalars and control flow.
pub struct SliceBuilder<'a, 'm> {
    info: &'a KernelInfo<'m>,
    slice: ProducerSlice,
    seen: FxHashSet<Value>,
    /// Values that have not been visited.
    pending: Vec<Value>,
    /// True if one thread cannot compute a value of the slice.
    failed: bool,
}

impl<'a, 'm> SliceBuilder<'a, 'm> {
    /// Returns the slice of a load: its view, its indices, the control flow that leads to it, and
    /// the early exits on this path. Returns `None` if one thread cannot compute them.
    pub fn for_load(info: &'a KernelInfo<'m>, load: OpId) -> Option<ProducerSlice> {
        let mut builder = SliceBuilder {
            info,
            slice: ProducerSlice::default(),
            seen: FxHashSet::default(),
            pending: Vec::new(),
            failed: false,
        };
        let op = info.module.op(load);
        builder.pending.extend(op.group(0).iter().chain(op.group(1)));
        builder.add_enclosing_control(load);
        info.returns_before(load).into_iter().for_each(|owner| builder.add_control(owner));
        while let Some(value) = builder.pending.pop().filter(|_| !builder.failed) {
            if builder.seen.insert(value) {
                builder.add_value(value);
            }
        }
        (!builder.failed).then_some(builder.slice)
    }

    /// Adds the definition of a scalar or a view.
    fn add_value(&mut self, value: Value) {
        let module = self.info.module;
        match module.ty(value) {
            Type::Tile { .. } if self.info.inference.num_elements(value) != 1 => return self.failed = true,
            Type::Token => return,
            _ => {}
        }
        match module.def(value) {
            Def::Arg(block, position) => {
                if let Some(owner) = self.info.regions.parent(block) {
                    self.add_argument(owner, value, position as usize);
                }
            }
            Def::Result(id, position) => self.add_result(id, value, position as usize),
        }
    }

    /// Adds an argument of the region of `owner`.
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
            // All threads of a CTA execute these ops together.
            Opcode::Reduce | Opcode::Scan | Opcode::Gather | Opcode::Histogram | Opcode::Ranks => self.failed = true,
            code if code.is_mma() => self.failed = true,
            code if code.spec().effect == Effect::Pure => self.computed(id),
            _ => self.failed = true,
        }
    }

    /// Adds an op that the producer executes unchanged.
    fn computed(&mut self, id: OpId) {
        if self.slice.ops.insert(id) {
            self.pending.extend(&self.info.module.op(id).operands);
        }
    }

    /// Adds operand `position` of each terminator of this kind that sets values of `owner`.
    fn add_terminator_operands(&mut self, owner: OpId, terminator: Opcode, position: usize) {
        let exits = self.info.regions.exits(self.info.module, owner, terminator);
        self.pending.extend(exits.map(|operands| operands[position]));
    }

    /// Adds the control flow that leads to an op.
    fn add_enclosing_control(&mut self, id: OpId) {
        let regions = &self.info.regions;
        if let Some(owner) = regions.block_of(id).and_then(|block| regions.parent(block)) {
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

    /// Adds the branches that leave a loop or an iteration of it.
    fn early_exits(&mut self, id: OpId) {
        let (module, regions) = (self.info.module, &self.info.regions);
        let is_early = |inner: &&OpId| module.op(**inner).code == Opcode::If && regions.has_exit(**inner);
        let branches = regions.nested(id).iter().filter(|&&inner| regions.enclosing_loop(inner) == Some(id));
        branches.filter(is_early).for_each(|&inner| self.add_control(inner));
    }
}
