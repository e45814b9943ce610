//! Verifies async order: no read before the wait, no release before the last read.
//!
//! The verifier tracks the MMAs that may be in flight on every path. Branches and loops begin and
//! end with loop-carried MMAs only, so one path through each sequence represents all of them.

use std::collections::HashMap;

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::schedule::ir::program::{
    ConsumerWait, For, MmaGroup, MmaWait, OrderPoint, Partition, Schedule, SeqId, Step, WarpRole,
};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::backend::ptx::schedule::ir::tma_store::TmaStore;
use crate::ir::{OpId, Value};

/// MMAs that may be running.
#[derive(Clone, PartialEq, Eq)]
struct InFlightMma {
    /// The last one of those that are issued together.
    mma: OpId,
    /// What they compute.
    results: Vec<Value>,
    /// Has an iteration before this one issued them?
    from_previous_iteration: bool,
    /// Channels whose stages they read, and those that they release.
    reads: Vec<u32>,
    releases: Vec<u32>,
}

/// A stage that is held.
#[derive(Clone, Copy)]
struct AcquiredStage {
    /// Where it was taken.
    seq: SeqId,
    /// Have its tiles been waited for?
    is_full: bool,
}

/// What may be in flight at the end of a body.
#[derive(Clone, Copy)]
enum Ending<'a> {
    Nothing,
    Carried(&'a For),
    Anything,
    /// The same, beside a branch that only computes.
    Overlapped,
}

/// One partition's way through its program.
struct AsyncOrderVerifier<'a, 'm> {
    info: &'a KernelInfo<'m>,
    schedule: &'a Schedule,
    role: WarpRole,
    /// In the order in which they were issued.
    in_flight: Vec<InFlightMma>,
    /// Stages that are held, by channel.
    acquired: HashMap<u32, AcquiredStage>,
    /// Channels whose MMAs are complete and keep their stages.
    deferred_releases: Vec<u32>,
    /// Channels in whose stages boxes stand that TMA may still read.
    staging_channels: Vec<u32>,
}

impl KernelInfo<'_> {
    /// Is everything waited for in time?
    pub fn verify_async_order(&self, schedule: &Schedule, partition: &Partition) -> VerifyResult {
        let (in_flight, held, deferred, staging_channels) = (Vec::new(), HashMap::new(), Vec::new(), Vec::new());
        let mut verifier = AsyncOrderVerifier {
            info: self,
            schedule,
            role: partition.role,
            in_flight,
            acquired: held,
            deferred_releases: deferred,
            staging_channels,
        };
        verifier.sequence(partition.body, Ending::Nothing)
    }
}

fn fault(id: OpId, what: &str) -> VerifyResult {
    Err(format!("op {} {what}", id.index()))
}

