//! Verifies async order: no read before the wait, no release before the last read.
//!
//! The verifier tracks the MMAs that may be in flight on every path. Loops begin and end with
//! loop-carried MMAs only, so one path through each sequence represents all of them.
//!
//! Waits inside one MMA (`mma/wgmma`) are no steps. They complete more groups than the schedule
//! assumes, never fewer. Those at the head of a multistage loop follow from
//! `For::has_barrier_at_head`.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::schedule::ir::program::{
    ConsumerWait, For, MmaGroup, MmaWait, OrderPoint, Partition, Schedule, SeqId, Step, WarpRole,
};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::backend::ptx::schedule::ir::tma_store::TmaStore;
use crate::backend::ptx::schedule::ir::walk::{ProgramPoint, Visitor};
use crate::ir::{OpId, Value};

/// MMA group in flight in a finished schedule, with its stages, for the verifier.
#[derive(Clone, PartialEq, Eq)]
struct VerifiedMmaGroup {
    /// Last MMA of the group.
    mma: OpId,
    /// Results of the MMAs of the group.
    results: Vec<Value>,
    /// The group was issued in the previous iteration.
    from_previous_iteration: bool,
    /// Channels whose stages the group reads.
    reads: Vec<u32>,
    /// Channels whose stages are released when the group is complete.
    releases: Vec<u32>,
}

/// The acquire of a stage. `program` verifies that its sequence releases the stage.
#[derive(Clone, Copy)]
struct StageAcquire {
    /// Sequence with the advance.
    seq: SeqId,
    /// The full barrier of the stage has been waited for.
    is_full: bool,
}

/// Verifier of one partition. It holds the state at the current step.
struct AsyncOrderVerifier<'a, 'm> {
    info: &'a KernelInfo<'m>,
    schedule: &'a Schedule,
    role: WarpRole,
    /// Groups in flight, in order of issue.
    in_flight: Vec<VerifiedMmaGroup>,
    /// Acquired stages, by channel.
    acquired: FxHashMap<u32, StageAcquire>,
    /// Channels with a deferred release: their MMAs are complete, and the stages are still
    /// acquired.
    deferred_releases: Vec<u32>,
    /// Channels whose stages are staging buffers that TMA may still read.
    staging_channels: Vec<u32>,
}

impl KernelInfo<'_> {
    /// Verifies the waits and the releases of a partition.
    ///
    /// # Errors
    /// The first fault: an early read or release, a missing, duplicate or late wait, or an MMA in
    /// flight where all must be complete.
    pub fn verify_async_order(&self, schedule: &Schedule, partition: &Partition) -> VerifyResult {
        let (role, in_flight) = (partition.role, Vec::new());
        let (acquired, deferred_releases, staging_channels) = Default::default();
        let mut verifier =
            AsyncOrderVerifier { info: self, schedule, role, in_flight, acquired, deferred_releases, staging_channels };
        schedule.walk(partition.body, None, &mut verifier)
    }
}

fn fault(id: OpId, what: &str) -> VerifyResult {
    Err(format!("op {} {what}", id.index()))
}

