//! Verifies ping-pong: equal stage counts, no carried values, side effects in order.

use super::{PipelineEvent, VerifyResult};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::{PingPong, StageCount};
use crate::backend::ptx::schedule::ir::program::{For, OrderPoint, Schedule, SeqId, Step, WarpRole};
use crate::ir::{BlockId, Def, OpId, Opcode, Type};

fn fault(id: OpId, what: &str) -> VerifyResult {
    Err(format!("op {} has ping-pong, and {what}", id.index()))
}

impl KernelInfo<'_> {
    /// Verifies ping-pong. `events`: the stages, loops and branches of the producer.
    pub fn verify_pingpong(&self, body: BlockId, schedule: &Schedule, events: &[PipelineEvent]) -> VerifyResult {
        let wanted = schedule.warp_spec.as_ref().and_then(|warp_spec| warp_spec.pingpong.as_ref());
        let mut found = 0;
        for partition in &schedule.partitions {
            for plan in schedule.loops(partition.role).into_iter().filter(|plan| plan.pingpong.is_some()) {
                if plan.pingpong.as_ref() != wanted || partition.role != WarpRole::Consumer {
                    return fault(plan.op, "another one than the warp specialization");
                }
                found += 1;
                self.verify_pingpong_loop(body, schedule, plan, events)?;
            }
        }
        if found == usize::from(wanted.is_some()) { Ok(()) } else { Err(format!("{found} loops have ping-pong")) }
    }

    fn verify_pingpong_loop(
        &self,
        body: BlockId,
        schedule: &Schedule,
        plan: &For,
        events: &[PipelineEvent],
    ) -> VerifyResult {
        let (module, op) = (self.module, self.module.op(plan.op));
        let Some(PingPong { loop_op, stages_per_iteration: stage_counts }) = &plan.pingpong else {
            return Ok(());
        };
        let block = module.block(op.regions[0]);
        if *loop_op != plan.op || self.regions.block_of(*loop_op) != Some(body) {
            return fault(plan.op, "it is another loop");
        }
        if block.args[1..].iter().any(|&arg| !matches!(module.ty(arg), Type::Token)) {
            return fault(plan.op, "it has loop-carried values");
        }
        for &other in module.block(body).ops.iter().filter(|&&other| other != plan.op) {
            let waits = module.op(other).code == Opcode::GdcWait;
            if !module.op(other).regions.is_empty() || !waits && self.contains_side_effect(other) {
                return fault(plan.op, &format!("each group executes op {}", other.index()));
            }
        }
        if stages_per_iteration(events, plan.op, stage_counts.len()) != Some(stage_counts.clone()) {
            return fault(plan.op, "an iteration uses other stages than the other group skips");
        }
        for &inner in stage_counts.iter().flat_map(|stage_counts| &stage_counts.per_iteration_of) {
            let inner_op = module.op(inner);
            let from_entry = |value| match module.def(value) {
                Def::Arg(block, _) => block == body,
                Def::Result(id, _) => self.regions.block_of(id) == Some(body),
            };
            let even = inner_op.code == Opcode::For && (0..3).all(|group| from_entry(inner_op.group(group)[0]));
            if !even {
                return fault(inner, "its trip count is not invariant");
            }
        }
        OrderPoint::ALL.into_iter().try_for_each(|point| self.verify_order_span(schedule, (plan.op, plan.body), point))
    }

    /// Verifies that the steps of an order point are between its wait and its arrive.
    fn verify_order_span(
        &self,
        schedule: &Schedule,
        (loop_op, body): (OpId, SeqId),
        point: OrderPoint,
    ) -> VerifyResult {
        let (mut spans, mut in_span) = (0, false);
        for step in schedule.steps(body) {
            match step {
                Step::OrderWait(this) if *this == point => {
                    if in_span {
                        return fault(loop_op, "a section begins inside a section");
                    }
                    (spans, in_span) = (spans + 1, true);
                }
                Step::OrderArrive(this) if *this == point => {
                    if !in_span {
                        return fault(loop_op, "a section ends that has not begun");
                    }
                    in_span = false;
                }
                step => self.verify_step_order(schedule, step, (loop_op, point, in_span))?,
            }
        }
        match (spans, in_span) {
            (0 | 1, false) => Ok(()),
            (_, true) => fault(loop_op, "an ordered section does not end"),
            _ => fault(loop_op, "an iteration has two sections"),
        }
    }

    /// Does a step, with its bodies, do nothing that its ping-pong group may not?
    fn verify_step_order(
        &self,
        schedule: &Schedule,
        step: &Step,
        (loop_op, point, in_span): (OpId, OrderPoint, bool),
    ) -> VerifyResult {
        if let Some(id) = step
            .ops()
            .into_iter()
            .find(|&id| point == OrderPoint::SideEffects && !in_span && self.contains_side_effect(id))
        {
            return fault(loop_op, &format!("op {} is outside of its ordered section", id.index()));
        }
        if point == OrderPoint::Pipeline && !in_span && matches!(step, Step::Advance(_) | Step::ConsumerWait(_)) {
            return fault(loop_op, "an advance or a wait is outside of its ordered section");
        }
        let inside = step.sequences().iter().flat_map(|&body| schedule.steps(body));
        for inner in inside {
            if matches!(inner, Step::OrderWait(_) | Step::OrderArrive(_)) {
                return fault(loop_op, "a section begins or ends in a loop or branch");
            }
            self.verify_step_order(schedule, inner, (loop_op, point, in_span))?;
        }
        Ok(())
    }
}

/// What an iteration of a loop takes of each of so many pipelines, if that is known.
fn stages_per_iteration(events: &[PipelineEvent], loop_op: OpId, pipelines: usize) -> Option<Vec<StageCount>> {
    let mut stage_counts = vec![StageCount::default(); pipelines];
    let mut enclosing: Vec<OpId> = Vec::new();
    for event in events {
        match event {
            PipelineEvent::Enter(id) => enclosing.push(*id),
            PipelineEvent::Else => {}
            PipelineEvent::Leave => drop(enclosing.pop()),
            PipelineEvent::Stage(pipeline, _) => match enclosing[..] {
                [outer] if outer == loop_op => stage_counts[*pipeline].fixed += 1,
                [outer, inner] if outer == loop_op => stage_counts[*pipeline].per_iteration_of.push(inner),
                _ => return None,
            },
        }
    }
    stage_counts.iter_mut().for_each(|stage_counts| stage_counts.per_iteration_of.sort_unstable());
    Some(stage_counts)
}
