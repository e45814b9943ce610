//! Step uses: the values a step reads and the accumulators it updates in place.
//!
//! A use of a deferred value or of a view is a use of its inputs.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::deferred_values::is_computed_at_use;
use crate::backend::ptx::mma::OperandPlan;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{MmaGroup, OrderPoint, Schedule, Step, StripMine};
use crate::ir::op_table::Effect;
use crate::ir::{ConstData, Def, OpId, Opcode, Type, Value};
use crate::pass::accumulator_chains;

/// The source of an accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccumulatorSource {
    /// The result of another MMA of the group.
    Member(usize),
    /// The first instruction does not read it.
    Zero,
    /// Registers that asynchronous MMAs update in order. The value may be in flight.
    InPlace,
    /// A value in the layout of the MMA.
    Value,
}

impl KernelInfo<'_> {
    /// Returns the values that a step reads, with the inputs of deferred values, in the order of
    /// use.
    ///
    /// Excluded are values that only the bodies of a loop, or of a branch with side effects, read.
    /// Excluded are also accumulators that an MMA or a loop updates in place.
    pub fn values_read_by(&self, step: &Step) -> Vec<Value> {
        let module = self.module;
        let values = match step {
            &Step::Exec(id) | &Step::PrivatizedAtomic(id) => self.operands_with_regions(id),
            Step::TmaStore(tma_store) => self.operands_with_regions(tma_store.op),
            Step::StripMine(strip_mine) => self.read_by_strip_mine(strip_mine),
            Step::Mma(plan) => self.read_by_mmas(plan),
            Step::For(step) => {
                let op = module.op(step.op);
                let bounds = (0..3).flat_map(|group| op.group(group));
                let hoisted = step.hoisted.iter().map(|(value, _)| value);
                let operands = step.hoisted_operands.iter().map(|operand| &operand.value);
                bounds.chain(hoisted).chain(op.group(3)).chain(operands).copied().collect_vec()
            }
            Step::Loop(step) => {
                let hoisted = step.hoisted.iter().map(|(value, _)| value);
                let operands = step.hoisted_operands.iter().map(|operand| &operand.value);
                hoisted.chain(module.op(step.op).group(0)).chain(operands).copied().collect_vec()
            }
            // MMAs stay in flight across a side-effect-free branch. The values that either arm
            // reads are complete before it.
            &Step::If { op, pure: true, .. } => self.operands_with_regions(op),
            &Step::If { op, .. } => module.op(op).operands.clone(),
            &Step::End(id) => self.read_by_terminator(id),
            Step::Deferred(_) | Step::LocalLoad(_) | Step::Produce(_) | Step::Prefetch(_) | Step::Advance(_) => {
                Vec::new()
            }
            &Step::OrderArrive(OrderPoint::Exp(value)) => vec![value],
            Step::ConsumerWait(_) | Step::MmaWait(_) | Step::ConsumerTryWait(_) | Step::ConsumerRelease(_) => {
                Vec::new()
            }
            Step::OrderWait { .. } | Step::OrderArrive(_) | Step::Sub(_) => Vec::new(),
        };
        self.with_deferred_inputs(values)
    }

    /// Returns the results of an MMA group, without those that another MMA of the group
    /// accumulates.
    pub fn results_of(&self, ops: &[OpId]) -> Vec<Value> {
        accumulator_chains(self.module, ops)
            .iter()
            .map(|sum| self.module.op(sum[sum.len() - 1]).results[0])
            .collect_vec()
    }

    /// Returns true if one of the MMAs may be in flight after its issue.
    pub fn is_async(&self, ops: &[OpId]) -> bool {
        !ops.iter().all(|id| matches!(self.inference.mma_plans.get(id), Some(Ok(plan)) if plan.is_complete()))
    }

    /// Returns true if all MMAs complete before this step, independent of the values that it reads.
    /// Either later code has several predecessors, or the step needs a stage that MMAs read.
    pub fn waits_for_all_mmas(&self, schedule: &Schedule, step: &Step) -> bool {
        match step {
            Step::For(_) | Step::Loop(_) | Step::ConsumerRelease(_) => true,
            Step::If { pure, .. } => !pure,
            // Threads print one after another.
            &Step::Exec(id) => self.module.op(id).code == Opcode::Print,
            // The producer waits for the only stage. MMAs in flight would release it after this
            // step.
            &Step::Advance(channel) => {
                schedule.warp_spec.as_ref().is_some_and(|warp_spec| warp_spec.is_single_stage(channel))
            }
            _ => false,
        }
    }

    fn operands_with_regions(&self, id: OpId) -> Vec<Value> {
        self.regions.with_nested(id).iter().flat_map(|&inner| &self.module.op(inner).operands).copied().collect_vec()
    }

    fn read_by_strip_mine(&self, strip_mine: &StripMine) -> Vec<Value> {
        let done = strip_mine.ops().filter(|&id| !is_computed_at_use(self, id));
        done.flat_map(|id| self.operands_with_regions(id)).collect_vec()
    }

    /// Returns the operands of an MMA group, then the accumulators that it reads.
    fn read_by_mmas(&self, plan: &MmaGroup) -> Vec<Value> {
        let operands = |id: &OpId| &self.module.op(*id).operands;
        let mut values: Vec<Value> = plan.ops.iter().flat_map(|id| &operands(id)[..2]).copied().collect_vec();
        let read = plan.ops.iter().filter(|&&id| self.accumulator_source(id, &plan.ops) == AccumulatorSource::Value);
        values.extend(read.map(|id| operands(id)[2]));
        values
    }

    /// Returns the source of the accumulator of an MMA in the group `members`.
    pub fn accumulator_source(&self, id: OpId, members: &[OpId]) -> AccumulatorSource {
        let acc = self.module.op(id).operands[2];
        match members.iter().position(|&other| self.module.op(other).results[0] == acc) {
            Some(member) => AccumulatorSource::Member(member),
            None if self.is_zero(acc) => AccumulatorSource::Zero,
            None if self.inference.is_async_mma(id) && self.accumulates_in_place(id) => AccumulatorSource::InPlace,
            None => AccumulatorSource::Value,
        }
    }

    fn read_by_terminator(&self, id: OpId) -> Vec<Value> {
        let operands = &self.module.op(id).operands;
        let targets = self.terminator_targets(id).map_or(&[][..], |(_, targets)| targets);
        let stays = |position: usize, value: Value| {
            targets.get(position).is_some_and(|&target| self.is_accumulated_in_place(target, value))
        };
        let values = operands.iter().enumerate().filter(|&(position, &value)| !stays(position, value));
        values.map(|(_, &value)| value).collect_vec()
    }

    /// Returns the op that a terminator continues or leaves, and the values that receive its
    /// operands.
    pub fn terminator_targets(&self, id: OpId) -> Option<(OpId, &[Value])> {
        let owner = self.regions.target(id)?;
        let targets = match self.module.op(id).code {
            Opcode::Continue => self.module.carried_args(owner),
            _ => &self.module.op(owner).results,
        };
        Some((owner, targets))
    }

    /// Returns true if `value` is `start` after zero or more accumulations of MMAs in place.
    pub fn is_accumulated_in_place(&self, start: Value, mut value: Value) -> bool {
        while value != start {
            match self
                .module
                .defining_op(value)
                .filter(|&id| self.module.op(id).code.is_mma() && self.accumulates_in_place(id))
            {
                Some(id) => value = self.module.op(id).operands[2],
                None => return false,
            }
        }
        true
    }

    /// Returns true if an MMA updates its accumulator in place.
    ///
    /// The accumulator has one use. It is a carried value of the enclosing loop, or the result of
    /// an MMA or a loop of the same block. Registers of other values may be shared.
    pub fn accumulates_in_place(&self, id: OpId) -> bool {
        let acc = self.module.op(id).operands[2];
        let here = self.regions.block_of(id);
        let Some(Ok(plan)) = self.inference.mma_plans.get(&id) else { return false };
        if self.uses.count(acc) != 1 || self.is_zero(acc) {
            return false;
        }
        let has_mma_layout = || self.inference.own_layout(acc).is_same(&plan.acc);
        match self.module.def(acc) {
            Def::Arg(block, _) => Some(block) == here && has_mma_layout(),
            Def::Result(maker, _) if self.module.op(maker).code.is_loop() => {
                self.regions.block_of(maker) == here && has_mma_layout()
            }
            Def::Result(maker, _) => {
                let made = self.inference.mma_plans.get(&maker).and_then(|made| made.as_ref().ok());
                self.regions.block_of(maker) == here && made.is_some_and(|made| made.acc.is_same(&plan.acc))
            }
        }
    }

    /// Returns true if a branch that ends with this op yields a value in registers of its own: the
    /// result of an MMA or of a loop in the branch.
    pub fn is_moved_to(&self, end: OpId, value: Value) -> bool {
        let Some(maker) = self.module.defining_op(value) else { return false };
        let owns = self.module.op(maker).code.is_loop() || self.module.op(maker).code.is_mma();
        owns && self.uses.count(value) == 1 && self.regions.block_of(maker) == self.regions.block_of(end)
    }

    /// Returns the values with the inputs of the deferred ones: of views, aliases, scalars and
    /// rematerialized tiles.
    fn with_deferred_inputs(&self, values: Vec<Value>) -> Vec<Value> {
        let (mut seen, mut all) = (FxHashSet::default(), Vec::new());
        let mut pending = values;
        pending.reverse();
        while let Some(value) = pending.pop() {
            if !seen.insert(value) {
                continue;
            }
            all.push(value);
            let Some(id) = self.module.defining_op(value) else { continue };
            let op = self.module.op(id);
            let is_deferred = match self.module.ty(value) {
                Type::Tile { .. } => self.rematerialized.contains(&id) || is_computed_at_use(self, id),
                Type::Token => false,
                _ => op.code.spec().effect == Effect::Pure,
            };
            if is_deferred {
                pending.extend(op.operands.iter().rev());
            }
        }
        all
    }

    /// Returns the number of accumulator registers of an MMA and its group.
    pub fn accumulator_registers(&self, mma: OpId) -> u32 {
        let sums = accumulator_chains(self.module, &self.mma_groups.group_of(mma));
        let plans = sums.iter().filter_map(|sum| self.inference.mma_plans.get(&sum[0])?.as_ref().ok());
        plans.map(|plan| plan.acc.num_registers() as u32).sum()
    }

    /// Returns the sum of [`KernelInfo::accumulator_registers`] of several MMAs, each group once.
    pub fn total_accumulator_registers(&self, mmas: &[OpId]) -> u32 {
        let mma_groups: FxHashSet<OpId> = mmas.iter().map(|&mma| self.mma_groups.last_of(mma)).collect();
        mma_groups.into_iter().map(|mma| self.accumulator_registers(mma)).sum()
    }

    /// Returns true if the value is a constant tile of zeros.
    pub fn is_zero(&self, value: Value) -> bool {
        let Some(id) = self.module.defining_op(value) else { return false };
        let op = self.module.op(id);
        match op.code {
            Opcode::Constant => matches!(op.const_data(), Some(ConstData::Splat(0))),
            code if code.has_operand_elements() => self.is_zero(op.operands[0]),
            _ => false,
        }
    }

    /// Returns the operands of an MMA group, each with a flag for left operands and its plan. A
    /// value that several MMAs need in the same form is one operand. If one of two MMAs is computed
    /// transposed, they may need one value in different forms.
    pub fn smem_operands_of(&self, members: &[OpId]) -> Vec<(Value, bool, &OperandPlan)> {
        let mut all: Vec<(Value, bool, &OperandPlan)> = Vec::new();
        for &id in members {
            let Some(Ok(plan)) = self.inference.mma_plans.get(&id) else { continue };
            let operands = &self.module.op(id).operands;
            for (&value, (plan, is_left)) in operands.iter().zip([(&plan.a, true), (&plan.b, false)]) {
                let known = |&(other, left, form): &(Value, bool, &OperandPlan)| {
                    (other, left) == (value, is_left) && form.is_same(plan)
                };
                if !all.iter().any(known) {
                    all.push((value, is_left, plan));
                }
            }
        }
        all
    }
}
