//! The walk through a schedule: each step of an agent's program becomes instructions.

use std::rc::Rc;

use super::within::OTHERWISE;
use super::{Lowered, Lowering};
use crate::backend::ptx::schedule::{SeqId, StageSource, Step, WarpRole, WarpSpecialization};
use crate::error::Diagnostic;
use crate::ir::{BlockId, OpId};

impl Lowering<'_> {
    /// Plans what the agents of the kernel do.
    pub fn plan(&mut self, body: BlockId, roles: Option<Rc<WarpSpecialization>>) {
        self.schedule = Rc::new(self.context.schedule(body, roles, &self.shared));
        if self.context.data_partitions > 1
            && let Err(problem) = self.context.verify_data_partition(body, &self.schedule)
        {
            return self.errors.push(Diagnostic::new(problem, None));
        }
        // What is only costed was made, and checked, or will be.
        if cfg!(debug_assertions)
            && !self.plans_only
            && let Err(problem) = self.context.verify_schedule(body, &self.schedule)
        {
            let message = format!("the schedule of this kernel is wrong, which is a defect of this crate: {problem}");
            self.errors.push(Diagnostic::new(message, None));
        }
    }

    /// Lowers the program of an agent.
    pub fn run(&mut self, acts: WarpRole) {
        let agent = self.schedule.partition(acts).map(|agent| agent.body);
        self.body(agent.expect("an agent of the schedule"));
    }

    /// Lowers the steps of a body in order; a failed one is reported and skipped.
    pub fn body(&mut self, body: SeqId) {
        let schedule = Rc::clone(&self.schedule);
        for step in schedule.steps(body) {
            if let Step::Sub(within) = step {
                self.within.push_back(*within);
                continue;
            }
            let id = self.op_of(step);
            let done = self.step(step, id).and_then(|()| self.mirror(id));
            if !(step.is_wait() || matches!(step, Step::End(_) | Step::ExpOrderWait { sunk: true, .. })) {
                self.come_due();
            }
            // A step that fails does not do all that it would.
            let rest = std::mem::take(&mut self.within);
            let done = done.and(if rest.is_empty() { Ok(()) } else { Err(OTHERWISE.to_owned()) });
            let Err(message) = done else { continue };
            self.report(id, message);
            let ops: Vec<OpId> = match step {
                Step::StripMine(strip) => strip.ops().collect(),
                Step::Mma(plan) => plan.ops.clone(),
                _ => continue,
            };
            ops.into_iter().flat_map(|id| &self.module.op(id).results).for_each(|&result| self.poison(result));
        }
    }

    /// The op that a step is for; of several, the one at whose place its code comes.
    fn op_of(&self, step: &Step) -> OpId {
        let roles = || self.schedule.warp_spec.as_ref().expect("roles");
        match step {
            &Step::Deferred(id) | &Step::Exec(id) | &Step::LocalLoad { op: id, .. } => id,
            &Step::PrivatizedAtomic(id) | &Step::End(id) => id,
            Step::TmaStore(send) => send.op,
            Step::StripMine(strip) => strip.ops[0].0,
            Step::Mma(plan) => plan.ops[plan.ops.len() - 1],
            &Step::If { op, .. } => op,
            &Step::Produce(channel) => roles().producer_anchor_or_store(channel).expect("an op"),
            &Step::Advance(channel) => roles().consumer_anchor_or_store(channel).expect("an op"),
            Step::MmaWait(land) => land.mma,
            &Step::ConsumerTryWait(channel) => roles().consumer_anchor(channel).expect("a load"),
            Step::ConsumerWait(wait) => roles().consumer_anchor_or_store(wait.channel).expect("an op"),
            Step::OrderWait(_) | Step::OrderArrive(_) => roles().pingpong.as_ref().expect("teams").loop_op,
            Step::ConsumerRelease(channels) => roles().channels[channels[0] as usize].last_use,
            &Step::ExpOrderWait { exponentials, .. } | &Step::ExpOrderArrive(exponentials) => {
                self.module.defining_op(exponentials).expect("an op")
            }
            Step::Sub(_) => unreachable!("parts of steps are no steps"),
            Step::For(plan) => plan.op,
            Step::Loop(plan) => plan.op,
        }
    }

    fn step(&mut self, step: &Step, id: OpId) -> Lowered {
        match step {
            Step::End(_) => return self.for_op(id, |lowering| lowering.terminator(id)),
            Step::StripMine(strip) => return self.strip(strip),
            Step::ConsumerRelease(channels) => return self.give(channels),
            Step::OrderWait(turn) => {
                self.take_turn(*turn);
                return Ok(());
            }
            Step::OrderArrive(turn) => {
                self.pass_turn(*turn);
                return Ok(());
            }
            &Step::ExpOrderWait { sunk: late, .. } => {
                self.begin_turn(late);
                return Ok(());
            }
            &Step::ExpOrderArrive(exponentials) => {
                self.end_turn_behind(exponentials);
                return Ok(());
            }
            Step::MmaWait(land) => {
                self.land_as(land);
                return Ok(());
            }
            &Step::ConsumerTryWait(channel) => {
                self.for_op(id, |lowering| lowering.look(channel as usize));
                return Ok(());
            }
            Step::ConsumerWait(wait) => {
                self.for_op(id, |lowering| lowering.await_as(wait));
                return Ok(());
            }
            Step::Mma(plan) => plan.ops.iter().try_for_each(|&id| self.check(id))?,
            _ => self.check(id)?,
        }
        self.for_op(id, |lowering| match step {
            Step::LocalLoad { from: StageSource::ThreadPrivate, .. } => lowering.load_own(id),
            Step::LocalLoad { from: StageSource::Channel, .. } => lowering.load_rider(id),
            Step::TmaStore(send) => lowering.send_view(send),
            Step::PrivatizedAtomic(_) => lowering.combine_atomic(id),
            Step::Mma(plan) => lowering.products(plan),
            &Step::Produce(channel) => lowering.produce(channel as usize),
            &Step::Advance(channel) => {
                lowering.acquire(channel as usize);
                Ok(())
            }
            Step::For(plan) => lowering.for_loop(plan),
            Step::Loop(plan) => lowering.endless_loop(plan),
            Step::If { arms, pure: quiet, .. } => lowering.branches(id, arms, *quiet),
            Step::Exec(_) => lowering.lower_op(id),
            Step::Deferred(_)
            | Step::StripMine(_)
            | Step::ConsumerRelease(_)
            | Step::End(_)
            | Step::MmaWait(_)
            | Step::ConsumerWait(_) => Ok(()),
            Step::OrderWait(_) | Step::OrderArrive(_) | Step::ConsumerTryWait(_) | Step::Sub(_) => Ok(()),
            Step::ExpOrderWait { .. } | Step::ExpOrderArrive(_) => Ok(()),
        })
    }
}
