//! Loop-carried MMAs: MMAs in flight across a back edge or a side-effect-free branch.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{CarriedMma, MmaGroup, Step};
use crate::backend::ptx::schedule::requirements::requirement::Requirement;
use crate::ir::{BlockId, OpId, Opcode, Value};
use crate::layout::{Conversion, Layout};
use crate::pass::accumulator_chains;

impl KernelInfo<'_> {
    /// Returns the MMAs of a loop body that accumulate in place over the iterations. `steps`: the
    /// steps of the body.
    pub fn carried_mmas_of(&self, id: OpId, steps: &[Step]) -> Vec<CarriedMma> {
        if !self.is_enabled(Optimization::MmaCarry) {
            return Vec::new();
        }
        let module = self.module;
        let op = module.op(id);
        let body = op.regions[0];
        let ops = &module.block(body).ops;
        let Some(&exit) = ops.last() else { return Vec::new() };
        // Before an early exit of an iteration its MMAs are complete.
        if self.regions.has_multiple_latches(id) {
            return Vec::new();
        }
        let mmas = steps.iter().filter_map(|step| match step {
            Step::Mma(plan) => Some(&**plan),
            _ => None,
        });
        mmas.filter_map(|plan| self.carried_mma(plan, exit, body)).collect_vec()
    }

    /// Returns the carried MMA of a group, if it accumulates in place. `exit`: the terminator of
    /// the loop body.
    fn carried_mma(&self, plan: &MmaGroup, exit: OpId, body: BlockId) -> Option<CarriedMma> {
        let mma = plan.last()?;
        let is_async_mma = |id| matches!(self.inference.mma_plans.get(&id), Some(Ok(plan)) if !plan.is_complete());
        if !is_async_mma(mma) || self.mma_groups.group_of(mma)[..] != plan.ops[..] {
            return None;
        }
        let sums = accumulator_chains(self.module, &plan.ops);
        let carried = sums.iter().map(|sum| self.carried_accumulator(sum, body, exit)).collect::<Option<_>>()?;
        Some(CarriedMma { mma, accumulators: carried, releases: plan.releases.clone() })
    }

    /// Returns the index of the carried value that a chain of MMAs accumulates in place over the
    /// iterations.
    pub fn carried_accumulator(&self, sum: &[OpId], body: BlockId, exit: OpId) -> Option<usize> {
        let module = self.module;
        let (argument, result) = (module.op(sum[0]).operands[2], module.op(*sum.last()?).results[0]);
        let position = module.block(body).args.iter().position(|&arg| arg == argument)?;
        let carried = module.op(exit).operands.iter().position(|&value| value == result)?;
        let once = |value: Value| self.uses.count(value) == 1;
        (position == carried + 1 && once(argument) && once(result)).then_some(carried)
    }

    /// Returns true if an op has two side-effect-free arms, so that MMAs may stay in flight across
    /// it.
    pub fn is_pure(&self, id: OpId) -> bool {
        let is_pure = |&inner: &OpId| match self.module.op(inner).code {
            Opcode::Constant | Opcode::Iota | Opcode::Yield => true,
            code => code.is_alias() || code.is_elementwise(),
        };
        self.is_enabled(Optimization::MmaAcrossBranch)
            && self.module.op(id).regions.len() == 2
            && self.regions.nested(id).iter().all(is_pure)
    }

    /// Returns true if a step of such an arm may need a barrier, for a conversion between warps.
    pub fn may_need_barrier(&self, step: &Step) -> bool {
        match step {
            &Step::Exec(id) | &Step::End(id) => self.has_cross_warp_conversion(id),
            Step::StripMine(strip_mine) => strip_mine.ops().any(|id| self.has_cross_warp_conversion(id)),
            _ => false,
        }
    }

    fn has_cross_warp_conversion(&self, id: OpId) -> bool {
        self.requirements(id).into_iter().any(|requirement| match requirement {
            Requirement::Operand(value, layout) => self.needs_smem_conversion(value, layout),
            _ => false,
        })
    }

    /// Returns true if the conversion of a value to a layout needs shared memory.
    fn needs_smem_conversion(&self, value: Value, required: Layout) -> bool {
        let mut seen: FxHashMap<Value, Vec<Layout>> = FxHashMap::default();
        let mut pending = vec![(value, required)];
        while let Some((value, required)) = pending.pop() {
            let known = seen.entry(value).or_default();
            if self.inference.num_elements(value) == 1 || known.iter().any(|known| known.is_same(&required)) {
                continue;
            }
            known.push(required.clone());
            let maker =
                self.module.defining_op(value).filter(|_| self.inference.origin(value) != ValueOrigin::Register);
            match (maker, self.inference.layout(value)) {
                (Some(id), _) => pending.extend(self.inputs_in_layout(id, &required)),
                (None, Some(own)) => {
                    let bits = self.element_type(value).storage_bits().max(8);
                    if matches!(Conversion::plan(own, &required, bits, 0), None | Some(Conversion::Shared(_))) {
                        return true;
                    }
                }
                (None, None) => return true,
            }
        }
        false
    }
}
