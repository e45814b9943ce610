//! MMA/softmax overlap: moves part of the work on one MMA before the wait for the next.
//!
//! Two MMAs are issued one after the other: in attention, the scores of the next keys and the sums
//! of the last ones. The work on the first MMA overlaps with the second one. It needs the result of
//! the second one at its end, where the sums are scaled by a factor from the scores. In program
//! order that use precedes most of the work, which would then wait without a reason. So a quarter
//! of the work precedes the wait. The wait is ordered by `MmaWait::release_after`: ptxas expects
//! long latencies of exponentials and would otherwise emit them after the wait.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{Schedule, SeqId, Step, WarpRole};
use crate::ir::{OpId, Opcode, Value};

/// Divisor of the length of a chain of additions: this part precedes the wait. It has about as many
/// exponentials as fit in the time of the MMA in flight.
const OVERLAP_FRACTION: usize = 4;
/// Minimum length of a chain that is divided.
const MIN_CHAIN: usize = 12;
/// Bits of the operand elements. Narrower MMAs complete before the work on the first MMA begins.
const OPERAND_BITS: u32 = 16;

impl KernelInfo<'_> {
    /// Moves a part of the work on an MMA before the wait for the next one.
    ///
    /// The pass follows barrier insertion, since all MMAs complete before a barrier in that work.
    pub fn overlap_work_with_mmas(&self, schedule: &mut Schedule) {
        if !self.is_enabled(Optimization::MmaOverlap) {
            return;
        }
        let bodies: Vec<SeqId> = schedule.loops(WarpRole::Consumer).iter().map(|plan| plan.body).collect_vec();
        bodies.into_iter().for_each(|body| self.overlap_in_loop(schedule, body));
    }

    fn overlap_in_loop(&self, schedule: &mut Schedule, body: SeqId) {
        let steps = schedule.steps(body);
        for at in 0..steps.len() {
            let Some((before, scaled)) = self.sunk_wait_at(schedule, steps, at) else { continue };
            let Some((last, value)) = self.last_step_before_wait(steps, at, scaled) else { continue };
            let steps = &mut schedule.sequences[body.0 as usize];
            if let Step::MmaWait(wait) = &mut steps[before] {
                wait.defer_release = true;
            }
            if let Step::MmaWait(wait) = &mut steps[at] {
                (wait.sunk, wait.release_after) = (false, Some(value));
            }
            // Moves the wait together with the step that needs it.
            steps[at..=last].rotate_left(2);
            return;
        }
    }

    /// Returns the position of the wait for the first MMA, and the op that scales the result of the
    /// second one. The result is `None` if the wait for the second MMA is not at position `at`.
    ///
    /// The first MMA releases stages of multistage pipelines. Its result has at least as many
    /// registers as that of the second one.
    fn sunk_wait_at(&self, schedule: &Schedule, steps: &[Step], at: usize) -> Option<(usize, OpId)> {
        let (&Step::MmaWait(wait), &Step::Exec(scaled)) = (steps.get(at)?, steps.get(at + 1)?) else { return None };
        let (position, before) = steps[..at].iter().enumerate().rev().find_map(|(position, step)| match step {
            Step::MmaWait(other) if other.pending == 1 && !other.from_previous_iteration && !other.sunk => {
                Some((position, other.mma))
            }
            _ => None,
        })?;
        // With a single stage the producer waits for the end of the work.
        let others =
            |channel: &u32| schedule.warp_spec.as_ref().is_some_and(|warp_spec| !warp_spec.is_single_stage(*channel));
        let releases_multistage = |step: &Step| match step {
            Step::Mma(plan) if plan.last() == Some(before) => {
                !plan.releases.is_empty() && plan.releases.iter().all(others)
            }
            _ => false,
        };
        let size = |mma: OpId| {
            let layout = self.inference.natural(self.module.op(mma).results[0]);
            layout.map_or(0, |layout| layout.num_registers())
        };
        let wide = |mma: OpId| {
            let operands = self.module.op(mma).operands[..2].iter();
            operands.copied().all(|value| self.element_type(value).storage_bits() == OPERAND_BITS)
        };
        let is_last = wait.sunk && !wait.from_previous_iteration && wait.pending == 0;
        let pays =
            wide(wait.mma) && size(before) >= size(wait.mma) && steps[..position].iter().any(releases_multistage);
        (is_last && pays).then_some((position, scaled))
    }

    /// Returns the last step that precedes the wait, and the value that it computes.
    fn last_step_before_wait(&self, steps: &[Step], at: usize, scaled: OpId) -> Option<(usize, Value)> {
        let module = self.module;
        let Step::MmaWait(wait) = &steps[at] else { return None };
        let later: FxHashSet<Value> =
            [wait.mma, scaled].iter().flat_map(|&id| module.op(id).results.iter().copied()).collect();
        let mut chain: Vec<(usize, Value)> = Vec::new();
        for (position, step) in steps.iter().enumerate().skip(at + 2) {
            let (&Step::Exec(id) | &Step::Deferred(id)) = step else { break };
            let op = module.op(id);
            let only_computes =
                op.code.is_elementwise() || op.code == Opcode::Extract || matches!(step, Step::Deferred(_));
            if !only_computes || op.operands.iter().any(|value| later.contains(value)) {
                break;
            }
            let goes_on = chain.last().is_none_or(|(_, sum)| op.operands.contains(sum));
            if op.code == Opcode::AddF && goes_on && matches!(step, Step::Exec(_)) {
                chain.push((position, op.results[0]));
            }
        }
        (chain.len() >= MIN_CHAIN).then(|| chain[chain.len() / OVERLAP_FRACTION - 1])
    }
}
