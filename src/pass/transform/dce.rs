//! Dead code elimination: removes ops without effects whose results are unused, unused results of
//! branches, and loop-carried values that are used only to compute themselves.
//!
//! Marks the ops with effects and, transitively, the ops that they use (mark and sweep). An
//! unmarked op changes neither memory nor control flow nor an operand of a marked op, so its
//! removal is sound. A loop without effects is assumed to terminate. Runs last, because other
//! passes leave unused ops.

use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, Def, MemOrder, Module, Op, OpId, Opcode, RegionTree, Value};
use crate::util::collect::CollectVec as _;

/// Removes dead code of each entry.
pub(crate) fn run(module: &mut Module) {
    run_for(module, &is_root);
}

/// Removes what is used neither by ops for which `is_root` is true nor by control flow.
pub(crate) fn run_for(module: &mut Module, is_root: &dyn Fn(&Op) -> bool) {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect_vec();
    for body in entries {
        let liveness = Liveness::new(module, body, is_root);
        let Liveness { regions, ops, values, .. } = liveness;
        sweep(module, body, &regions, (&ops, &values));
    }
}

struct Liveness<'m> {
    module: &'m Module,
    regions: RegionTree,
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
        let is_kept = |&id: &OpId| match module.op(id).code {
            Opcode::Continue | Opcode::Break | Opcode::Yield => false,
            code => code == Opcode::Return || is_root(module.op(id)),
        };
        let mut liveness = Liveness {
            module,
            regions: RegionTree::new(module, body),
            ops: vec![false; module.num_ops()],
            values: vec![false; module.num_values()],
            work: Vec::new(),
        };
        liveness.work.extend(liveness.regions.ops().iter().copied().filter(is_kept).map(Work::Op));
        while let Some(work) = liveness.work.pop() {
            match work {
                Work::Op(op) => liveness.op(op),
                Work::Value(value) => liveness.value(value),
            }
        }
        liveness
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
        let owner = self.regions.block_of(id).and_then(|block| self.regions.parent(block));
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
                let exits = self.regions.exits(module, id, Opcode::Yield);
                self.work.extend(exits.flatten().map(|&value| Work::Value(value)));
            }
            _ => self.mark_needed(&op.operands),
        }
        // Terminators that continue or leave a loop decide control flow.
        if op.code.is_loop() {
            self.work.extend(self.regions.terminators(id).map(Work::Op));
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
                    Opcode::Loop => self.mark_exits(id, Opcode::Break, i),
                    Opcode::If => self.mark_exits(id, Opcode::Yield, i),
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
                    self.mark_exits(id, Opcode::Continue, i);
                }
            }
        }
    }

    /// Marks operand `index` of the terminators of this kind that set values of an op.
    fn mark_exits(&mut self, id: OpId, code: Opcode, index: usize) {
        let exits = self.regions.exits(self.module, id, code);
        self.work.extend(exits.map(|operands| Work::Value(operands[index])));
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
fn sweep(module: &mut Module, block: BlockId, regions: &RegionTree, (ops, values): (&[bool], &[bool])) {
    let live = |module: &Module, id: OpId| module.op(id).code.spec().effect == Effect::Terminator || ops[id.index()];
    let kept: Vec<OpId> = module.block(block).ops.iter().copied().filter(|&id| live(module, id)).collect_vec();
    module.block_mut(block).ops = kept.clone();
    for id in kept {
        let op = module.op(id).clone();
        op.regions.iter().for_each(|&region| sweep(module, region, regions, (ops, values)));
        let used = |list: &[Value]| list.iter().map(|v| values[v.index()]).collect::<Vec<bool>>();
        match op.code {
            Opcode::For => {
                let keep = used(&module.block(op.regions[0]).args[1..]);
                module.retain_results(id, |i| keep[i]);
                module.retain_last_group(id, |i| keep[i]);
                module.retain_block_args(op.regions[0], |i| i == 0 || keep[i - 1]);
                retain_operands(module, regions, (id, Opcode::Continue), &keep);
            }
            Opcode::Loop => {
                let carried = used(&module.block(op.regions[0]).args);
                module.retain_last_group(id, |i| carried[i]);
                module.retain_block_args(op.regions[0], |i| carried[i]);
                retain_operands(module, regions, (id, Opcode::Continue), &carried);
                let keep = used(&op.results);
                module.retain_results(id, |i| keep[i]);
                retain_operands(module, regions, (id, Opcode::Break), &keep);
            }
            Opcode::If => {
                let keep = used(&op.results);
                module.retain_results(id, |i| keep[i]);
                retain_operands(module, regions, (id, Opcode::Yield), &keep);
            }
            _ => {}
        }
    }
}

/// Removes operands of the terminators of one kind that set values of an op.
fn retain_operands(module: &mut Module, regions: &RegionTree, (id, code): (OpId, Opcode), keep: &[bool]) {
    for end in regions.terminators(id) {
        if module.op(end).code == code {
            module.retain_last_group(end, |i| keep[i]);
        }
    }
}
