//! Canonicalization: folds constants, simplifies identities and chains of shape ops, and removes
//! branches on constants and loops with at most one iteration. Loop-carried values that never
//! change are replaced by their initial values.
//!
//! One traversal in program order: the operands of an op are already simplified, because
//! definitions precede uses. Each rule preserves all effects and all results bit for bit, except
//! that one NaN may become another one. Unused ops remain for dead code elimination. No pass has to
//! run before.

mod control;
mod float;
pub(crate) mod int;
mod rules;

use crate::util::collect::CollectVec as _;
pub(crate) use control::collect_continues;
use control::{Trips, first_iteration_exit, has_single_exit, replace_equal_yields, replace_invariant, trips};
use rules::{Step, splat};

use crate::ir::op_table::Effect;
use crate::ir::{BlockId, ConstData, Module, OpId, Opcode, Substitution, Value};

/// Canonicalizes each entry.
pub(crate) fn run(module: &mut Module) {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect_vec();
    let mut walk = Canonicalizer { module, values: Substitution::new() };
    entries.into_iter().for_each(|body| walk.block(body));
}

struct Canonicalizer<'m> {
    module: &'m mut Module,
    /// Replacements of simplified values.
    values: Substitution,
}

impl Canonicalizer<'_> {
    /// Simplifies the ops of a block in order.
    fn block(&mut self, block: BlockId) {
        let ops = std::mem::take(&mut self.module.block_mut(block).ops);
        let mut kept = Vec::with_capacity(ops.len());
        self.ops(ops, &mut kept);
        self.module.block_mut(block).ops = kept;
    }

    /// Appends the simplified ops to `out`, up to the first terminator.
    fn ops(&mut self, ops: Vec<OpId>, out: &mut Vec<OpId>) {
        for id in ops {
            self.values.apply_to(self.module, id);
            if self.module.op(id).regions.is_empty() {
                self.simple(id, out);
            } else {
                self.simplify_region_op(id, out);
            }
            // An inlined branch may contain a terminator.
            if out.last().is_some_and(|&last| is_terminator(self.module, last)) {
                return;
            }
        }
    }

    fn simple(&mut self, id: OpId, out: &mut Vec<OpId>) {
        // Each step shortens a chain by one op. The limit bounds the time.
        for _ in 0..8 {
            match rules::step(self.module, id) {
                Step::Keep => break,
                Step::Use(value) => {
                    let result = self.module.op(id).results[0];
                    self.values.replace(result, value);
                    return;
                }
                Step::Splat(bits) => {
                    self.module.make_constant(id, ConstData::Splat(bits));
                    break;
                }
                Step::Change(operands, attrs) => {
                    let op = self.module.op_mut(id);
                    op.operands = operands;
                    op.attrs = attrs;
                }
            }
        }
        out.push(id);
    }

    /// Simplifies an op with regions. Its operands are already simplified.
    fn simplify_region_op(&mut self, id: OpId, out: &mut Vec<OpId>) {
        let op = self.module.op(id).clone();
        match op.code {
            Opcode::If => {
                if let Some(bits) = splat(self.module, op.operands[0]) {
                    let taken = op.regions[usize::from(bits & 1 == 0)];
                    return self.inline(taken, &op.results, out);
                }
            }
            Opcode::For => match trips(self.module, &op) {
                Trips::None => return self.replace_all(&op.results, op.group(3)),
                Trips::One if has_single_exit(self.module, op.regions[0]) => {
                    let args = self.module.block(op.regions[0]).args.clone();
                    self.values.replace(args[0], op.operands[0]);
                    self.replace_all(&args[1..], op.group(3));
                    return self.inline(op.regions[0], &op.results, out);
                }
                Trips::One | Trips::Unknown => {
                    let args = self.module.block(op.regions[0]).args[1..].to_vec();
                    let carried = [&args, op.group(3), &op.results];
                    replace_invariant(self.module, &mut self.values, op.regions[0], carried);
                }
            },
            Opcode::Loop => {
                if let Some(left) = first_iteration_exit(self.module, &self.values, &op) {
                    return self.replace_all(&op.results, &left);
                }
                let args = self.module.block(op.regions[0]).args.clone();
                let carried = [&args, &op.operands, &[][..]];
                replace_invariant(self.module, &mut self.values, op.regions[0], carried);
            }
            _ => {}
        }
        op.regions.iter().for_each(|&region| self.block(region));
        out.push(id);
        if op.code == Opcode::If {
            replace_equal_yields(self.module, &mut self.values, &op);
        }
    }

    /// Inlines a region into the enclosing block. The operands of its `yield`, or of the `continue`
    /// of a `for`, replace the results. Another terminator is inlined too and ends the block.
    fn inline(&mut self, region: BlockId, results: &[Value], out: &mut Vec<OpId>) {
        let mut ops = std::mem::take(&mut self.module.block_mut(region).ops);
        let Some(&last) = ops.last() else { return };
        let owner = self.module.block(region).parent.map(|op| self.module.op(op).code);
        let end = self.module.op(last).code;
        let ends_here = end == Opcode::Yield || (end == Opcode::Continue && owner == Some(Opcode::For));
        if ends_here {
            ops.pop();
        }
        let start = out.len();
        self.ops(ops, out);
        let left = out[start..].last().is_some_and(|&op| is_terminator(self.module, op));
        if ends_here && !left {
            self.values.apply_to(self.module, last);
            let handed = self.module.op(last).operands.clone();
            self.replace_all(results, &handed);
        }
    }

    fn replace_all(&mut self, old: &[Value], new: &[Value]) {
        old.iter().zip(new).for_each(|(&old, &new)| self.values.replace(old, new));
    }
}

fn is_terminator(module: &Module, op: OpId) -> bool {
    module.op(op).code.spec().effect == Effect::Terminator
}
