//! Hoists loop-invariant operands of MMAs: threads write them to shared memory once, before the
//! loop.
//!
//! The buffers live as long as the loop. An operand is hoisted out of the outermost loop that does
//! not define it. If shared memory has no space, it is hoisted out of the innermost loop around its
//! MMA. Other steps keep their shared memory: the plan without hoisted operands is the limit for
//! conversions, barriers and CTAs per SM.

use rustc_hash::FxHashSet;

use crate::backend::ptx::mma::OperandPlan;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{HoistedOperand, Schedule, SeqId, Step};
use crate::backend::ptx::schedule::ir::sub_step::{ConversionKind, SubStep};
use crate::ir::{OpId, Value};

/// Remark of a loop that writes a loop-invariant operand.
const INVARIANT_OPERAND: &str = "an operand of an MMA that the loop does not change is written to shared memory in each \
                                 iteration: a buffer for the whole loop costs space that other steps need";
/// Remark of a loop that writes operands after the MMAs of the previous iteration.
const ONE_BUFFER: &str = "an operand of an MMA is written after the MMAs of the previous iteration: two slots for it cost \
                          shared memory that other steps or CTAs need";

/// The loops that operands are hoisted out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoistLevel {
    Outermost,
    Innermost,
    Never,
}

/// Costs of a schedule that hoisted operands must not raise.
#[derive(Debug, Default, PartialEq, Eq)]
struct SmemCosts {
    overflows: usize,
    /// Rounds of layout conversions and parts of exchanges.
    rounds: u32,
    barriers_in_loops: usize,
}

