//! Rematerialization of tiles that fill the register file (LLVM "remat").
//!
//! Problem: a row as large as the register file is reduced and then used again, so it would be
//! spilled to local memory. Remedy: after each reduction of such a tile, values that derive from
//! repeatable loads are computed again at their uses. The second load hits a cache, and strip_mine
//! mining (`schedule/strip_mine`) executes each pass on a part of the registers.

use rustc_hash::FxHashMap;

use super::super::hardware::WARP_SIZE;
use super::num_warps;
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Module, Op, OpId, Opcode, Substitution, Value};
use crate::pass::manager;

/// Returns the module with large tiles rematerialized after each reduction, or `None` if there are
/// none.
pub fn reloaded(module: &Module, body: BlockId, warps: u32) -> Option<Module> {
    let large = |value: Value| is_large(module, value, warps);
    let mut any = false;
    module.walk(body, &mut |id| {
        let op = module.op(id);
        any |= op.code == Opcode::Reduce && op.operands.iter().any(|&v| large(v));
    });
    if !any {
        return None;
    }
    manager::rewrite("rematerialize", module, |module| {
        let mut module = module.clone();
        let changed = block(&mut module, body, warps);
        changed.then_some(module)
    })
}

fn is_large(module: &Module, value: Value, warps: u32) -> bool {
    let (_, bytes) = num_warps::extent(module, value);
    num_warps::fills_registers(bytes / 4 / u64::from(warps * WARP_SIZE), warps)
}

/// Definition of a value of the block.
#[derive(Clone, Copy)]
struct Made {
    op: OpId,
    /// Number of reductions of large tiles before it.
    phase: usize,
    /// Number of writes to memory before it.
    epoch: usize,
}

struct Rematerializer<'m> {
    module: &'m mut Module,
    warps: u32,
    phase: usize,
    epoch: usize,
    /// Values that can be rematerialized.
    made: FxHashMap<Value, Made>,
    /// Their copies in this phase.
    again: FxHashMap<Value, Value>,
    out: Vec<OpId>,
    changed: bool,
}

fn block(module: &mut Module, id: BlockId, warps: u32) -> bool {
    let ops = std::mem::take(&mut module.block_mut(id).ops);
    let (made, again) = (FxHashMap::default(), FxHashMap::default());
    let mut walk = Rematerializer { module, warps, phase: 0, epoch: 0, made, again, out: Vec::new(), changed: false };
    ops.into_iter().for_each(|op| walk.op(op));
    let Rematerializer { out, changed, .. } = walk;
    module.block_mut(id).ops = out;
    changed
}

/// Returns true if the op can be repeated while memory is unchanged.
fn repeats(op: &Op) -> bool {
    match op.code {
        Opcode::LoadView | Opcode::LoadPtr => op.is_weak_load(),
        Opcode::Broadcast | Opcode::Reshape | Opcode::Constant | Opcode::Iota | Opcode::WithLayout => true,
        code => code.is_elementwise(),
    }
}

impl Rematerializer<'_> {
    fn op(&mut self, id: OpId) {
        for &region in &self.module.op(id).regions.clone() {
            self.changed |= block(self.module, region, self.warps);
        }
        self.renew_operands(id);
        let op = self.module.op(id);
        let reads = op.operands.iter().any(|&v| is_large(self.module, v, self.warps));
        if op.code == Opcode::Reduce && reads {
            self.phase += 1;
            self.again.clear();
        }
        if repeats(op) && is_large(self.module, op.results[0], self.warps) {
            let made = Made { op: id, phase: self.phase, epoch: self.epoch };
            self.made.insert(op.results[0], made);
        }
        if self.module.changes_memory(id) {
            self.epoch += 1;
        }
        self.out.push(id);
    }

    /// Rematerializes the operands that were defined before the last reduction.
    fn renew_operands(&mut self, id: OpId) {
        for at in 0..self.module.op(id).operands.len() {
            let old = self.module.op(id).operands[at];
            let new = self.renewed(old);
            self.module.op_mut(id).operands[at] = new;
        }
    }

    fn renewed(&mut self, value: Value) -> Value {
        if let Some(&again) = self.again.get(&value) {
            return again;
        }
        let Some(&Made { op, phase, epoch }) = self.made.get(&value) else { return value };
        let stale = self.module.op(op).code.spec().effect == Effect::Read && epoch != self.epoch;
        if phase == self.phase || stale {
            return value;
        }
        let operands = self.module.op(op).operands.clone();
        let mut values = Substitution::new();
        for operand in operands {
            let new = self.renewed(operand);
            values.replace(operand, new);
        }
        let copy = self.module.clone_op(op, &mut values);
        let new = self.module.op(copy).results[0];
        self.out.push(copy);
        self.changed = true;
        self.again.insert(value, new);
        self.made.insert(new, Made { op: copy, phase: self.phase, epoch: self.epoch });
        new
    }
}
