//! Exponential order: two consumer groups evaluate `exp2` one after another.
//!
//! Two groups without an order need the exponential unit at the same time. That is a loss if the
//! exponentials of an iteration take as long as its MMAs: in attention with 8-bit floats, or with
//! short rows. With an order, the MMAs of one group overlap with the exponentials of the other one.
//! FlashAttention-3 (Shah et al., 2024) orders its MMAs for the same purpose.
//!
//! If the MMAs take longer, the order has a cost and no benefit.

use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::plan::num_warps::extent;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{For, OrderPoint, Schedule, Step, WarpRole, first_sub_step};
use crate::dtype::DType;
use crate::ir::{OpId, Opcode, Value};
use crate::util::collect::CollectVec as _;

/// Multiply-adds of 16-bit elements that the tensor cores of Hopper execute in the time of one
/// exponential: 2048 and 16 per cycle.
const MULTIPLY_ADDS_PER_EXP: u64 = 128;
/// Minimum number of MMAs of an iteration: a single one has an order of its own.
const MIN_MMAS: usize = 2;
/// Minimum number of exponentials of a row. With fewer, iterations are short, and the order costs
/// more than it saves.
const MIN_ROW: i64 = 128;

impl KernelInfo<'_> {
    /// Orders the exponentials of two consumer groups in loops where they take as long as the MMAs.
    pub fn order_exponentials(&self, schedule: &mut Schedule) {
        if !self.is_enabled(Optimization::ExpOrder) {
            return;
        }
        let of_loop = |plan: &For| Some((plan.body, self.exp_span(schedule, plan)?));
        let found: Vec<_> = schedule.loops(WarpRole::Consumer).into_iter().filter_map(of_loop).collect_vec();
        for (body, (begin, end, exponentials)) in found {
            let steps = &mut schedule.sequences[body.0 as usize];
            let (point, sunk) = (OrderPoint::Exp(exponentials), is_sunk(&steps[begin]));
            steps.insert(end, Step::OrderArrive(point));
            steps.insert(begin, Step::OrderWait { point, sunk });
        }
    }

    /// Returns the begin and end of the ordered section of a loop, and the exponentials.
    fn exp_span(&self, schedule: &Schedule, plan: &For) -> Option<(usize, usize, Value)> {
        let steps = schedule.steps(plan.body);
        let mmas: Vec<OpId> = steps
            .iter()
            .filter_map(|step| if let Step::Mma(plan) = step { Some(plan) } else { None })
            .filter(|plan| self.is_async(&plan.ops))
            .flat_map(|plan| plan.ops.iter().copied())
            .collect_vec();
        let exponentials: Vec<(usize, Value)> =
            steps.iter().enumerate().filter_map(|(at, step)| Some((at, self.exponentials(step)?))).collect_vec();
        let &(first, value) =
            exponentials.iter().max_by_key(|(at, value)| (extent(self.module, *value).0, usize::MAX - at))?;
        let count: u64 = exponentials.iter().map(|&(_, value)| extent(self.module, value).0).sum();
        let multiplied: u64 = mmas.iter().map(|&id| self.multiply_adds(id)).sum();
        let worth = mmas.len() >= MIN_MMAS && count * MULTIPLY_ADDS_PER_EXP >= multiplied;
        let wide = self.module.shape(value).last().is_some_and(|&extent| extent >= MIN_ROW);
        let has_barrier = steps.iter().any(|step| matches!(step, Step::Sub(sub_step) if sub_step.uses_shared_smem()));
        if !(worth && wide) || has_barrier {
            return None;
        }
        // A sunk MMA wait is emitted inside the step of the exponentials, and the section includes
        // it.
        let begin = steps[first..].iter().position(is_sunk).map_or(first, |at| first + at);
        let [begin, end] = [begin, steps.len() - 1].map(|at| first_sub_step(steps, at));
        let section = &steps[begin..end];
        (section.iter().any(emits_sunk_waits) && section.iter().all(may_be_in_exp_span)).then_some((begin, end, value))
    }

    /// Returns the result of a step of 32-bit exponentials. Their sign bit is always 0, also that
    /// of NaN.
    pub fn exponentials(&self, step: &Step) -> Option<Value> {
        let &Step::Exec(id) = step else { return None };
        let op = self.module.op(id);
        let value = *op.results.first()?;
        let is = op.code == Opcode::Exp2 && self.module.dtype(value) == DType::F32;
        is.then_some(value)
    }

    /// Returns the number of multiply-adds of an MMA, scaled to elements of 16 bits.
    fn multiply_adds(&self, id: OpId) -> u64 {
        let op = self.module.op(id);
        let left = op.operands[0];
        let depth = self.module.shape(left).last().map_or(1, |&depth| depth as u64);
        extent(self.module, op.results[0]).0 * depth * u64::from(self.module.dtype(left).storage_bits()) / 16
    }
}

/// Returns true if the step is a sunk MMA wait.
pub fn is_sunk(step: &Step) -> bool {
    matches!(step, Step::MmaWait(wait) if wait.sunk)
}

/// Returns true if sunk waits that precede the step are emitted inside it, or at its end. A section
/// without such a step would end before its wait.
pub fn emits_sunk_waits(step: &Step) -> bool {
    matches!(step, Step::Deferred(_) | Step::Exec(_) | Step::StripMine(_) | Step::Mma(_))
}

/// Returns true if the step may be in an ordered section of exponentials: it waits only for MMAs of
/// its own group.
pub fn may_be_in_exp_span(step: &Step) -> bool {
    match step {
        Step::Deferred(_) | Step::Exec(_) | Step::StripMine(_) | Step::MmaWait(_) | Step::ConsumerTryWait(_) => true,
        Step::Sub(sub_step) => !sub_step.uses_shared_smem(),
        _ => false,
    }
}