impl<'a> AsyncOrderVerifier<'a, '_> {
    fn warp_spec(&self) -> Option<&'a WarpSpecialization> {
        self.schedule.warp_spec.as_deref()
    }

    /// Verifies that no operand of a step is the result of an MMA in flight, and that all MMAs are
    /// complete if the step requires it.
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

    /// Returns true if an MMA group has been issued in this iteration of a consumer, while an
    /// earlier group is in flight. A consumer has one group in flight at other steps.
    fn has_unwaited_previous(&self) -> bool {
        let issued = self.in_flight.last().is_some_and(|mma| !mma.from_previous_iteration);
        self.role == WarpRole::Consumer && self.in_flight.len() > 1 && issued
    }

    fn mma_wait(&mut self, wait: &MmaWait) -> VerifyResult {
        let this =
            |mma: &VerifiedMmaGroup| (mma.mma, mma.from_previous_iteration) == (wait.mma, wait.from_previous_iteration);
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

    /// Verifies a sub-step. A wait for the operands of MMAs completes at least one group.
    fn sub_step(&mut self, sub_step: &SubStep) -> VerifyResult {
        match *sub_step {
            SubStep::MmaReadWait { pending } => match self.in_flight.len().checked_sub(pending as usize) {
                None | Some(0) => Err(format!("no MMA is in flight beside {pending} pending groups")),
                Some(completed) => {
                    self.in_flight.drain(..completed);
                    Ok(())
                }
            },
            SubStep::TmaStoreWait { .. } => {
                self.staging_channels.clear();
                Ok(())
            }
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

    /// Verifies an advance: it requires a stage that is neither acquired nor read by MMAs in
    /// flight.
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
        self.acquired.insert(channel, StageAcquire { seq: body, is_full: false });
        Ok(())
    }

    /// Verifies a TMA store whose staging buffer is a pipeline stage: the full barrier of the stage
    /// has been waited for.
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
            let results = plan.ops.iter().map(|&id| self.info.module.op(id).results[0]).collect_vec();
            self.in_flight.push(VerifiedMmaGroup {
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

    /// Verifies that a `local_load` follows the wait for its channel. An MMA that releases the
    /// stage may be in flight.
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

    fn carried_mmas(step: &For, values: &[Value]) -> Vec<VerifiedMmaGroup> {
        let carried = step.accumulators_in(values);
        carried
            .map(|(carried, results)| VerifiedMmaGroup {
                mma: carried.mma,
                results,
                from_previous_iteration: true,
                reads: Vec::new(),
                releases: carried.releases.clone(),
            })
            .collect_vec()
    }

    /// Verifies the epilogue of a loop: it waits for all loop-carried MMAs.
    fn leave_for(&mut self, step: &For) -> VerifyResult {
        self.in_flight = Self::carried_mmas(step, &self.info.module.op(step.op).results);
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

    /// Verifies the end of a sequence: only MMA groups that the next sequence expects are in
    /// flight.
    fn terminator(&self, id: OpId, parent: Option<&Step>) -> VerifyResult {
        let exit = &self.info.module.op(id).operands;
        let overlapped = matches!(parent, Some(Step::If { pure: true, .. }));
        let may_be_in_flight = |mma: &VerifiedMmaGroup| match parent {
            Some(Step::For(step)) if !step.carried_mmas.is_empty() => step
                .accumulators_in(exit)
                .any(|(carried, sums)| carried.mma == mma.mma && sums.iter().all(|sum| mma.results.contains(sum))),
            Some(Step::For(step)) => step.has_barrier_at_head() && self.role == WarpRole::All,
            _ => overlapped,
        };
        match self.in_flight.iter().find(|mma| !may_be_in_flight(mma)) {
            Some(mma) => fault(mma.mma, "is in flight at the end of its sequence"),
            None if !self.deferred_releases.is_empty() && !overlapped => {
                Err(format!("the deferred releases of channels {:?} are missing", self.deferred_releases))
            }
            None => Ok(()),
        }
    }
}

impl<'a> Visitor<'a> for AsyncOrderVerifier<'a, '_> {
    type State = Vec<VerifiedMmaGroup>;
    type Error = String;

    fn state(&mut self) -> &mut Vec<VerifiedMmaGroup> {
        &mut self.in_flight
    }

    fn step(&mut self, step: &'a Step, ProgramPoint { seq, parent, .. }: ProgramPoint<'a>) -> VerifyResult {
        match step {
            _ if step.is_wait() && self.role == WarpRole::Producer => {
                return Err("the producer has a wait".to_owned());
            }
            Step::MmaWait(wait) => return self.mma_wait(wait),
            Step::ConsumerWait(wait) => return self.consumer_wait(wait, seq),
            Step::Sub(sub_step) => return self.sub_step(sub_step),
            // These steps are between MMAs and their waits, and read no values.
            Step::OrderWait { .. } | Step::OrderArrive(OrderPoint::Mma(_)) => return Ok(()),
            step => self.is_ready(step)?,
        }
        if matches!(parent, Some(Step::If { pure: true, .. }))
            && !self.in_flight.is_empty()
            && self.info.may_need_barrier(step)
        {
            return Err(
                "a branch may have a barrier, and waits there for MMAs that the other branch does not wait for"
                    .to_owned(),
            );
        }
        match step {
            &Step::Advance(channel) => self.advance(channel, seq),
            Step::ConsumerRelease(channels) => channels.iter().try_for_each(|&channel| self.consumer_release(channel)),
            Step::Mma(plan) => self.mma_group(plan),
            &Step::LocalLoad(load) => self.local_load(load),
            Step::TmaStore(tma_store) => self.tma_store(tma_store),
            &Step::End(id) => self.terminator(id, parent),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, parent: &'a Step) -> VerifyResult {
        if let Step::For(step) = parent {
            let args = &self.info.module.block(self.info.module.op(step.op).regions[0]).args;
            // A barrier at the head of each iteration waits for all MMAs.
            self.in_flight = if step.has_barrier_at_head() { Vec::new() } else { Self::carried_mmas(step, &args[1..]) };
        }
        Ok(())
    }

    fn leave(&mut self, point: ProgramPoint<'a>, _: Vec<VerifiedMmaGroup>) -> VerifyResult {
        let is_between = |step: &&Step| {
            matches!(step, Step::Sub(_) | Step::OrderWait { .. } | Step::OrderArrive(OrderPoint::Mma(_)))
        };
        let last = self.schedule.steps(point.seq).iter().rfind(|step| !is_between(step));
        match (last, point.parent) {
            (
                Some(Step::MmaWait(MmaWait { sunk: true, .. }) | Step::ConsumerWait(ConsumerWait { sunk: true, .. })),
                _,
            ) => Err("a sunk wait without a next step".to_owned()),
            (_, Some(Step::For(step))) => self.leave_for(step),
            _ => Ok(()),
        }
    }

    fn join(&mut self, _: &'a [SeqId], mut ends: Vec<Vec<VerifiedMmaGroup>>) -> Result<Vec<VerifiedMmaGroup>, String> {
        match ends.windows(2).all(|pair| pair[0] == pair[1]) {
            true => Ok(ends.pop().unwrap_or_default()),
            false => Err("the branches wait for different MMAs".to_owned()),
        }
    }
}
