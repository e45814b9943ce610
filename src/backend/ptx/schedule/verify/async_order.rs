//! Verifies async order: no read before the wait, no release before the last read.
//!
//! The walk knows on every path what may be in flight: branches and loops begin and end with nothing, but for what is in
//! orbit, so that one path through each body stands for all of them.

use std::collections::HashMap;

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::schedule::ir::program::{
    ConsumerWait, For, MmaGroup, MmaWait, Partition, Schedule, SeqId, Step, WarpRole,
};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::backend::ptx::schedule::ir::tma_store::TmaStore;
use crate::ir::{OpId, Value};

/// Products that may be running.
#[derive(Clone, PartialEq, Eq)]
struct Flight {
    /// The last one of those that are issued together.
    product: OpId,
    /// What they compute.
    results: Vec<Value>,
    /// Has an iteration before this one issued them?
    carried: bool,
    /// Channels whose stages they read, and those that they give back.
    reads: Vec<u32>,
    gives: Vec<u32>,
}

/// A stage that is held.
#[derive(Clone, Copy)]
struct Stage {
    /// Where it was taken.
    body: SeqId,
    /// Have its tiles been waited for?
    arrived: bool,
}

/// What may be in flight at the end of a body.
#[derive(Clone, Copy)]
enum Ending<'a> {
    Nothing,
    Orbits(&'a For),
    Anything,
    /// The same, beside a branch that only computes.
    Beside,
}

/// One agent's way through its program.
struct Walk<'a, 'm> {
    context: &'a KernelInfo<'m>,
    schedule: &'a Schedule,
    acts: WarpRole,
    /// In the order in which they were issued.
    flying: Vec<Flight>,
    /// Stages that are held, by channel.
    held: HashMap<u32, Stage>,
    /// Channels whose products have landed and keep their stages.
    kept: Vec<u32>,
    /// Channels in whose stages boxes stand that the copy engine may still read.
    sent: Vec<u32>,
}

impl KernelInfo<'_> {
    /// Is everything waited for in time?
    pub fn verify_async_order(&self, schedule: &Schedule, agent: &Partition) -> VerifyResult {
        let (flying, held, kept, sent) = (Vec::new(), HashMap::new(), Vec::new(), Vec::new());
        let mut walk = Walk { context: self, schedule, acts: agent.role, flying, held, kept, sent };
        walk.body(agent.body, Ending::Nothing)
    }
}

fn fault(id: OpId, what: &str) -> VerifyResult {
    Err(format!("op {} {what}", id.index()))
}