impl<'a> AsyncOrderVerifier<'a, '_> {
    fn warp_spec(&self) -> Option<&'a WarpSpecialization> {
        self.schedule.warp_spec.as_deref()
    }

    fn sequence(&mut self, body: SeqId, ending: Ending<'_>) -> VerifyResult {
        let mut sunk = false;
        for step in self.schedule.steps(body) {
            match step {
                _ if step.is_wait() && self.role == WarpRole::Producer => {
                    return Err("the producer has a wait".to_owned());
                }
                Step::MmaWait(wait) => self.mma_wait(wait)?,
                Step::ConsumerWait(wait) => self.consumer_wait(wait, body)?,
                Step::Sub(sub_step) => {
                    self.sub_step(sub_step)?;
                    continue;
                }
                // Between MMAs and the waits of their step.
                Step::OrderWait { .. } | Step::OrderArrive(OrderPoint::Mma(_)) => continue,
                step => {
                    self.is_ready(step)?;
                    if matches!(ending, Ending::Overlapped)
                        && !self.in_flight.is_empty()
                        && self.info.may_need_barrier(step)
                    {
                        return Err(
                            "a branch may have a barrier, and waits there for MMAs that the other branch does not wait for".to_owned()
                        );
                    }
                    self.step(step, body, ending)?;
                }
            }
            sunk = matches!(
                step,
                Step::MmaWait(MmaWait { sunk: true, .. }) | Step::ConsumerWait(ConsumerWait { sunk: true, .. })
            );
        }
        if sunk { Err("a sunk wait without a next step".to_owned()) } else { Ok(()) }
    }

    /// Are a step's operands there, and is complete what has to be complete first?
    fn is_ready(&self, step: &Step) -> VerifyResult {
        if self.has_unwaited_previous() {
            let mma = self.in_flight[self.in_flight.len() - 2].mma;
            return fault(mma, "keeps its stage after the issue of the next MMA");
        }
        let read = if self.in_flight.is_empty() { Vec::new() } else { self.info.values_read_by(step) };
        for mma in &self.in_flight {
            if let Some(value) = read.iter().find(|value| mma.results.contains(value)) {
                return fault(mma.mma, &format!("is in flight where %{} is read", value.index()));
            }
        }
        match self.in_flight.first() {
            Some(mma) if self.info.waits_for_all_mmas(self.schedule, step) => {
                fault(mma.mma, "is in flight where all MMAs must be complete")
            }
            _ => Ok(()),
        }
    }

    /// Beside a producer, no other MMA runs on when one has been issued.
    fn has_unwaited_previous(&self) -> bool {
        let issued = self.in_flight.last().is_some_and(|mma| !mma.from_previous_iteration);
        self.role == WarpRole::Consumer && self.in_flight.len() > 1 && issued
    }

    fn mma_wait(&mut self, wait: &MmaWait) -> VerifyResult {
        let this =
            |mma: &InFlightMma| (mma.mma, mma.from_previous_iteration) == (wait.mma, wait.from_previous_iteration);
        let position = self.in_flight.len().checked_sub(wait.pending + 1);
        match position.filter(|&position| this(&self.in_flight[position])) {
            Some(_) if wait.sunk && self.has_unwaited_previous() => {
                fault(wait.mma, "keeps its stage longer than necessary")
            }
            Some(position) => {
                let releases = self.in_flight.drain(..=position).flat_map(|mma| mma.releases);
                match (wait.defer_release, wait.release_after) {
                    (true, _) => self.deferred_releases.extend(releases),
                    (false, Some(_)) if self.deferred_releases.is_empty() => {
                        return fault(wait.mma, "has release_after, and no deferred release");
                    }
                    (false, Some(_)) => self.deferred_releases.clear(),
                    (false, None) => {}
                }
                Ok(())
            }
            None => fault(wait.mma, &format!("is not in flight with {} pending groups", wait.pending)),
        }
    }

    /// Where threads have a barrier, nothing is in flight: behind it they write to shared memory
    /// that MMAs may read.
    fn sub_step(&mut self, sub_step: &SubStep) -> VerifyResult {
        match (sub_step, self.in_flight.first()) {
            (SubStep::MmaWaitAll, None) => Err("mma_wait_all without an MMA in flight".to_owned()),
            (SubStep::MmaWaitAll, _) => {
                self.in_flight.clear();
                Ok(())
            }
            (SubStep::TmaStoreWait { .. }, _) => {
                self.staging_channels.clear();
                Ok(())
            }
            (SubStep::Barrier { .. }, Some(mma)) => fault(mma.mma, "is in flight at a barrier"),
            _ => Ok(()),
        }
    }

    fn consumer_wait(&mut self, wait: &ConsumerWait, body: SeqId) -> VerifyResult {
        match self.acquired.get_mut(&wait.channel) {
            Some(stage) if stage.seq == body && !stage.is_full => {
                stage.is_full = true;
                Ok(())
            }
            Some(stage) if stage.is_full => Err(format!("channel {} is waited for twice", wait.channel)),
            Some(_) => Err(format!("channel {} is waited for in another sequence than its advance", wait.channel)),
            None => Err(format!("channel {} is waited for, and its stage is not acquired", wait.channel)),
        }
    }

    fn step(&mut self, step: &'a Step, body: SeqId, ending: Ending<'_>) -> VerifyResult {
        match step {
            &Step::Advance(channel) => self.advance(channel, body),
            Step::ConsumerRelease(channels) => channels.iter().try_for_each(|&channel| self.consumer_release(channel)),
            Step::Mma(plan) => self.mma_group(plan),
            &Step::LocalLoad(load) => self.local_load(load),
            Step::TmaStore(tma_store) => self.tma_store(tma_store),
            Step::For(step) => self.for_loop(step),
            Step::Loop(step) => self.region(step.body, Ending::Nothing),
            Step::If { arms, pure, .. } => {
                let ending = if *pure { Ending::Overlapped } else { Ending::Nothing };
                let (before, mut after) = (self.in_flight.clone(), None);
                for &arm in arms {
                    self.in_flight.clone_from(&before);
                    self.region(arm, ending)?;
                    if after.get_or_insert_with(|| self.in_flight.clone()) != &self.in_flight {
                        return Err("the branches wait for different MMAs".to_owned());
                    }
                }
                Ok(())
            }
            &Step::End(id) => self.terminator(id, ending),
            _ => Ok(()),
        }
    }

    /// A body that need not run: what it takes and waits for is forgotten.
    fn region(&mut self, body: SeqId, ending: Ending<'_>) -> VerifyResult {
        let before = self.acquired.clone();
        self.sequence(body, ending)?;
        self.acquired = before;
        Ok(())
    }

    /// An advance needs a stage that is neither acquired nor read by MMAs in flight.
    fn advance(&mut self, channel: u32, body: SeqId) -> VerifyResult {
        if self.role != WarpRole::Consumer {
            return Ok(());
        }
        let Some(warp_spec) = self.warp_spec() else { return Ok(()) };
        let pipeline = |channel: &u32| warp_spec.channels.get(*channel as usize).map(|channel| channel.pipeline);
        let deferred = self.in_flight.iter().flat_map(|mma| &mma.releases).chain(&self.deferred_releases);
        let busy = self.acquired.keys().chain(deferred).filter(|&other| pipeline(other) == pipeline(&channel)).count();
        let stages = pipeline(&channel).map_or(0, |pipeline| warp_spec.pipelines[pipeline].num_stages as usize);
        if busy >= stages {
            return Err(format!("channel {channel} advances where all {stages} stages of its pipeline are acquired"));
        }
        self.acquired.insert(channel, AcquiredStage { seq: body, is_full: false });
        Ok(())
    }

    /// A TMA store whose staging buffer is a pipeline stage.
    fn tma_store(&mut self, tma_store: &TmaStore) -> VerifyResult {
        let Some(channel) = tma_store.staging.as_ref().and_then(|staging| staging.channel) else { return Ok(()) };
        self.staging_channels.push(channel);
        match self.acquired.get(&channel) {
            Some(stage) if stage.is_full => Ok(()),
            _ => fault(tma_store.op, &format!("uses the stage of channel {channel} before the wait for it")),
        }
    }

    fn consumer_release(&mut self, channel: u32) -> VerifyResult {
        if self.staging_channels.contains(&channel) {
            return Err(format!("the stage of channel {channel} is released while TMA may still read it"));
        }
        match self.acquired.remove(&channel) {
            Some(stage) if stage.is_full => Ok(()),
            _ => Err(format!("the stage of channel {channel} is released before the wait for its tiles")),
        }
    }

    fn mma_group(&mut self, plan: &MmaGroup) -> VerifyResult {
        let mut reads = Vec::new();
        for &id in &plan.ops {
            let operands = &self.info.module.op(id).operands[..2];
            let loads = operands.iter().filter_map(|&value| self.info.source_load(value));
            reads.extend(loads.filter_map(|load| self.warp_spec()?.operand_channel(load)));
        }
        for channel in &reads {
            if !self.acquired.get(channel).is_some_and(|stage| stage.is_full) {
                let last = plan.ops[plan.ops.len() - 1];
                return fault(last, &format!("reads tiles of channel {channel} that have not been waited for"));
            }
        }
        plan.releases.iter().try_for_each(|&channel| self.consumer_release(channel))?;
        let Some(mma) = plan.last() else { return Ok(()) };
        if self.info.is_async(&plan.ops) {
            let results = plan.ops.iter().map(|&id| self.info.module.op(id).results[0]).collect();
            self.in_flight.push(InFlightMma {
                mma,
                results,
                from_previous_iteration: false,
                reads,
                releases: plan.releases.clone(),
            });
            return Ok(());
        }
        match self.in_flight.iter().find(|mma| mma.reads.iter().any(|channel| plan.releases.contains(channel))) {
            Some(mma) => fault(mma.mma, "is in flight where its stage is released"),
            None => Ok(()),
        }
    }

    /// A `local_load` follows the wait for its channel. An MMA that releases the stage may be in
    /// flight.
    fn local_load(&self, load: OpId) -> VerifyResult {
        let Some(channel) = self.warp_spec().and_then(|warp_spec| warp_spec.aux_channel(load)) else { return Ok(()) };
        let deferred = |channel: &u32| {
            self.in_flight.iter().any(|mma| !mma.from_previous_iteration && mma.releases.contains(channel))
        };
        match self.acquired.get(&channel) {
            Some(stage) if stage.is_full => Ok(()),
            None if deferred(&channel) => Ok(()),
            _ => fault(load, "is read in a stage before the wait for its tiles"),
        }
    }

    fn for_loop(&mut self, step: &'a For) -> VerifyResult {
        let op = self.info.module.op(step.op);
        let args = &self.info.module.block(op.regions[0]).args;
        let carried_mmas = |of: &dyn Fn(usize) -> Option<Value>| -> Vec<InFlightMma> {
            let mma = |carried_mma: &crate::backend::ptx::schedule::CarriedMma| InFlightMma {
                mma: carried_mma.mma,
                results: carried_mma.accumulators.iter().filter_map(|&carried| of(carried)).collect(),
                from_previous_iteration: true,
                reads: Vec::new(),
                releases: carried_mma.releases.clone(),
            };
            step.carried_mmas.iter().map(mma).collect()
        };
        // Multistage copies of the loop for all threads wait at the head, and on the way out, for
        // whatever runs.
        let waits_at_head = step.cp_async.as_ref().is_some_and(|cp_async| cp_async.barrier_at_head);
        let ending = match () {
            () if !step.carried_mmas.is_empty() => Ending::Carried(step),
            () if waits_at_head && self.role == WarpRole::All => Ending::Anything,
            () => Ending::Nothing,
        };
        self.in_flight =
            if waits_at_head { Vec::new() } else { carried_mmas(&|carried| args.get(carried + 1).copied()) };
        self.region(step.body, ending)?;
        self.in_flight = carried_mmas(&|carried| op.results.get(carried).copied());
        for wait in step.epilogue.map_or(&[][..], |epilogue| self.schedule.steps(epilogue)) {
            match wait {
                Step::MmaWait(wait) if !wait.sunk => self.mma_wait(wait)?,
                _ => return fault(step.op, "has other steps than MMA waits in its epilogue"),
            }
        }
        match self.in_flight.first() {
            Some(mma) => fault(mma.mma, "is in flight after the loop"),
            None => Ok(()),
        }
    }

    /// What may run on into the next iteration?
    fn terminator(&self, id: OpId, ending: Ending<'_>) -> VerifyResult {
        let exit = &self.info.module.op(id).operands;
        let may_stay = |mma: &InFlightMma| match ending {
            Ending::Nothing => false,
            Ending::Anything | Ending::Overlapped => true,
            Ending::Carried(step) => step.carried_mmas.iter().any(|carried_mma| {
                let carries = |&carried: &usize| exit.get(carried).is_some_and(|value| mma.results.contains(value));
                carried_mma.mma == mma.mma && carried_mma.accumulators.iter().all(carries)
            }),
        };
        match self.in_flight.iter().find(|mma| !may_stay(mma)) {
            Some(mma) => fault(mma.mma, "is in flight at the end of its sequence"),
            None if !self.deferred_releases.is_empty() && !matches!(ending, Ending::Overlapped) => {
                Err(format!("the deferred releases of channels {:?} are missing", self.deferred_releases))
            }
            None => Ok(()),
        }
    }
}
