//! What loops wish for and do not get, in words for people.

use std::collections::HashMap;

use super::Context;
use super::data::{Schedule, Step};
use super::structure::Structure;
use crate::ir::{BlockId, OpId, Opcode};

impl Context<'_> {
    /// The wishes of loops that a schedule does not meet, or not wholly.
    pub fn unmet(&self, body: BlockId, schedule: &Schedule) -> Vec<(OpId, String)> {
        let mut hinted = Vec::new();
        self.module.walk(body, &mut |id| {
            let wishes = ["stages", "teams"].iter().any(|key| self.hinted_number(id, key).is_some());
            let is_loop = matches!(self.module.op(id).code, Opcode::For | Opcode::Loop);
            hinted.extend((is_loop && (wishes || self.hinted_flag(id, "streamed").is_some())).then_some(id));
        });
        if hinted.is_empty() {
            return Vec::new();
        }
        let structure = self.structure(body);
        let (streamed, copied) = (self.streamed_stages(schedule, &structure), copied_stages(schedule));
        let mut unmet = Vec::new();
        for id in hinted {
            let stages = streamed.get(&id).or_else(|| copied.get(&id)).copied();
            if let Some(wished) = self.hinted_number(id, "stages").filter(|&wished| wished > 1) {
                match stages {
                    Some(stages) if stages < wished => {
                        unmet.push((id, format!("{stages} stages, for shared memory has no room for {wished}")));
                    }
                    Some(_) => {}
                    None => unmet.push((id, format!("no stages, where {wished} are wished: {NOTHING_AHEAD}"))),
                }
            }
            if self.hinted_flag(id, "streamed") == Some(true) && !streamed.contains_key(&id) {
                unmet.push((id, format!("no producer: {}", self.why_not_streamed(body, id, &structure))));
            }
            let dealt = schedule.roles.as_ref().and_then(|roles| roles.deal.as_ref());
            if self.hinted_number(id, "teams").is_some_and(|teams| teams > 1)
                && dealt.is_none_or(|deal| deal.around != id)
            {
                unmet.push((id, format!("one team: {}", self.why_not_dealt())));
            }
        }
        unmet
    }

    /// Stages of the loads of loops that a producer makes: the fewest.
    fn streamed_stages(&self, schedule: &Schedule, structure: &Structure) -> HashMap<OpId, u32> {
        let mut found = HashMap::new();
        let Some(roles) = &schedule.roles else { return found };
        for channel in &roles.channels {
            if let Some(around) = self.loop_of(channel.block, structure) {
                let stages = roles.rings[channel.ring].stages;
                found.entry(around).and_modify(|known: &mut u32| *known = stages.min(*known)).or_insert(stages);
            }
        }
        found
    }

    /// Why no load of a loop is streamed.
    fn why_not_streamed(&self, body: BlockId, id: OpId, structure: &Structure) -> &'static str {
        if !self.can_stream() {
            return "there is one on sm_90a, if its threads find room beside the others";
        }
        if self.has_print(body) {
            return "the kernel prints";
        }
        if self.leaves_amid(body) {
            return "the kernel ends early, or leaves a loop between a load and its product";
        }
        if self.wished_stages(Some(id)) == Some(1) {
            return "nothing runs ahead with one stage";
        }
        let mut loads = false;
        self.module.walk(body, &mut |load| {
            let here = self.op_blocks[load.index()].is_some_and(|block| self.loop_of(block, structure) == Some(id));
            loads |= here && self.is_streamable(load, structure);
        });
        if loads {
            "shared memory has no room for its stages"
        } else {
            "no load of it that the copy engine can make is for matrix products alone that read shared memory"
        }
    }

    fn why_not_dealt(&self) -> &'static str {
        if self.options.occupancy.is_some_and(|blocks| blocks > 1) {
            return "tile blocks share a multiprocessor";
        }
        if !self.fit_teams() {
            return "a team is of 4 warps";
        }
        "iterations are dealt of the one loop of a kernel whose loads are streamed, if nothing is carried from one to the next, each \
         takes as many stages, and there is room for both teams"
    }
}

const NOTHING_AHEAD: &str = "its loads cannot be copied ahead, or there is no room for two";

/// Stages of copies ahead, by loop.
fn copied_stages(schedule: &Schedule) -> HashMap<OpId, u32> {
    let loops = schedule.bodies.iter().flatten().filter_map(|step| match step {
        Step::For(plan) => Some((plan.op, plan.ahead.as_ref()?.stages as u32)),
        _ => None,
    });
    loops.collect()
}
