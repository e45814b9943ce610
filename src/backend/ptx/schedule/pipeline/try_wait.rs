//! Inserts `consumer_try_wait` for the next stage of a loop.
//!
//! A test of an mbarrier takes about thirty cycles. At the head of a loop whose MMAs complete in
//! their own iteration, the tensor cores are idle during the test. So the previous iteration tests
//! the barrier, during the work on its MMAs, and computes the address of the stage. If the test
//! fails, the wait tests again.

use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{ConsumerWait, For, MmaWait, Schedule, SeqId, Step, WarpRole};
use crate::ir::OpId;
use crate::util::collect::CollectVec as _;

/// Bits of the operand elements. MMAs with narrower operands complete early.
const WIDE_BITS: u32 = 16;

impl KernelInfo<'_> {
    /// Inserts a `consumer_try_wait` into each loop that becomes faster by it.
    pub fn insert_try_waits(&self, schedule: &mut Schedule) {
        if !self.is_enabled(Optimization::TryWait) {
            return;
        }
        let position = |plan: &&For| {
            let steps = schedule.steps(plan.body);
            let (at, channel) = try_wait_position(steps)?;
            if self.has_narrow_mmas(steps) {
                return None;
            }
            let others = schedule.warp_spec.as_ref().is_some_and(|warp_spec| !warp_spec.is_single_stage(channel));
            (others && self.can_try_wait(schedule, plan, channel)).then_some((plan.body, at, channel))
        };
        let loops = schedule.loops(WarpRole::Consumer);
        let plain =
            loops.iter().filter(|plan| plan.carried_mmas.is_empty() && plan.unroll.is_none_or(|factor| factor == 1));
        let found: Vec<(SeqId, usize, u32)> = plain.filter_map(position).collect_vec();
        for (body, at, channel) in found {
            schedule.sequences[body.0 as usize].insert(at, Step::ConsumerTryWait(channel));
        }
    }

    /// Returns true if the steps have several MMAs, all with narrow operands. Each completes before
    /// the next one is issued, and a test takes longer than the wait.
    fn has_narrow_mmas(&self, steps: &[Step]) -> bool {
        let mmas = || steps.iter().filter_map(|step| if let Step::Mma(plan) = step { plan.last() } else { None });
        let narrow = |id: OpId| self.element_type(self.module.op(id).operands[0]).storage_bits() < WIDE_BITS;
        mmas().count() > 1 && mmas().all(narrow)
    }

    /// Returns true if each iteration of a loop acquires one stage of the pipeline of `channel`,
    /// for that channel, and has no early exit. The next stage is then that of the next iteration.
    pub fn can_try_wait(&self, schedule: &Schedule, plan: &For, channel: u32) -> bool {
        let Some(warp_spec) = &schedule.warp_spec else { return false };
        let pipeline = |channel: u32| warp_spec.channels.get(channel as usize).map(|channel| channel.pipeline);
        let steps = schedule.steps_with_nested(plan.body).into_iter();
        let taken: Vec<u32> = steps
            .filter_map(|step| if let &Step::Advance(other) = step { Some(other) } else { None })
            .filter(|&other| pipeline(other) == pipeline(channel))
            .collect_vec();
        let whole = !self.regions.has_multiple_latches(plan.op);
        plan.pingpong.is_none() && whole && taken == [channel]
    }
}

/// Returns the position of the `consumer_try_wait` in a sequence, and its channel. The position
/// follows the last MMA wait. The channel is that of the first MMA of the next iteration.
fn try_wait_position(steps: &[Step]) -> Option<(usize, u32)> {
    let first = steps.iter().position(|step| matches!(step, Step::Mma(_)))?;
    let channel = steps[..first].iter().find_map(|step| match step {
        Step::ConsumerWait(ConsumerWait { channel, .. }) => Some(*channel),
        _ => None,
    })?;
    let last =
        steps.iter().rposition(|step| matches!(step, Step::MmaWait(MmaWait { from_previous_iteration: false, .. })))?;
    // Sunk waits are emitted inside the next step. If that is the end, the work precedes the wait.
    let next = last + steps.iter().skip(last).position(|step| !(step.is_wait() || matches!(step, Step::Sub(_))))?;
    let at = if matches!(steps[next], Step::End(_)) { last } else { next + 1 };
    (first < last).then_some((at, channel))
}
