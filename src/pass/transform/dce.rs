//! Dead code elimination: removes ops without effects whose results are unused, unused results of
//! branches, and loop-carried values that are used only to compute themselves.
//!
//! Marks the ops with effects and, transitively, the ops that they use (mark and sweep). An
//! unmarked op changes neither memory nor control flow nor an operand of a marked op, so its
//! removal is sound. A loop without effects is assumed to terminate. Runs last, because other
//! passes leave unused ops.

use rustc_hash::FxHashMap;

use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, Def, MemOrder, Module, Op, OpId, Opcode, Value};

/// Removes dead code of each entry.
pub(crate) fn run(module: &mut Module) {
    run_for(module, &is_root);
}

/// Removes what is used neither by ops for which `is_root` is true nor by control flow.
pub(crate) fn run_for(module: &mut Module, is_root: &dyn Fn(&Op) -> bool) {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect();
    for body in entries {
        let liveness = Liveness::new(module, body, is_root);
        let (ops, values) = (liveness.ops, liveness.values);
        sweep(module, body, &ops, &values);
    }
}

/// Terminators by the op that receives their operands.
#[derive(Default)]
struct Terminators {
    continues: Vec<OpId>,
    breaks: Vec<OpId>,
    yields: Vec<OpId>,
    /// Terminators inside of this loop that continue or leave it. They decide control flow.
    jumps: Vec<OpId>,
}

struct Liveness<'m> {
    module: &'m Module,
    /// Block that contains an op.
    parent_block: FxHashMap<OpId, BlockId>,
    terminators: FxHashMap<OpId, Terminators>,
    ops: Vec<bool>,
    values: Vec<bool>,
    work: Vec<Work>,
}

enum Work {
    Op(OpId),
    Value(Value),
}

