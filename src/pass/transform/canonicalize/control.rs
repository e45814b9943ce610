//! Simplification of branches and loops whose control operands are constant.

use super::{Canonicalizer, int, rules::splat};
use crate::dtype::DType;
use crate::ir::{BlockId, Flag, Module, Op, OpId, Opcode, Value};

/// Collects the ops that end an iteration of this loop, also in branches of its body.
pub(crate) fn collect_continues(module: &Module, body: BlockId, out: &mut Vec<OpId>) {
    for &id in &module.block(body).ops {
        let op = module.op(id);
        match op.code {
            Opcode::Continue => out.push(id),
            // Other regions have their own terminators.
            Opcode::If => op.regions.iter().for_each(|&region| collect_continues(module, region, out)),
            _ => {}
        }
    }
}

/// Trip count of a loop with constant bounds, as far as the rules need it.
enum Trips {
    None,
    One,
    Unknown,
}

impl Canonicalizer<'_> {
    /// Simplifies an op with regions. Its operands are already simplified.
    pub(super) fn simplify_region_op(&mut self, id: OpId, out: &mut Vec<OpId>) {
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
                Trips::One if self.has_single_exit(op.regions[0]) => {
                    let args = self.module.block(op.regions[0]).args.clone();
                    self.values.replace(args[0], op.operands[0]);
                    self.replace_all(&args[1..], op.group(3));
                    return self.inline(op.regions[0], &op.results, out);
                }
                Trips::One | Trips::Unknown => {
                    let args = self.module.block(op.regions[0]).args[1..].to_vec();
                    self.replace_invariant(op.regions[0], &args, op.group(3), &op.results);
                }
            },
            Opcode::Loop => {
                if let Some(left) = self.first_iteration_exit(&op) {
                    return self.replace_all(&op.results, &left);
                }
                let args = self.module.block(op.regions[0]).args.clone();
                self.replace_invariant(op.regions[0], &args, &op.operands, &[]);
            }
            _ => {}
        }
        op.regions.iter().for_each(|&region| self.block(region));
        out.push(id);
        if op.code == Opcode::If {
            self.replace_equal_yields(&op);
        }
    }

    fn replace_all(&mut self, old: &[Value], new: &[Value]) {
        old.iter().zip(new).for_each(|(&old, &new)| self.values.replace(old, new));
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

    /// Returns the results of a loop that is left in its first iteration before any effect.
    fn first_iteration_exit(&self, op: &Op) -> Option<Vec<Value>> {
        let args = &self.module.block(op.regions[0]).args;
        let initial = |value: Value| {
            let value = args.iter().position(|&arg| arg == value).map_or(value, |place| op.operands[place]);
            self.values.resolve(value)
        };
        let mut decided = Vec::new();
        for &id in &self.module.block(op.regions[0]).ops {
            let inner = self.module.op(id);
            match inner.code {
                Opcode::Constant => {}
                Opcode::CmpI => {
                    let [a, b] = [inner.operands[0], inner.operands[1]].map(initial);
                    let bits =
                        int::binary(inner, self.module.dtype(a), splat(self.module, a)?, splat(self.module, b)?)?;
                    decided.push((inner.results[0], bits));
                }
                Opcode::If => {
                    let (_, bits) = *decided.iter().find(|(value, _)| *value == inner.operands[0])?;
                    let taken = &self.module.block(inner.regions[usize::from(bits & 1 == 0)]).ops;
                    let first = taken.first().map(|&first| self.module.op(first));
                    match first.map(|first| first.code) {
                        None | Some(Opcode::Yield) if inner.results.is_empty() => {}
                        Some(Opcode::Break) => {
                            let given: Vec<Value> = first?.operands.iter().map(|&value| initial(value)).collect();
                            return Some(given).filter(|given| self.are_defined_outside(op, given));
                        }
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
        None
    }

    /// Returns true if none of these values is defined in the body of the loop.
    fn are_defined_outside(&self, op: &Op, values: &[Value]) -> bool {
        let ops = &self.module.block(op.regions[0]).ops;
        values.iter().all(|&value| self.module.defining_op(value).is_none_or(|id| !ops.contains(&id)))
    }

    /// Returns true if each iteration ends at the end of the body.
    fn has_single_exit(&self, body: BlockId) -> bool {
        let mut ends = Vec::new();
        collect_continues(self.module, body, &mut ends);
        ends.len() == 1 && self.module.block(body).ops.last() == ends.first()
    }

    /// Replaces carried values that no iteration changes by their initial values.
    fn replace_invariant(&mut self, body: BlockId, args: &[Value], init: &[Value], results: &[Value]) {
        let mut ends = Vec::new();
        collect_continues(self.module, body, &mut ends);
        for (i, (&arg, &start)) in args.iter().zip(init).enumerate() {
            let same = ends.iter().all(|&end| {
                let next = self.values.resolve(self.module.op(end).operands[i]);
                next == arg || next == start
            });
            if same {
                self.values.replace(arg, start);
                if let Some(&result) = results.get(i) {
                    self.values.replace(result, start);
                }
            }
        }
    }

    /// Replaces results for which both branches yield the same value.
    fn replace_equal_yields(&mut self, op: &Op) {
        let ends: Vec<&Op> = op
            .regions
            .iter()
            .filter_map(|&region| self.module.block(region).ops.last().map(|&last| self.module.op(last)))
            .filter(|last| last.code == Opcode::Yield)
            .collect();
        let mut same = Vec::new();
        if let [then, otherwise] = ends.as_slice() {
            for (i, &result) in op.results.iter().enumerate() {
                if then.operands[i] == otherwise.operands[i] {
                    same.push((result, then.operands[i]));
                }
            }
        }
        same.into_iter().for_each(|(old, new)| self.values.replace(old, new));
    }
}

fn is_terminator(module: &Module, op: OpId) -> bool {
    module.op(op).code.spec().effect == crate::ir::op_table::Effect::Terminator
}

fn trips(module: &Module, op: &Op) -> Trips {
    let dtype: DType = module.dtype(op.operands[0]);
    let unused = 64 - dtype.bits();
    let read = |value: Value| {
        let bits = splat(module, value)? << unused;
        let unsigned = op.flag(Flag::UnsignedCmp);
        Some(if unsigned { i128::from(bits >> unused) } else { i128::from(bits as i64 >> unused) })
    };
    let (Some(lower), Some(upper)) = (read(op.operands[0]), read(op.operands[1])) else {
        return Trips::Unknown;
    };
    match read(op.operands[2]) {
        // The step must be positive; otherwise the loop is invalid.
        Some(step) if step <= 0 => Trips::Unknown,
        _ if lower >= upper => Trips::None,
        Some(step) if lower + step >= upper => Trips::One,
        _ => Trips::Unknown,
    }
}
