//! The walk through a schedule: each step of an agent's program becomes instructions.

use std::rc::Rc;

use super::within::OTHERWISE;
use super::{Lowered, Lowering};
use crate::backend::ptx::schedule::{Acts, BodyId, Roles, Step};
use crate::error::Diagnostic;
use crate::ir::{BlockId, OpId};

impl Lowering<'_> {
    /// Plans what the agents of the kernel do.
    pub fn plan(&mut self, body: BlockId, roles: Option<Rc<Roles>>) {
        self.schedule = Rc::new(self.context.schedule(body, roles, &self.shared));
        if self.context.bands > 1
            && let Err(problem) = self.context.check_bands(body, &self.schedule)
        {
            return self.errors.push(Diagnostic::new(problem, None));
        }
        // What is only costed was made, and checked, or will be.
        if cfg!(debug_assertions)
            && !self.plans_only
            && let Err(problem) = self.context.check_schedule(body, &self.schedule)
        {
            let message = format!("the schedule of this kernel is wrong, which is a defect of this crate: {problem}");
            self.errors.push(Diagnostic::new(message, None));
        }
    }

    /// Lowers the program of an agent.
    pub fn run(&mut self, acts: Acts) {
        let agent = self.schedule.agent(acts).map(|agent| agent.body);
        self.body(agent.expect("an agent of the schedule"));
    }

    /// Lowers the steps of a body in order; a failed one is reported and skipped.
    pub fn body(&mut self, body: BodyId) {
        let schedule = Rc::clone(&self.schedule);
        for step in schedule.steps(body) {
            if let Step::Within(within) = step {
                self.within.push_back(*within);
                continue;
            }
            let id = self.op_of(step);
            let done = self.step(step, id).and_then(|()| self.mirror(id));
            if !(step.is_wait() || matches!(step, Step::End(_) | Step::BeginTurn { late: true, .. })) {
                self.come_due();
            }
            // A step that fails does not do all that it would.
            let rest = std::mem::take(&mut self.within);
            let done = done.and(if rest.is_empty() { Ok(()) } else { Err(OTHERWISE.to_owned()) });
            let Err(message) = done else { continue };
            self.report(id, message);
            let ops: Vec<OpId> = match step {
                Step::Strip(strip) => strip.ops().collect(),
                Step::Multiply(plan) => plan.ops.clone(),
                _ => continue,
            };
            ops.into_iter().flat_map(|id| &self.module.op(id).results).for_each(|&result| self.poison(result));
        }
    }

    /// The op that a step is for; of several, the one at whose place its code comes.
    fn op_of(&self, step: &Step) -> OpId {
        let roles = || self.schedule.roles.as_ref().expect("roles");
        match step {
            &Step::Let(id) | &Step::Do(id) | &Step::Own(id) | &Step::Get(id) => id,
            &Step::Combine(id) | &Step::End(id) => id,
            Step::Send(send) => send.op,
            Step::Strip(strip) => strip.parts[0].0,
            Step::Multiply(plan) => plan.ops[plan.ops.len() - 1],
            &Step::If { op, .. } => op,
            &Step::Fill(channel) => roles().filled_for(channel).expect("an op"),
            &Step::Take(channel) => roles().taken_for(channel).expect("an op"),
            Step::Land(land) => land.product,
            &Step::Look(channel) => roles().taken_at(channel).expect("a load"),
            Step::Await(wait) => roles().taken_for(wait.channel).expect("an op"),
            Step::Turn(_) | Step::Pass(_) => roles().deal.as_ref().expect("teams").around,
            Step::Give(channels) => roles().channels[channels[0] as usize].last,
            &Step::BeginTurn { exponentials, .. } | &Step::EndTurn(exponentials) => {
                self.module.defining_op(exponentials).expect("an op")
            }
            Step::Within(_) => unreachable!("parts of steps are no steps"),
            Step::For(plan) => plan.op,
            Step::Loop(plan) => plan.op,
        }
    }

    fn step(&mut self, step: &Step, id: OpId) -> Lowered {
        match step {
            Step::End(_) => return self.for_op(id, |lowering| lowering.terminator(id)),
            Step::Strip(strip) => return self.strip(strip),
            Step::Give(channels) => return self.give(channels),
            Step::Turn(turn) => {
                self.take_turn(*turn);
                return Ok(());
            }
            Step::Pass(turn) => {
                self.pass_turn(*turn);
                return Ok(());
            }
            &Step::BeginTurn { late, .. } => {
                self.begin_turn(late);
                return Ok(());
            }
            &Step::EndTurn(exponentials) => {
                self.end_turn_behind(exponentials);
                return Ok(());
            }
            Step::Land(land) => {
                self.land_as(land);
                return Ok(());
            }
            &Step::Look(channel) => {
                self.for_op(id, |lowering| lowering.look(channel as usize));
                return Ok(());
            }
            Step::Await(wait) => {
                self.for_op(id, |lowering| lowering.await_as(wait));
                return Ok(());
            }
            Step::Multiply(plan) => plan.ops.iter().try_for_each(|&id| self.check(id))?,
            _ => self.check(id)?,
        }
        self.for_op(id, |lowering| match step {
            Step::Own(_) => lowering.load_own(id),
            Step::Get(_) => lowering.load_rider(id),
            Step::Send(send) => lowering.send_view(send),
            Step::Combine(_) => lowering.combine_atomic(id),
            Step::Multiply(plan) => lowering.products(plan),
            &Step::Fill(channel) => lowering.produce(channel as usize),
            &Step::Take(channel) => {
                lowering.acquire(channel as usize);
                Ok(())
            }
            Step::For(plan) => lowering.for_loop(plan),
            Step::Loop(plan) => lowering.endless_loop(plan),
            Step::If { arms, quiet, .. } => lowering.branches(id, arms, *quiet),
            Step::Do(_) => lowering.lower_op(id),
            Step::Let(_) | Step::Strip(_) | Step::Give(_) | Step::End(_) | Step::Land(_) | Step::Await(_) => Ok(()),
            Step::Turn(_) | Step::Pass(_) | Step::Look(_) | Step::Within(_) => Ok(()),
            Step::BeginTurn { .. } | Step::EndTurn(_) => Ok(()),
        })
    }
}