impl KernelInfo<'_> {
    /// Returns the operands that a loop hoists. `is_there`: true for values that are in shared
    /// memory already.
    pub fn hoisted_operands(
        &self,
        loop_op: OpId,
        level: HoistLevel,
        is_there: &dyn Fn(Value) -> bool,
    ) -> Vec<HoistedOperand> {
        // Data partitions share no operands that threads write.
        if level == HoistLevel::Never || !self.is_enabled(Optimization::HoistOperands) || self.data_partitions > 1 {
            return Vec::new();
        }
        let inside = self.values_of_loop(loop_op);
        let mut hoisted: Vec<HoistedOperand> = Vec::new();
        for &mma in self.regions.nested(loop_op).iter().filter(|&&id| self.module.op(id).code.is_mma()) {
            if level == HoistLevel::Innermost && self.regions.enclosing_loop(mma) != Some(loop_op) {
                continue;
            }
            for (value, is_left, plan) in self.smem_operands_of(&[mma]) {
                let is_known = |other: &HoistedOperand| {
                    (other.value, other.is_left) == (value, is_left)
                        && self.hoisted_plan(other).is_some_and(|known| known.is_same(plan))
                };
                let in_registers = || {
                    let layout = self.inference.natural_or_default(value);
                    plan.in_registers(&layout).is_some()
                };
                if !inside.contains(&value) && !is_there(value) && !hoisted.iter().any(is_known) && !in_registers() {
                    hoisted.push(HoistedOperand { value, mma, is_left });
                }
            }
        }
        hoisted
    }

    /// Returns the form in shared memory of a hoisted operand.
    pub fn hoisted_plan(&self, operand: &HoistedOperand) -> Option<&OperandPlan> {
        let plan = self.inference.mma_plans.get(&operand.mma)?.as_ref().ok()?;
        Some(if operand.is_left { &plan.a } else { &plan.b })
    }

    /// Returns the values that a loop defines.
    pub fn values_of_loop(&self, loop_op: OpId) -> FxHashSet<Value> {
        let module = self.module;
        let mut inside = FxHashSet::default();
        for id in self.regions.with_nested(loop_op) {
            let op = module.op(*id);
            inside.extend(op.regions.iter().flat_map(|&region| &module.block(region).args));
            if *id != loop_op {
                inside.extend(&op.results);
            }
        }
        inside
    }

    /// Returns true if hoisted operands cost the other steps of a schedule nothing. `plain`: the
    /// schedule without them.
    pub fn can_hoist_operands(&self, hoisted: &Schedule, plain: &Schedule) -> bool {
        let [costs, limits] = [hoisted, plain].map(smem_costs);
        let [blocks, most] = [hoisted, plain].map(|schedule| self.blocks_by_smem(schedule));
        costs.overflows == 0
            && costs.rounds <= limits.rounds
            && costs.barriers_in_loops <= limits.barriers_in_loops
            && blocks >= most
    }

    /// Returns the loops that write an operand of MMAs to shared memory in each iteration. Either
    /// they do not change it, or MMAs of the previous iteration could stay in flight.
    pub fn missed_operand_buffers(&self, schedule: &Schedule) -> Vec<(OpId, String)> {
        let mut missed = Vec::new();
        for steps in &schedule.sequences {
            for (at, step) in steps.iter().enumerate() {
                let (loop_op, body, carried) = match step {
                    Step::For(plan) => (plan.op, plan.body, &plan.carried_mmas[..]),
                    Step::Loop(plan) => (plan.op, plan.body, &[][..]),
                    _ => continue,
                };
                let mut before = steps[..at].iter().rev().take_while(|step| matches!(step, Step::Sub(_)));
                let doubled = before.any(|step| matches!(step, Step::Sub(SubStep::DoubleBuffer(_))));
                let inside = self.values_of_loop(loop_op);
                let written = self.written_operands(schedule, body);
                if written.iter().any(|(_, value)| !inside.contains(value)) {
                    missed.push((loop_op, INVARIANT_OPERAND.to_owned()));
                }
                let is_carried = |mma: OpId| carried.iter().any(|carried| carried.mma == mma);
                if !doubled && written.iter().any(|&(mma, value)| inside.contains(&value) && is_carried(mma)) {
                    missed.push((loop_op, ONE_BUFFER.to_owned()));
                }
            }
        }
        missed
    }

    /// Returns the operands that threads write to shared memory for the MMA groups of a sequence,
    /// each with the last MMA of its group.
    fn written_operands(&self, schedule: &Schedule, body: SeqId) -> Vec<(OpId, Value)> {
        let (mut written, mut stored) = (Vec::new(), Vec::new());
        for step in schedule.steps(body) {
            match step {
                Step::Sub(SubStep::StoredOperand { value, .. }) => stored.push(*value),
                Step::Mma(group) => {
                    let operands = self.smem_operands_of(&group.ops).into_iter().filter(|&(value, _, plan)| {
                        let loaded = self.source_load(value);
                        let layout = self.inference.natural_or_default(value);
                        !stored.contains(&value)
                            && !loaded.is_some_and(|load| schedule.load_path(load).is_smem_operand())
                            && plan.in_registers(&layout).is_none()
                    });
                    written.extend(operands.filter_map(|(value, ..)| Some((group.last()?, value))));
                    stored.clear();
                }
                step if step.is_wait() || matches!(step, Step::Sub(_)) => {}
                _ => stored.clear(),
            }
        }
        written
    }

    /// Returns the CTAs per SM that shared memory and threads allow.
    fn blocks_by_smem(&self, schedule: &Schedule) -> u32 {
        let warps = schedule.partitions.iter().map(|partition| partition.warps.end).max().unwrap_or(1);
        self.inference.target.multiprocessor().fitting_blocks(warps, self.mma_registers(), schedule.smem_bytes)
    }
}

impl Schedule {
    /// Returns true if a loop hoists operands of MMAs.
    pub fn hoists_operands(&self) -> bool {
        self.sequences.iter().flatten().any(|step| !step.hoisted_operands().is_empty())
    }
}

fn smem_costs(schedule: &Schedule) -> SmemCosts {
    let mut costs = SmemCosts::default();
    for step in schedule.sequences.iter().flatten() {
        match step {
            Step::Sub(SubStep::SmemOverflow { .. }) => costs.overflows += 1,
            Step::Sub(SubStep::Split { count, .. }) => costs.rounds += count,
            Step::Sub(SubStep::ConvertLayout(convert)) => {
                costs.rounds += if let ConversionKind::Smem(rounds) = convert.kind { rounds } else { 0 };
            }
            Step::For(_) | Step::Loop(_) => {
                let bodies = step.sequences().iter().flat_map(|&body| schedule.steps_with_nested(body));
                let barriers = bodies.filter(|step| matches!(step, Step::Sub(SubStep::Barrier { .. })));
                costs.barriers_in_loops += barriers.count();
            }
            _ => {}
        }
    }
    costs
}
