//! Verifies ping-pong: equal stage counts, no carried values, no side effects elsewhere.

use super::{PipelineEvent, VerifyResult};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::{PingPong, StagesPerIteration};
use crate::backend::ptx::schedule::ir::program::{For, Schedule, WarpRole};
use crate::ir::{BlockId, Def, OpId, Opcode, Type};
use crate::util::sort;

fn fault(id: OpId, what: &str) -> VerifyResult {
    Err(format!("op {} has ping-pong, and {what}", id.index()))
}

impl KernelInfo<'_> {
    /// Verifies ping-pong. `events`: the stages, loops and branches of the producer.
    pub fn verify_pingpong(&self, body: BlockId, schedule: &Schedule, events: &[PipelineEvent]) -> VerifyResult {
        let required = schedule.warp_spec.as_ref().and_then(|warp_spec| warp_spec.pingpong.as_ref());
        let mut found = 0;
        for partition in &schedule.partitions {
            for plan in schedule.loops(partition.role).into_iter().filter(|plan| plan.pingpong.is_some()) {
                if plan.pingpong.as_ref() != required || partition.role != WarpRole::Consumer {
                    return fault(plan.op, "another one than the warp specialization");
                }
                found += 1;
                self.verify_pingpong_loop(body, plan, events)?;
            }
        }
        if found == usize::from(required.is_some()) { Ok(()) } else { Err(format!("{found} loops have ping-pong")) }
    }

    fn verify_pingpong_loop(&self, body: BlockId, plan: &For, events: &[PipelineEvent]) -> VerifyResult {
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
        for &inner in stage_counts.iter().flat_map(|stage_counts| &stage_counts.per_trip_of) {
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
        Ok(())
    }
}

/// Returns the stages of each pipeline that one iteration of a loop uses. `pipelines`: number of
/// pipelines. `None` if a stage is used outside of the loop, or more than one loop or branch deep
/// inside it.
fn stages_per_iteration(events: &[PipelineEvent], loop_op: OpId, pipelines: usize) -> Option<Vec<StagesPerIteration>> {
    let mut stage_counts = vec![StagesPerIteration::default(); pipelines];
    let mut enclosing: Vec<OpId> = Vec::new();
    for event in events {
        match event {
            PipelineEvent::Enter(id) => enclosing.push(*id),
            PipelineEvent::Else | PipelineEvent::Return => {}
            PipelineEvent::Leave => drop(enclosing.pop()),
            PipelineEvent::Stage(pipeline, _) => match enclosing[..] {
                [outer] if outer == loop_op => stage_counts[*pipeline].direct += 1,
                [outer, inner] if outer == loop_op => stage_counts[*pipeline].per_trip_of.push(inner),
                _ => return None,
            },
        }
    }
    stage_counts.iter_mut().for_each(|stage_counts| sort::natural(&mut stage_counts.per_trip_of));
    Some(stage_counts)
}
