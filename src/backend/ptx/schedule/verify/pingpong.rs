//! Verifies ping-pong: equal stage counts, no carried values, side effects in order.

use super::{PipelineEvent, VerifyResult};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::{PingPong, StageCount};
use crate::backend::ptx::schedule::ir::program::{For, OrderPoint, Schedule, SeqId, Step, WarpRole};
use crate::ir::{BlockId, Def, OpId, Opcode, Type};

fn fault(id: OpId, what: &str) -> VerifyResult {
    Err(format!("the iterations of op {} are dealt, and {what}", id.index()))
}

impl KernelInfo<'_> {
    /// Is a schedule with teams one? `way`: that of the agent that loads, through the rings.
    pub fn verify_pingpong(&self, body: BlockId, schedule: &Schedule, way: &[PipelineEvent]) -> VerifyResult {
        let wanted = schedule.warp_spec.as_ref().and_then(|roles| roles.pingpong.as_ref());
        let mut found = 0;
        for agent in &schedule.partitions {
            for plan in schedule.loops(agent.role).into_iter().filter(|plan| plan.pingpong.is_some()) {
                if plan.pingpong.as_ref() != wanted || agent.role != WarpRole::Consumer {
                    return fault(plan.op, "not as the roles have it");
                }
                found += 1;
                self.verify_pingpong_loop(body, schedule, plan, way)?;
            }
        }
        if found == usize::from(wanted.is_some()) { Ok(()) } else { Err(format!("{found} loops are dealt")) }
    }

    fn verify_pingpong_loop(
        &self,
        body: BlockId,
        schedule: &Schedule,
        plan: &For,
        way: &[PipelineEvent],
    ) -> VerifyResult {
        let (module, op) = (self.module, self.module.op(plan.op));
        let Some(PingPong { loop_op: around, stages_per_iteration: takes }) = &plan.pingpong else { return Ok(()) };
        let block = module.block(op.regions[0]);
        if *around != plan.op || self.op_blocks[around.index()] != Some(body) {
            return fault(plan.op, "it is another loop");
        }
        if block.args[1..].iter().any(|&arg| !matches!(module.ty(arg), Type::Token)) {
            return fault(plan.op, "each carries something to the next one");
        }
        for &other in module.block(body).ops.iter().filter(|&&other| other != plan.op) {
            let waits = module.op(other).code == Opcode::GdcWait;
            if !module.op(other).regions.is_empty() || !waits && self.contains_side_effect(other) {
                return fault(plan.op, &format!("each team does op {}, too", other.index()));
            }
        }
        if stages_per_iteration(way, plan.op, takes.len()) != Some(takes.clone()) {
            return fault(plan.op, "an iteration takes other stages than are skipped for it");
        }
        for &inner in takes.iter().flat_map(|takes| &takes.per_iteration_of) {
            let inner_op = module.op(inner);
            let from_entry = |value| match module.def(value) {
                Def::Arg(block, _) => block == body,
                Def::Result(id, _) => self.op_blocks[id.index()] == Some(body),
            };
            let even = inner_op.code == Opcode::For && (0..3).all(|group| from_entry(inner_op.group(group)[0]));
            if !even {
                return fault(inner, "it goes round more often in one than in another");
            }
        }
        OrderPoint::ALL.into_iter().try_for_each(|turn| self.verify_order_span(schedule, (plan.op, plan.body), turn))
    }

    /// Is all that teams do in turn between this turn and its end?
    fn verify_order_span(&self, schedule: &Schedule, (around, body): (OpId, SeqId), turn: OrderPoint) -> VerifyResult {
        let (mut turns, mut has_turn) = (0, false);
        for step in schedule.steps(body) {
            match step {
                Step::OrderWait(this) if *this == turn => {
                    if has_turn {
                        return fault(around, "a turn begins within a turn");
                    }
                    (turns, has_turn) = (turns + 1, true);
                }
                Step::OrderArrive(this) if *this == turn => {
                    if !has_turn {
                        return fault(around, "a turn ends that has not begun");
                    }
                    has_turn = false;
                }
                step => self.verify_step_order(schedule, step, (around, turn, has_turn))?,
            }
        }
        match (turns, has_turn) {
            (0 | 1, false) => Ok(()),
            (_, true) => fault(around, "a turn does not end"),
            _ => fault(around, "an iteration has two turns"),
        }
    }

    /// Does a step, with its bodies, do nothing that its team may not?
    fn verify_step_order(
        &self,
        schedule: &Schedule,
        step: &Step,
        (around, turn, has_turn): (OpId, OrderPoint, bool),
    ) -> VerifyResult {
        if let Some(id) = step
            .ops()
            .into_iter()
            .find(|&id| turn == OrderPoint::SideEffects && !has_turn && self.contains_side_effect(id))
        {
            return fault(around, &format!("op {} is done out of turn", id.index()));
        }
        if turn == OrderPoint::Pipeline && !has_turn && matches!(step, Step::Advance(_) | Step::ConsumerWait(_)) {
            return fault(around, "a stage is taken or waited for out of turn");
        }
        let inside = step.sequences().iter().flat_map(|&body| schedule.steps(body));
        for inner in inside {
            if matches!(inner, Step::OrderWait(_) | Step::OrderArrive(_)) {
                return fault(around, "a turn begins or ends in a loop or branch");
            }
            self.verify_step_order(schedule, inner, (around, turn, has_turn))?;
        }
        Ok(())
    }
}

/// What an iteration of a loop takes of each of so many rings, if that is known.
fn stages_per_iteration(way: &[PipelineEvent], around: OpId, rings: usize) -> Option<Vec<StageCount>> {
    let mut takes = vec![StageCount::default(); rings];
    let mut within: Vec<OpId> = Vec::new();
    for mark in way {
        match mark {
            PipelineEvent::Enter(id) => within.push(*id),
            PipelineEvent::Else => {}
            PipelineEvent::Leave => drop(within.pop()),
            PipelineEvent::Stage(ring, _) => match within[..] {
                [outer] if outer == around => takes[*ring].fixed += 1,
                [outer, inner] if outer == around => takes[*ring].per_iteration_of.push(inner),
                _ => return None,
            },
        }
    }
    takes.iter_mut().for_each(|takes| takes.per_iteration_of.sort_unstable());
    Some(takes)
}
