//! MMA order: consumer groups issue their MMAs one after another.
//!
//! Where each iteration works on what it has just multiplied, tensor cores have nothing to do while a group of warps works. So
//! the other group should multiply then. Left alone the two fall into step instead: both issue their products, the tensor cores
//! do these alternately, both are done at the same time and work at the same time. If the second one has to wait until the first one has issued
//! its products, they stay half an iteration apart.
//!
//! That is of no use where products run on beside the work of their own group (attention, which has two of them), where others fill the
//! gaps (several blocks on a multiprocessor), and where the groups meet in each iteration anyway. But three groups, bands of rows, do fall into step in
//! attention, too: there each issues all products of an iteration in its turn. (FlashAttention-3, Shah et al. 2024, has its groups do so.)

use crate::backend::ptx::hardware::WARP_GROUP_WARPS;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{For, Partition, Schedule, SeqId, Step, WarpRole};

/// Groups that take turns.
pub const ORDERED_GROUPS: u32 = 2;
/// Most bands that take turns: each has a barrier.
const MOST_BANDS: u32 = 8;

impl KernelInfo<'_> {
    /// Has groups of warps issue products in turn where that keeps the tensor cores busy.
    pub fn order_mmas(&self, schedule: &mut Schedule) {
        if self.options.occupancy.is_some_and(|blocks| blocks > 1) {
            return;
        }
        let Some(agent) = schedule.partition(WarpRole::Consumer).filter(|agent| self.has_turns(schedule, agent)) else {
            return;
        };
        let of_loop = |plan: &For| {
            let one = self.gap_behind(schedule, plan).map(|at| [at, at]);
            let span = one.or_else(|| if self.bands > 1 { self.span_of(schedule, plan) } else { None });
            Some((plan.body, span?))
        };
        let found: Vec<(SeqId, [usize; 2])> = schedule.loops(agent.role).into_iter().filter_map(of_loop).collect();
        for (body, [first, last]) in found {
            let steps = &mut schedule.sequences[body.0 as usize];
            for (at, begins) in [(first, true), (last, false)] {
                if let Step::Mma(plan) = &mut steps[at] {
                    plan.order.acquire |= begins;
                    plan.order.release |= !begins;
                }
            }
        }
        if self.bands == 1 && !schedule.has_order_barriers() {
            self.order_exponentials(schedule);
        }
    }

    /// The places of the first and the last product of a loop of bands, if the products run on beside the work of their band and land in the
    /// iteration that has issued them, and nothing is waited for between.
    fn span_of(&self, schedule: &Schedule, plan: &For) -> Option<[usize; 2]> {
        let steps = schedule.steps(plan.body);
        let runs = |step: &Step| matches!(step, Step::Mma(plan) if self.run_on(&plan.ops));
        let (first, last) = (steps.iter().position(runs)?, steps.iter().rposition(runs)?);
        (first < last && plan.carried_mmas.is_empty() && steps[first..last].iter().all(may_be_in_turn))
            .then_some([first, last])
    }

    /// The place of the one product of a loop, if it lands in the iteration that has issued it.
    fn gap_behind(&self, schedule: &Schedule, plan: &For) -> Option<usize> {
        let steps = schedule.steps(plan.body);
        if steps.iter().any(|step| matches!(step, Step::Sub(_)) || !step.bodies().is_empty()) {
            return None;
        }
        let mut products = steps.iter().enumerate().filter_map(|(at, step)| match step {
            Step::Mma(plan) => Some((at, plan)),
            _ => None,
        });
        let (at, product) = products.next().filter(|_| products.next().is_none())?;
        let lands = |step: &Step| matches!(step, Step::MmaWait(land) if Some(land.mma) == product.last() && !land.from_previous_iteration);
        (self.run_on(&product.ops) && steps[at..].iter().any(lands)).then_some(at)
    }

    /// May the groups of an agent take turns?
    pub fn has_turns(&self, schedule: &Schedule, agent: &Partition) -> bool {
        let dealt = schedule.warp_spec.as_ref().is_none_or(|roles| roles.pingpong.is_some());
        let warps = agent.warps.len() as u32;
        let groups = if self.bands > 1 {
            (2..=MOST_BANDS).contains(&self.bands)
        } else {
            warps == ORDERED_GROUPS * WARP_GROUP_WARPS
        };
        agent.role == WarpRole::Consumer && groups && !dealt
    }
}

/// May a group do this in its turn? Where it waits, others do not have to go on first.
pub fn may_be_in_turn(step: &Step) -> bool {
    match step {
        Step::Mma(_) | Step::Deferred(_) | Step::Exec(_) | Step::Advance(_) | Step::ConsumerWait(_) => true,
        Step::Sub(within) => !within.is_shared(),
        _ => false,
    }
}
