//! Groups of warps that take turns at the tensor cores.
//!
//! Where each iteration works on what it has just multiplied, tensor cores have nothing to do while a group of warps works. So
//! the other group should multiply then. Left alone the two fall into step instead: both issue their products, the tensor cores
//! do these alternately, both are done at the same time and work at the same time. If the second one has to wait until the first one has issued
//! its products, they stay half an iteration apart.
//!
//! That is of no use where products run on beside the work of their own group (attention, which has two of them), where others fill the
//! gaps (several blocks on a multiprocessor), and where the groups meet in each iteration anyway.

use super::Context;
use super::checked::Checked;
use super::data::{Acts, Agent, BodyId, For, Schedule, Step};
use crate::backend::ptx::plan::GROUP_WARPS;

/// Groups that take turns.
pub const GROUPS: u32 = 2;

impl Context<'_> {
    /// Has groups of warps issue products in turn where that keeps the tensor cores busy.
    pub fn place_turns(&self, schedule: &mut Schedule) {
        if self.bands > 1 || self.options.occupancy.is_some_and(|blocks| blocks > 1) {
            return;
        }
        let Some(agent) = schedule.agent(Acts::Math).filter(|agent| takes_turns(schedule, agent)) else { return };
        let of_loop = |plan: &For| Some((plan.body, self.gap_behind(schedule, plan)?));
        let found: Vec<(BodyId, usize)> = schedule.loops(agent.acts).into_iter().filter_map(of_loop).collect();
        for (body, at) in found {
            if let Step::Multiply(plan) = &mut schedule.bodies[body.0 as usize][at] {
                plan.in_turn = true;
            }
        }
    }

    /// The place of the one product of a loop, if it lands in the iteration that has issued it.
    fn gap_behind(&self, schedule: &Schedule, plan: &For) -> Option<usize> {
        let steps = schedule.steps(plan.body);
        if steps.iter().any(|step| matches!(step, Step::Within(_)) || !step.bodies().is_empty()) {
            return None;
        }
        let mut products = steps.iter().enumerate().filter_map(|(at, step)| match step {
            Step::Multiply(plan) => Some((at, plan)),
            _ => None,
        });
        let (at, product) = products.next().filter(|_| products.next().is_none())?;
        let lands =
            |step: &Step| matches!(step, Step::Land(land) if Some(land.product) == product.last() && !land.carried);
        (self.run_on(&product.ops) && steps[at..].iter().any(lands)).then_some(at)
    }

    /// Are turns of as many groups as there are barriers for? How often a group has its turn does not matter: both do the same, and none
    /// begins anew (lowering has the first turn begin with the program).
    pub fn check_turns(&self, schedule: &Schedule) -> Checked {
        let may_be = self.bands == 1 && schedule.agent(Acts::Math).is_some_and(|agent| takes_turns(schedule, agent));
        for step in schedule.bodies.iter().flatten() {
            let Step::Multiply(plan) = step else { continue };
            if plan.in_turn && !(may_be && self.run_on(&plan.ops)) {
                return Err(format!("op {} is issued in turn, and nobody else has turns", plan.ops[0].index()));
            }
        }
        Ok(())
    }
}

/// May the groups of an agent take turns?
fn takes_turns(schedule: &Schedule, agent: &Agent) -> bool {
    let dealt = schedule.roles.as_ref().is_none_or(|roles| roles.deal.is_some());
    agent.acts == Acts::Math && agent.warps.len() as u32 == GROUPS * GROUP_WARPS && !dealt
}
