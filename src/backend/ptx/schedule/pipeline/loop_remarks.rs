//! Remarks of loops: hints that were not satisfied (LLVM "missed" remarks), and the reasons why
//! loops with MMAs have no producer.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{Schedule, Step};
use crate::backend::ptx::schedule::ir::rejected_loads::{ProducerRejection, RejectedLoads};
use crate::ir::{OpId, Opcode, hint_key};

impl KernelInfo<'_> {
    /// Returns the loop hints that a schedule does not satisfy, or only in part, and the loops with
    /// MMAs but without a producer.
    pub fn missed_loop_hints(&self, schedule: &Schedule, rejected_loads: &RejectedLoads) -> Vec<(OpId, String)> {
        let loops = self.regions.ops().iter().copied().filter(|&id| self.module.op(id).code.is_loop());
        let (producer_stages, copied) = (self.producer_stages(schedule), cp_async_stages(schedule));
        let mut missed = Vec::new();
        for id in loops {
            let stages = producer_stages.get(&id).or_else(|| copied.get(&id)).copied();
            if let Some(requested) = self.requested_stages(Some(id)).filter(|&requested| requested > 1) {
                // A request of the launch is for the loops that have a pipeline.
                let of_loop = self.loop_stages(Some(id)).is_some() || self.lacks_requested_pipeline(id, schedule);
                match stages {
                    Some(stages) if stages < requested => {
                        missed.push((id, format!("{stages} stages, since shared memory has no space for {requested}")));
                    }
                    Some(_) => {}
                    None if !of_loop => {}
                    None => missed.push((id, format!("no pipeline, {requested} stages requested: {NO_STAGES}"))),
                }
            }
            if producer_stages.contains_key(&id) {
                let reasons = self.rejected_operands(id, rejected_loads);
                if !reasons.is_empty() {
                    missed.push((id, format!("operands without the producer: {}", reasons.join("; "))));
                }
            } else if let Some(why) = self.producer_rejection(id, rejected_loads) {
                missed.push((id, format!("no warp specialization: {why}")));
            }
            let pingpong = schedule.warp_spec.as_ref().and_then(|warp_spec| warp_spec.pingpong.as_ref());
            if self.bool_hint(id, hint_key::PINGPONG) == Some(true)
                && pingpong.is_none_or(|pingpong| pingpong.loop_op != id)
            {
                missed.push((id, format!("no ping-pong: {}", self.pingpong_rejection())));
            }
        }
        missed
    }

    /// Returns true if no loop of a kernel has a pipeline, and this innermost one loads tiles.
    fn lacks_requested_pipeline(&self, id: OpId, schedule: &Schedule) -> bool {
        let nested = self.regions.nested(id);
        let ops = || nested.iter().map(|&op| self.module.op(op).code);
        schedule.warp_spec.is_none()
            && cp_async_stages(schedule).is_empty()
            && ops().any(|code| code == Opcode::LoadView)
            && !ops().any(|code| code.is_loop())
    }

    /// Returns the number of stages of the producer's loads in each loop: the minimum of its
    /// pipelines.
    fn producer_stages(&self, schedule: &Schedule) -> FxHashMap<OpId, u32> {
        let mut found = FxHashMap::default();
        let Some(warp_spec) = &schedule.warp_spec else { return found };
        for channel in &warp_spec.channels {
            if let Some(loop_op) = self.regions.loop_of_block(channel.block) {
                let stages = warp_spec.pipelines[channel.pipeline].num_stages;
                found.entry(loop_op).and_modify(|known: &mut u32| *known = stages.min(*known)).or_insert(stages);
            }
        }
        found
    }

    /// Returns the MMAs of a loop, without those of nested loops.
    fn mmas_of_loop(&self, id: OpId) -> impl Iterator<Item = OpId> + '_ {
        let nested = self.regions.nested(id).iter().copied();
        nested.filter(move |&op| self.module.op(op).code.is_mma() && self.regions.enclosing_loop(op) == Some(id))
    }

    /// Returns the reasons why the producer of a loop does not load some operands that the loop
    /// loads for its MMAs.
    fn rejected_operands(&self, id: OpId, rejected_loads: &RejectedLoads) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        for operand in self.mmas_of_loop(id).flat_map(|mma| &self.module.op(mma).operands[..2]) {
            for load in self.operand_loads(*operand) {
                let reason = rejected_loads.loads.get(&load).filter(|_| self.regions.enclosing_loop(load) == Some(id));
                let reason = reason.map(|&reason| self.load_rejection(load, reason));
                reasons.extend(reason.filter(|reason| !reasons.contains(reason)));
            }
        }
        reasons
    }

    /// Returns the reasons why the producer does not load for a loop; `None` for a loop without
    /// MMAs, and for a loop that requests no producer.
    fn producer_rejection(&self, id: OpId, rejected_loads: &RejectedLoads) -> Option<String> {
        let is_here = |op: OpId| self.regions.enclosing_loop(op) == Some(id);
        let mmas: Vec<OpId> = self.mmas_of_loop(id).collect_vec();
        let is_requested = self.bool_hint(id, hint_key::WARP_SPECIALIZE) == Some(true);
        let by_hint = self.can_use_producer(Some(id)).is_err_and(ProducerRejection::is_hint);
        if !is_requested && (by_hint || mmas.is_empty()) {
            return None;
        }
        if let Some(reason) = rejected_loads.all {
            return Some(reason.to_string());
        }
        let mut reasons: Vec<String> = Vec::new();
        for &operand in mmas.iter().flat_map(|&mma| &self.module.op(mma).operands[..2]) {
            let reason = match (self.source_load(operand), self.module.defining_op(operand)) {
                (Some(load), _) if is_here(load) => {
                    rejected_loads.loads.get(&load).map(|&reason| self.load_rejection(load, reason))
                }
                (Some(_), _) => Some("an operand is loaded outside of the loop".to_owned()),
                (None, Some(maker)) => {
                    Some(format!("`{}` computes an operand in registers", self.module.op(maker).code.spec().name))
                }
                (None, None) => Some("the loop carries an operand".to_owned()),
            };
            reasons.extend(reason.filter(|reason| !reasons.contains(reason)));
        }
        if reasons.is_empty() {
            reasons.push("it loads no operand of a product".to_owned());
        }
        Some(reasons.join("; "))
    }

    /// Returns the reason of a rejected load, with the user's source location if the reason is of
    /// this load alone.
    fn load_rejection(&self, load: OpId, reason: ProducerRejection) -> String {
        match self.module.location(self.module.op(load).loc).filter(|_| !reason.is_of_loop()) {
            Some(location) => format!("of the load at {location}: {reason}"),
            None => reason.to_string(),
        }
    }

    fn pingpong_rejection(&self) -> &'static str {
        if self.options.occupancy.is_some_and(|blocks| blocks > 1) {
            return "tile blocks share an SM";
        }
        if !self.can_pingpong() {
            return "a ping-pong group has 4 warps";
        }
        "it requires one persistent loop with warp-specialized loads, no values carried between iterations, the same number of stages \
         in each iteration, and registers for both groups"
    }
}

const NO_STAGES: &str = "its loads cannot be pipelined, or shared memory has no space for two stages";

/// Returns the number of stages of multistage copies, by loop.
fn cp_async_stages(schedule: &Schedule) -> FxHashMap<OpId, u32> {
    let loops = schedule.sequences.iter().flatten().filter_map(|step| match step {
        Step::For(plan) => Some((plan.op, plan.cp_async.as_ref()?.stages as u32)),
        _ => None,
    });
    loops.collect()
}
