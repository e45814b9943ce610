//! MMA order: consumer groups issue their MMAs one after another.
//!
//! If each iteration works on the result of its MMA, the tensor cores are idle during that work.
//! Without an order two groups synchronize: both issue their MMAs, wait, and work at the same time.
//! With an order they are half an iteration apart, and one group multiplies while the other one
//! works.
//!
//! The order is not used in three cases: MMAs overlap with the work of their own group (attention
//! of two groups); several CTAs share an SM; the groups have barriers in each iteration. Three data
//! partitions in attention also need an order: each issues all MMAs of an iteration in one ordered
//! section (FlashAttention-3, Shah et al. 2024).

use crate::backend::ptx::hardware::WARP_GROUP_WARPS;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{
    For, OrderPoint, Partition, Schedule, SeqId, Step, WarpRole, first_sub_step,
};
use crate::util::collect::CollectVec as _;

/// Number of consumer groups with an order.
pub const ORDERED_GROUPS: u32 = 2;
/// Maximum number of data partitions with an order: each has a named barrier.
const MAX_ORDERED_PARTITIONS: u32 = 8;

impl KernelInfo<'_> {
    /// Orders the MMAs of consumer groups in loops where the tensor cores would be idle otherwise.
    pub fn order_mmas(&self, schedule: &mut Schedule) {
        if self.options.occupancy.is_some_and(|blocks| blocks > 1) {
            return;
        }
        let Some(partition) =
            schedule.partition(WarpRole::Consumer).filter(|partition| self.can_order(schedule, partition))
        else {
            return;
        };
        let of_loop = |plan: &For| {
            if !self.is_enabled(Optimization::MmaOrder) {
                return None;
            }
            let one = self.single_mma_position(schedule, plan).map(|at| [at, at]);
            let span =
                one.or_else(|| if self.data_partitions > 1 { self.multi_mma_span(schedule, plan) } else { None });
            Some((plan.body, span?))
        };
        let found: Vec<(SeqId, [usize; 2])> =
            schedule.loops(partition.role).into_iter().filter_map(of_loop).collect_vec();
        for (body, [first, last]) in found {
            let steps = &mut schedule.sequences[body.0 as usize];
            let Step::Mma(plan) = &steps[last] else { continue };
            let point = OrderPoint::Mma(plan.ops[plan.ops.len() - 1]);
            steps.insert(last + 1, Step::OrderArrive(point));
            steps.insert(first_sub_step(steps, first), Step::OrderWait { point, sunk: true });
        }
        if self.data_partitions == 1 && !schedule.has_named_order_barriers() {
            self.order_exponentials(schedule);
        }
    }

    /// Returns the positions of the first and the last MMA of a loop of data partitions. All MMAs
    /// complete in their own iteration, without a wait between them.
    fn multi_mma_span(&self, schedule: &Schedule, plan: &For) -> Option<[usize; 2]> {
        let steps = schedule.steps(plan.body);
        let is_async = |step: &Step| matches!(step, Step::Mma(plan) if self.is_async(&plan.ops));
        let (first, last) = (steps.iter().position(is_async)?, steps.iter().rposition(is_async)?);
        (first < last && plan.carried_mmas.is_empty() && steps[first..last].iter().all(may_be_in_mma_span))
            .then_some([first, last])
    }

    /// Returns the position of the only MMA of a loop, if its wait is in the same iteration.
    fn single_mma_position(&self, schedule: &Schedule, plan: &For) -> Option<usize> {
        let steps = schedule.steps(plan.body);
        if steps.iter().any(|step| matches!(step, Step::Sub(_)) || !step.sequences().is_empty()) {
            return None;
        }
        let mut mmas = steps.iter().enumerate().filter_map(|(at, step)| match step {
            Step::Mma(plan) => Some((at, plan)),
            _ => None,
        });
        let (at, mma) = mmas.next().filter(|_| mmas.next().is_none())?;
        let is_wait = |step: &Step| matches!(step, Step::MmaWait(wait) if Some(wait.mma) == mma.last() && !wait.from_previous_iteration);
        (self.is_async(&mma.ops) && steps[at..].iter().any(is_wait)).then_some(at)
    }

    /// Returns true if the groups of a partition can have an order.
    pub fn can_order(&self, schedule: &Schedule, partition: &Partition) -> bool {
        let is_pingpong = schedule.warp_spec.as_ref().is_none_or(|warp_spec| warp_spec.pingpong.is_some());
        let warps = partition.warps.len() as u32;
        let groups = if self.data_partitions > 1 {
            (2..=MAX_ORDERED_PARTITIONS).contains(&self.data_partitions)
        } else {
            warps == ORDERED_GROUPS * WARP_GROUP_WARPS
        };
        partition.role == WarpRole::Consumer && groups && !is_pingpong
    }
}

/// Returns true if the step may be in an ordered section of MMAs: it does not wait for other
/// groups.
pub fn may_be_in_mma_span(step: &Step) -> bool {
    match step {
        Step::Mma(_) | Step::Deferred(_) | Step::Exec(_) | Step::Advance(_) | Step::ConsumerWait(_) => true,
        Step::Sub(sub_step) => !sub_step.uses_shared_smem(),
        _ => false,
    }
}