impl<'m> Liveness<'m> {
    fn new(module: &'m Module, body: BlockId, is_root: &dyn Fn(&Op) -> bool) -> Liveness<'m> {
        let mut liveness = Liveness {
            module,
            parent_block: FxHashMap::default(),
            terminators: FxHashMap::default(),
            ops: vec![false; module.num_ops()],
            values: vec![false; module.num_values()],
            work: Vec::new(),
        };
        liveness.collect(body, is_root, &mut Vec::new());
        while let Some(work) = liveness.work.pop() {
            match work {
                Work::Op(op) => liveness.op(op),
                Work::Value(value) => liveness.value(value),
            }
        }
        liveness
    }

    /// Records the blocks of ops and the targets of terminators, and adds the roots to the
    /// worklist.
    fn collect(&mut self, block: BlockId, is_root: &dyn Fn(&Op) -> bool, stack: &mut Vec<OpId>) {
        let module = self.module;
        for &id in &module.block(block).ops {
            self.parent_block.insert(id, block);
            let op = module.op(id);
            match op.code {
                Opcode::Return => {
                    self.work.push(Work::Op(id));
                }
                Opcode::Continue | Opcode::Break => {
                    let is_loop = |op: &&OpId| module.op(**op).code.is_loop();
                    if let Some(&target) = stack.iter().rev().find(is_loop) {
                        let terminators = self.terminators.entry(target).or_default();
                        let list =
                            if op.code == Opcode::Break { &mut terminators.breaks } else { &mut terminators.continues };
                        list.push(id);
                        terminators.jumps.push(id);
                    }
                }
                Opcode::Yield => {
                    if let Some(&owner) = stack.last() {
                        self.terminators.entry(owner).or_default().yields.push(id);
                    }
                }
                _ if is_root(op) => self.work.push(Work::Op(id)),
                _ => {}
            }
            stack.push(id);
            op.regions.iter().for_each(|&region| self.collect(region, is_root, stack));
            stack.pop();
        }
    }

    fn mark_needed(&mut self, values: &[Value]) {
        self.work.extend(values.iter().map(|&v| Work::Value(v)));
    }

    /// Marks an op, the op that contains it, and the operands that it always uses.
    fn op(&mut self, id: OpId) {
        if std::mem::replace(&mut self.ops[id.index()], true) {
            return;
        }
        let module = self.module;
        let owner = self.parent_block.get(&id).and_then(|&block| module.block(block).parent);
        self.work.extend(owner.map(Work::Op));
        let op = module.op(id);
        match op.code {
            // The operands of these terminators are marked one by one, with the value that receives
            // them.
            Opcode::Continue | Opcode::Break | Opcode::Yield => {}
            Opcode::For => self.mark_needed(&op.operands[..3]),
            Opcode::Loop => {}
            Opcode::Reduce | Opcode::Scan => {
                self.mark_needed(&op.operands);
                for end in self.terminators(id).yields {
                    self.mark_needed(&module.op(end).operands);
                }
            }
            _ => self.mark_needed(&op.operands),
        }
        for jump in self.terminators(id).jumps {
            self.work.push(Work::Op(jump));
        }
    }

    fn terminators(&self, id: OpId) -> Terminators {
        match self.terminators.get(&id) {
            Some(e) => Terminators {
                continues: e.continues.clone(),
                breaks: e.breaks.clone(),
                yields: e.yields.clone(),
                jumps: e.jumps.clone(),
            },
            None => Terminators::default(),
        }
    }

    /// Marks a value, the op that defines it, and the operands of terminators that flow into it.
    fn value(&mut self, value: Value) {
        if std::mem::replace(&mut self.values[value.index()], true) {
            return;
        }
        match self.module.def(value) {
            Def::Result(id, i) => {
                self.work.push(Work::Op(id));
                let (op, i) = (self.module.op(id), i as usize);
                match op.code {
                    // The argument represents the carried value from the first iteration to the
                    // result.
                    Opcode::For => self.mark_needed(&[self.module.block(op.regions[0]).args[i + 1]]),
                    Opcode::Loop => self.mark_operands(&self.terminators(id).breaks, i),
                    Opcode::If => self.mark_operands(&self.terminators(id).yields, i),
                    _ => {}
                }
            }
            Def::Arg(block, i) => {
                let Some(id) = self.module.block(block).parent else { return };
                self.work.push(Work::Op(id));
                let op = self.module.op(id);
                let carried = match op.code {
                    Opcode::For if i > 0 => Some((op.group(3), i as usize - 1)),
                    Opcode::Loop => Some((op.operands.as_slice(), i as usize)),
                    _ => None,
                };
                if let Some((init, i)) = carried {
                    self.mark_needed(&[init[i]]);
                    self.mark_operands(&self.terminators(id).continues, i);
                }
            }
        }
    }

    fn mark_operands(&mut self, terminators: &[OpId], index: usize) {
        for &end in terminators {
            self.mark_needed(&[self.module.op(end).operands[index]]);
        }
    }
}

/// Returns true for ops that are kept for their effects.
fn is_root(op: &Op) -> bool {
    match op.code.spec().effect {
        Effect::Write | Effect::ReadWrite => true,
        // Unused block-local memory is not observable.
        Effect::Other => op.code != Opcode::Alloca,
        // A load with acquire order affects later accesses.
        Effect::Read => op.attr(AttrKind::MemOrder) == Some(&Attr::MemOrder(MemOrder::Acquire)),
        Effect::Pure | Effect::Region | Effect::Terminator => false,
    }
}

/// Removes dead ops of a block, and unused operands and results of live ops with regions.
fn sweep(module: &mut Module, block: BlockId, ops: &[bool], values: &[bool]) {
    let live = |module: &Module, id: OpId| module.op(id).code.spec().effect == Effect::Terminator || ops[id.index()];
    let kept: Vec<OpId> = module.block(block).ops.iter().copied().filter(|&id| live(module, id)).collect();
    module.block_mut(block).ops = kept.clone();
    for id in kept {
        let op = module.op(id).clone();
        op.regions.iter().for_each(|&region| sweep(module, region, ops, values));
        let used = |list: &[Value]| list.iter().map(|v| values[v.index()]).collect::<Vec<bool>>();
        match op.code {
            Opcode::For => {
                let keep = used(&module.block(op.regions[0]).args[1..]);
                module.retain_results(id, |i| keep[i]);
                module.retain_last_group(id, |i| keep[i]);
                module.retain_block_args(op.regions[0], |i| i == 0 || keep[i - 1]);
                prune_terminators(module, op.regions[0], Opcode::Continue, &keep);
            }
            Opcode::Loop => {
                let carried = used(&module.block(op.regions[0]).args);
                module.retain_last_group(id, |i| carried[i]);
                module.retain_block_args(op.regions[0], |i| carried[i]);
                prune_terminators(module, op.regions[0], Opcode::Continue, &carried);
                let keep = used(&op.results);
                module.retain_results(id, |i| keep[i]);
                prune_terminators(module, op.regions[0], Opcode::Break, &keep);
            }
            Opcode::If => {
                let keep = used(&op.results);
                module.retain_results(id, |i| keep[i]);
                for &region in &op.regions {
                    let last = module.block(region).ops.last().copied();
                    if let Some(end) = last.filter(|&end| module.op(end).code == Opcode::Yield) {
                        module.retain_last_group(end, |i| keep[i]);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Removes operands of the terminators of one kind that belong to the loop with this body.
fn prune_terminators(module: &mut Module, block: BlockId, code: Opcode, keep: &[bool]) {
    for id in module.block(block).ops.clone() {
        if module.op(id).code == code {
            module.retain_last_group(id, |i| keep[i]);
        } else if module.op(id).code == Opcode::If {
            let regions = module.op(id).regions.clone();
            regions.iter().for_each(|&region| prune_terminators(module, region, code, keep));
        }
    }
}
