//! Products that run on their own: which of them run on over the back edge of a loop, and beside which branches.

use std::collections::HashMap;

use super::Context;
use super::data::{Multiply, Orbit, Step};
use crate::backend::ptx::infer::Source;
use crate::ir::{BlockId, OpId, Opcode, Type, Value};
use crate::layout::{Conversion, Layout};
use crate::pass::sums;

impl Context<'_> {
    /// The products of a loop body that accumulate in place from iteration to iteration. `steps`: those of the body.
    pub fn orbits_of(&self, id: OpId, steps: &[Step]) -> Vec<Orbit> {
        let module = self.module;
        let op = module.op(id);
        let body = op.regions[0];
        let ops = &module.block(body).ops;
        let Some(&exit) = ops.last() else { return Vec::new() };
        // Where a branch leaves an iteration early, its products have landed.
        if ops.iter().any(|&inner| module.op(inner).code == Opcode::If && self.leaves_early(inner)) {
            return Vec::new();
        }
        let products = steps.iter().filter_map(|step| match step {
            Step::Multiply(plan) => Some(&**plan),
            _ => None,
        });
        products.filter_map(|plan| self.orbit_of(plan, exit, body)).collect()
    }

    /// The way round of some of them, whose loop ends its iterations with `exit`.
    fn orbit_of(&self, plan: &Multiply, exit: OpId, body: BlockId) -> Option<Orbit> {
        let product = plan.last()?;
        let runs_on = |id| matches!(self.inference.products.get(&id), Some(Ok(plan)) if !plan.is_complete());
        if !runs_on(product) || self.bundles.with(product)[..] != plan.ops[..] {
            return None;
        }
        let sums = sums(self.module, &plan.ops);
        let carried = sums.iter().map(|sum| self.carried_sum(sum, body, exit)).collect::<Option<_>>()?;
        Some(Orbit { product, carried, gives: plan.gives.clone() })
    }

    /// The position of the carried value that products add up on in place, from iteration to iteration, if there is one.
    pub fn carried_sum(&self, sum: &[OpId], body: BlockId, exit: OpId) -> Option<usize> {
        let module = self.module;
        let (argument, result) = (module.op(sum[0]).operands[2], module.op(*sum.last()?).results[0]);
        let position = module.block(body).args.iter().position(|&arg| arg == argument)?;
        let carried = module.op(exit).operands.iter().position(|&value| value == result)?;
        let once = |value: Value| self.use_counts[value.index()] == 1;
        (position == carried + 1 && once(argument) && once(result)).then_some(carried)
    }

    /// Does a branch contain a `continue` of the loop around it?
    fn leaves_early(&self, branch: OpId) -> bool {
        self.module.op(branch).regions.iter().any(|&region| {
            self.module.block(region).ops.iter().any(|&inner| match self.module.op(inner).code {
                Opcode::Continue => true,
                Opcode::If => self.leaves_early(inner),
                _ => false,
            })
        })
    }

    /// Are there two branches that only compute, so that products may run on beside them? No threads meet there.
    pub fn is_quiet(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        let mut quiet = op.regions.len() == 2;
        for &region in &op.regions {
            self.module.walk(region, &mut |inner| quiet &= self.only_computes(inner, &op.results));
        }
        quiet
    }

    /// Does an op of a branch with these results compute without what other threads have?
    fn only_computes(&self, id: OpId, results: &[Value]) -> bool {
        let op = self.module.op(id);
        let of = |value: &Value| {
            let own = self.inference.layout(*value);
            own.cloned().unwrap_or_else(|| self.inference.default_layout(*value))
        };
        match op.code {
            Opcode::Constant | Opcode::Iota | Opcode::Assume => true,
            Opcode::Broadcast | Opcode::Reshape | Opcode::Permute => true,
            Opcode::Yield => {
                let tiles = |value: &Value| matches!(self.module.ty(*value), Type::Tile { .. });
                let mut yielded = op.operands.iter().zip(results).filter(|(_, result)| tiles(result));
                yielded.all(|(&value, result)| !self.crosses_warps(value, of(result)))
            }
            code if !code.is_elementwise() => false,
            // Where it is used.
            _ if self.inference.source(op.results[0]) != Source::Concrete => true,
            _ => op.operands.iter().all(|&operand| !self.crosses_warps(operand, of(&op.results[0]))),
        }
    }

    /// Does a value go through shared memory to come in a layout?
    fn crosses_warps(&self, value: Value, wanted: Layout) -> bool {
        let mut seen: HashMap<Value, Vec<Layout>> = HashMap::new();
        let mut pending = vec![(value, wanted)];
        while let Some((value, wanted)) = pending.pop() {
            let known = seen.entry(value).or_default();
            if self.inference.num_elements(value) == 1 || known.iter().any(|known| known.is_same(&wanted)) {
                continue;
            }
            known.push(wanted.clone());
            let maker = self.module.defining_op(value).filter(|_| self.inference.source(value) != Source::Concrete);
            match (maker, self.inference.layout(value)) {
                (Some(id), _) => {
                    let op = self.module.op(id);
                    let renames = matches!(op.code, Opcode::Broadcast | Opcode::Reshape | Opcode::Permute);
                    let wanted = if renames { self.inference.demand(id, &wanted) } else { wanted };
                    pending.extend(op.operands.iter().map(|&operand| (operand, wanted.clone())));
                }
                (None, Some(own)) => {
                    let bits = self.element_type(value).storage_bits().max(8);
                    if matches!(Conversion::plan(own, &wanted, bits, 0), None | Some(Conversion::Shared(_))) {
                        return true;
                    }
                }
                (None, None) => return true,
            }
        }
        false
    }
}