impl<'a> Walk<'a, '_> {
    fn roles(&self) -> Option<&'a WarpSpecialization> {
        self.schedule.warp_spec.as_deref()
    }

    fn body(&mut self, body: SeqId, ending: Ending<'_>) -> VerifyResult {
        let mut late = false;
        for step in self.schedule.steps(body) {
            match step {
                _ if step.is_wait() && self.acts == WarpRole::Producer => {
                    return Err("a wait of an agent that has nothing to wait for".to_owned());
                }
                Step::MmaWait(land) => self.land(land)?,
                Step::ConsumerWait(wait) => self.await_tiles(wait, body)?,
                Step::Sub(within) => {
                    self.part_of_step(within)?;
                    continue;
                }
                step => {
                    self.is_ready(step)?;
                    if matches!(ending, Ending::Beside) && !self.flying.is_empty() && self.context.meets(step) {
                        return Err(
                            "threads may meet in a branch, and products land there that the other one has".to_owned()
                        );
                    }
                    self.step(step, body, ending)?;
                }
            }
            late = matches!(
                step,
                Step::MmaWait(MmaWait { sunk: true, .. }) | Step::ConsumerWait(ConsumerWait { sunk: true, .. })
            );
        }
        if late { Err("a wait is left to a step that does not come".to_owned()) } else { Ok(()) }
    }

    /// Are a step's operands there, and has landed what has to land first?
    fn is_ready(&self, step: &Step) -> VerifyResult {
        if self.is_crowded() {
            let product = self.flying[self.flying.len() - 2].product;
            return fault(product, "keeps its stage after the next product was issued");
        }
        let read = if self.flying.is_empty() { Vec::new() } else { self.context.values_read_by(step) };
        for flight in &self.flying {
            if let Some(value) = read.iter().find(|value| flight.results.contains(value)) {
                return fault(flight.product, &format!("has not landed where %{} is read", value.index()));
            }
        }
        match self.flying.first() {
            Some(flight) if self.context.waits_for_all_mmas(self.schedule, step) => {
                fault(flight.product, "has not landed where everything has to")
            }
            _ => Ok(()),
        }
    }

    /// Beside a producer, no other product runs on when one has been issued.
    fn is_crowded(&self) -> bool {
        let issued = self.flying.last().is_some_and(|flight| !flight.carried);
        self.acts == WarpRole::Consumer && self.flying.len() > 1 && issued
    }

    fn land(&mut self, land: &MmaWait) -> VerifyResult {
        let this = |flight: &Flight| (flight.product, flight.carried) == (land.mma, land.from_previous_iteration);
        let position = self.flying.len().checked_sub(land.pending + 1);
        match position.filter(|&position| this(&self.flying[position])) {
            Some(_) if land.sunk && self.is_crowded() => fault(land.mma, "keeps its stage longer than it needs it"),
            Some(position) => {
                let landed = self.flying.drain(..=position).flat_map(|flight| flight.gives);
                match (land.defer_release, land.release_after) {
                    (true, _) => self.kept.extend(landed),
                    (false, Some(_)) if self.kept.is_empty() => {
                        return fault(land.mma, "is waited for behind a value, and no stage comes back behind that");
                    }
                    (false, Some(_)) => self.kept.clear(),
                    (false, None) => {}
                }
                Ok(())
            }
            None => fault(land.mma, &format!("is not in flight with {} younger ones", land.pending)),
        }
    }

    /// Where threads meet, nothing is in flight: behind it they write to shared memory that products may read.
    fn part_of_step(&mut self, within: &SubStep) -> VerifyResult {
        match (within, self.flying.first()) {
            (SubStep::MmaWaitAll, None) => Err("products land where none is in flight".to_owned()),
            (SubStep::MmaWaitAll, _) => {
                self.flying.clear();
                Ok(())
            }
            (SubStep::TmaStoreWait { .. }, _) => {
                self.sent.clear();
                Ok(())
            }
            (SubStep::Barrier { .. }, Some(flight)) => fault(flight.product, "has not landed where threads meet"),
            _ => Ok(()),
        }
    }

    fn await_tiles(&mut self, wait: &ConsumerWait, body: SeqId) -> VerifyResult {
        match self.held.get_mut(&wait.channel) {
            Some(stage) if stage.body == body && !stage.arrived => {
                stage.arrived = true;
                Ok(())
            }
            Some(stage) if stage.arrived => Err(format!("channel {} is waited for twice", wait.channel)),
            Some(_) => Err(format!("channel {} is waited for elsewhere than its stage was taken", wait.channel)),
            None => Err(format!("channel {} is waited for, and its stage is not held", wait.channel)),
        }
    }

    fn step(&mut self, step: &'a Step, body: SeqId, ending: Ending<'_>) -> VerifyResult {
        match step {
            &Step::Advance(channel) => self.take(channel, body),
            Step::ConsumerRelease(channels) => channels.iter().try_for_each(|&channel| self.give(channel)),
            Step::Mma(plan) => self.multiply(plan),
            &Step::LocalLoad(load) => self.get(load),
            Step::TmaStore(send) => self.send(send),
            Step::For(step) => self.around_for(step),
            Step::Loop(step) => self.inside(step.body, Ending::Nothing),
            Step::If { arms, pure: quiet, .. } => {
                let ending = if *quiet { Ending::Beside } else { Ending::Nothing };
                let (before, mut after) = (self.flying.clone(), None);
                for &arm in arms {
                    self.flying.clone_from(&before);
                    self.inside(arm, ending)?;
                    if after.get_or_insert_with(|| self.flying.clone()) != &self.flying {
                        return Err("a branch waits for what the other one does not".to_owned());
                    }
                }
                Ok(())
            }
            &Step::End(id) => self.end(id, ending),
            _ => Ok(()),
        }
    }

    /// A body that need not run: what it takes and waits for is forgotten.
    fn inside(&mut self, body: SeqId, ending: Ending<'_>) -> VerifyResult {
        let before = self.held.clone();
        self.body(body, ending)?;
        self.held = before;
        Ok(())
    }

    /// There has to be a stage that is not held, nor kept by products that have not landed.
    fn take(&mut self, channel: u32, body: SeqId) -> VerifyResult {
        if self.acts != WarpRole::Consumer {
            return Ok(());
        }
        let Some(roles) = self.roles() else { return Ok(()) };
        let ring = |channel: &u32| roles.channels.get(*channel as usize).map(|channel| channel.pipeline);
        let kept = self.flying.iter().flat_map(|flight| &flight.gives).chain(&self.kept);
        let busy = self.held.keys().chain(kept).filter(|&other| ring(other) == ring(&channel)).count();
        let stages = ring(&channel).map_or(0, |ring| roles.pipelines[ring].num_stages as usize);
        if busy >= stages {
            return Err(format!("channel {channel} is taken where all {stages} stages of its ring are held"));
        }
        self.held.insert(channel, Stage { body, arrived: false });
        Ok(())
    }

    /// Boxes in a stage that is lent to a store.
    fn send(&mut self, send: &TmaStore) -> VerifyResult {
        let Some(channel) = send.staging.as_ref().and_then(|outbox| outbox.channel) else { return Ok(()) };
        self.sent.push(channel);
        match self.held.get(&channel) {
            Some(stage) if stage.arrived => Ok(()),
            _ => fault(send.op, &format!("has its boxes in the stage of channel {channel} before that is there")),
        }
    }

    fn give(&mut self, channel: u32) -> VerifyResult {
        if self.sent.contains(&channel) {
            return Err(format!(
                "the stage of channel {channel} is given back while the copy engine may still read it"
            ));
        }
        match self.held.remove(&channel) {
            Some(stage) if stage.arrived => Ok(()),
            _ => Err(format!("the stage of channel {channel} is given back before its tiles are there")),
        }
    }

    fn multiply(&mut self, plan: &MmaGroup) -> VerifyResult {
        let mut reads = Vec::new();
        for &id in &plan.ops {
            let operands = &self.context.module.op(id).operands[..2];
            let loads = operands.iter().filter_map(|&value| self.context.source_load(value));
            reads.extend(loads.filter_map(|load| Some(*self.roles()?.operand_channel.get(&load)? as u32)));
        }
        for channel in &reads {
            if !self.held.get(channel).is_some_and(|stage| stage.arrived) {
                let last = plan.ops[plan.ops.len() - 1];
                return fault(last, &format!("reads tiles of channel {channel} that have not been waited for"));
            }
        }
        plan.releases.iter().try_for_each(|&channel| self.give(channel))?;
        let Some(product) = plan.last() else { return Ok(()) };
        if self.context.is_async(&plan.ops) {
            let results = plan.ops.iter().map(|&id| self.context.module.op(id).results[0]).collect();
            self.flying.push(Flight { product, results, carried: false, reads, gives: plan.releases.clone() });
            return Ok(());
        }
        match self.flying.iter().find(|flight| flight.reads.iter().any(|channel| plan.releases.contains(channel))) {
            Some(flight) => fault(flight.product, "has not landed where its stage is given back"),
            None => Ok(()),
        }
    }

    /// A small tile has come with those of its channel, and a product that gives their stage back has not landed.
    fn get(&self, load: OpId) -> VerifyResult {
        let channel = self.roles().and_then(|roles| roles.aux_channel.get(&load)).map(|&channel| channel as u32);
        let kept = |channel: &u32| self.flying.iter().any(|flight| !flight.carried && flight.gives.contains(channel));
        match channel.map(|channel| (self.held.get(&channel), channel)) {
            Some((Some(stage), _)) if stage.arrived => Ok(()),
            Some((None, channel)) if kept(&channel) => Ok(()),
            _ => fault(load, "is read in a stage before its tiles are there"),
        }
    }

    fn around_for(&mut self, step: &'a For) -> VerifyResult {
        let op = self.context.module.op(step.op);
        let args = &self.context.module.block(op.regions[0]).args;
        let in_orbit = |of: &dyn Fn(usize) -> Option<Value>| -> Vec<Flight> {
            let flight = |orbit: &crate::backend::ptx::schedule::CarriedMma| Flight {
                product: orbit.mma,
                results: orbit.accumulators.iter().filter_map(|&carried| of(carried)).collect(),
                carried: true,
                reads: Vec::new(),
                gives: orbit.releases.clone(),
            };
            step.carried_mmas.iter().map(flight).collect()
        };
        // Copies that run ahead of the loop for all threads wait at the head, and on the way out, for whatever runs.
        let lands_at_head = step.cp_async.as_ref().is_some_and(|ahead| ahead.barrier_at_head);
        let ending = match () {
            () if !step.carried_mmas.is_empty() => Ending::Orbits(step),
            () if lands_at_head && self.acts == WarpRole::All => Ending::Anything,
            () => Ending::Nothing,
        };
        self.flying = if lands_at_head { Vec::new() } else { in_orbit(&|carried| args.get(carried + 1).copied()) };
        self.inside(step.body, ending)?;
        self.flying = in_orbit(&|carried| op.results.get(carried).copied());
        for wait in step.epilogue.map_or(&[][..], |leave| self.schedule.steps(leave)) {
            match wait {
                Step::MmaWait(land) if !land.sunk => self.land(land)?,
                _ => return fault(step.op, "does more on the way out than wait for products"),
            }
        }
        match self.flying.first() {
            Some(flight) => fault(flight.product, "has not landed behind the loop"),
            None => Ok(()),
        }
    }

    /// What may run on into the next iteration?
    fn end(&self, id: OpId, ending: Ending<'_>) -> VerifyResult {
        let exit = &self.context.module.op(id).operands;
        let stays = |flight: &Flight| match ending {
            Ending::Nothing => false,
            Ending::Anything | Ending::Beside => true,
            Ending::Orbits(step) => step.carried_mmas.iter().any(|orbit| {
                let carries = |&carried: &usize| exit.get(carried).is_some_and(|value| flight.results.contains(value));
                orbit.mma == flight.product && orbit.accumulators.iter().all(carries)
            }),
        };
        match self.flying.iter().find(|flight| !stays(flight)) {
            Some(flight) => fault(flight.product, "has not landed at the end of its body"),
            None if !self.kept.is_empty() && !matches!(ending, Ending::Beside) => {
                Err(format!("channels {:?} do not get back the stages that products kept", self.kept))
            }
            None => Ok(()),
        }
    }
}
