//! Reports loop hints that were not satisfied.

use std::collections::HashMap;

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::region_tree::RegionTree;
use crate::backend::ptx::schedule::ir::program::{Schedule, Step};
use crate::backend::ptx::schedule::ir::rejected_loads::{Reason, RejectedLoads};
use crate::ir::{BlockId, OpId, Opcode};

impl KernelInfo<'_> {
    /// The wishes of loops that a schedule does not meet, or not wholly, and the loops with products that have no producer.
    pub fn unmet_loop_hints(
        &self,
        body: BlockId,
        schedule: &Schedule,
        unstreamed: &RejectedLoads,
    ) -> Vec<(OpId, String)> {
        let mut loops = Vec::new();
        self.module.walk(body, &mut |id| {
            let is_loop = matches!(self.module.op(id).code, Opcode::For | Opcode::Loop);
            loops.extend(is_loop.then_some(id));
        });
        if loops.is_empty() {
            return Vec::new();
        }
        let structure = self.region_tree(body);
        let (streamed, copied) = (self.producer_stages(schedule, &structure), cp_async_stages(schedule));
        let mut unmet = Vec::new();
        for id in loops {
            let stages = streamed.get(&id).or_else(|| copied.get(&id)).copied();
            if let Some(wished) = self.int_hint(id, "stages").filter(|&wished| wished > 1) {
                match stages {
                    Some(stages) if stages < wished => {
                        unmet.push((id, format!("{stages} stages, for shared memory has no room for {wished}")));
                    }
                    Some(_) => {}
                    None => unmet.push((id, format!("no stages, where {wished} are wished: {NO_STAGES}"))),
                }
            }
            if !streamed.contains_key(&id)
                && let Some(why) = self.producer_rejection(body, id, (&structure, unstreamed))
            {
                unmet.push((id, format!("no producer: {why}")));
            }
            let dealt = schedule.warp_spec.as_ref().and_then(|roles| roles.pingpong.as_ref());
            if self.int_hint(id, "teams").is_some_and(|teams| teams > 1) && dealt.is_none_or(|deal| deal.loop_op != id)
            {
                unmet.push((id, format!("one team: {}", self.pingpong_rejection())));
            }
        }
        unmet
    }

    /// Stages of the loads of loops that a producer makes: the fewest.
    fn producer_stages(&self, schedule: &Schedule, structure: &RegionTree) -> HashMap<OpId, u32> {
        let mut found = HashMap::new();
        let Some(roles) = &schedule.warp_spec else { return found };
        for channel in &roles.channels {
            if let Some(around) = self.enclosing_loop(channel.block, structure) {
                let stages = roles.pipelines[channel.pipeline].num_stages;
                found.entry(around).and_modify(|known: &mut u32| *known = stages.min(*known)).or_insert(stages);
            }
        }
        found
    }

    /// The reasons why no producer makes the loads of a loop; none for a loop without products, or that has none by its own wish.
    fn producer_rejection(
        &self,
        body: BlockId,
        id: OpId,
        (structure, unstreamed): (&RegionTree, &RejectedLoads),
    ) -> Option<String> {
        let is_here =
            |op: OpId| self.op_blocks[op.index()].and_then(|block| self.enclosing_loop(block, structure)) == Some(id);
        let mut products = Vec::new();
        self.module.walk(body, &mut |op| {
            let multiplies = matches!(self.module.op(op).code, Opcode::MmaF | Opcode::MmaI);
            products.extend((multiplies && is_here(op)).then_some(op));
        });
        let asked = self.bool_hint(id, "streamed") == Some(true);
        let by_wish = self.can_use_producer(Some(id)).is_err_and(Reason::is_wish);
        if !asked && (by_wish || products.is_empty()) {
            return None;
        }
        if let Some(reason) = unstreamed.all {
            return Some(reason.to_string());
        }
        let mut reasons: Vec<String> = Vec::new();
        for &operand in products.iter().flat_map(|&product| &self.module.op(product).operands[..2]) {
            let reason = match (self.source_load(operand), self.module.defining_op(operand)) {
                (Some(load), _) if is_here(load) => {
                    unstreamed.loads.get(&load).map(|&reason| self.load_rejection(load, reason))
                }
                (Some(_), _) => Some("an operand is loaded outside of the loop".to_owned()),
                (None, Some(maker)) => {
                    Some(format!("threads make an operand, by `{}`", self.module.op(maker).code.spec().name))
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

    /// A reason why no producer makes a load, with the user's place if it is of this load alone.
    fn load_rejection(&self, load: OpId, reason: Reason) -> String {
        match self.module.location(self.module.op(load).loc).filter(|_| !reason.is_of_loop()) {
            Some(place) => format!("of the load at {place}: {reason}"),
            None => reason.to_string(),
        }
    }

    fn pingpong_rejection(&self) -> &'static str {
        if self.options.occupancy.is_some_and(|blocks| blocks > 1) {
            return "tile blocks share a multiprocessor";
        }
        if !self.can_pingpong() {
            return "a team is of 4 warps";
        }
        "iterations are dealt of the one loop of a kernel whose loads are streamed, if nothing is carried from one to the next, each \
         takes as many stages, and there is room for both teams"
    }
}

const NO_STAGES: &str = "its loads cannot be copied ahead, or there is no room for two";

/// Stages of copies ahead, by loop.
fn cp_async_stages(schedule: &Schedule) -> HashMap<OpId, u32> {
    let loops = schedule.sequences.iter().flatten().filter_map(|step| match step {
        Step::For(plan) => Some((plan.op, plan.cp_async.as_ref()?.stages as u32)),
        _ => None,
    });
    loops.collect()
}
