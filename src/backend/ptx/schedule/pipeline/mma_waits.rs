//! Inserts MMA waits and pipeline waits.
//!
//! An MMA is complete before a step that reads its result, and before loops, branches with side
//! effects and ends of sequences. With a producer, the wait for one MMA follows the issue of the
//! next one: the MMA is then almost complete, and its stage is needed. The wait for a loop-carried
//! MMA is in the next iteration, or in the epilogue of the loop. After the label that joins the
//! path around the loop, ptxas does not associate the wait with the MMAs any more, and serializes
//! them.
//!
//! The wait for a tile of the producer precedes the first MMA that reads it. If that is in a
//! region, the wait follows the advance to the stage.

use std::collections::HashSet;

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{
    ConsumerWait, For, MmaGroup, MmaWait, Schedule, SeqId, Step, WarpRole,
};
use crate::ir::{OpId, Value};

/// MMAs that may be running.
#[derive(Clone, Debug)]
struct InFlightMma {
    /// The last one of those that are issued together.
    mma: OpId,
    /// What they compute.
    results: Vec<Value>,
    /// Has an iteration before this one issued them?
    from_previous_iteration: bool,
}

/// What is complete when a body ends.
#[derive(Clone)]
enum Ending {
    /// All.
    Complete,
    /// All, or nothing else than what is loop-carried: the results of each MMA.
    Carried(Vec<Vec<Value>>),
    /// What there is runs on.
    InFlight,
    /// The same, beside a branch that only computes; but where threads have a barrier, all is
    /// complete.
    Overlapped,
}

/// One partition's way through its program.
struct WaitInserter<'a, 'm> {
    info: &'a KernelInfo<'m>,
    schedule: &'a mut Schedule,
    role: WarpRole,
    /// In the order in which they were issued.
    in_flight: Vec<InFlightMma>,
    /// Channels whose tiles have been waited for.
    full_channels: HashSet<u32>,
    /// The steps of the body that is being made.
    steps: Vec<Step>,
}

impl KernelInfo<'_> {
    /// Puts waits between the steps of a schedule that has none.
    pub fn insert_waits(&self, schedule: &mut Schedule) {
        let partitions: Vec<(WarpRole, SeqId)> =
            schedule.partitions.iter().map(|partition| (partition.role, partition.body)).collect();
        for (role, body) in partitions.into_iter().filter(|&(role, _)| role != WarpRole::Producer) {
            let (in_flight, full_channels, steps) = (Vec::new(), HashSet::new(), Vec::new());
            let mut waits =
                WaitInserter { info: self, schedule: &mut *schedule, role, in_flight, full_channels, steps };
            waits.sequence(body, &Ending::Complete);
        }
    }
}

impl WaitInserter<'_, '_> {
    fn sequence(&mut self, body: SeqId, ending: &Ending) {
        let outer_steps = std::mem::take(&mut self.steps);
        for step in std::mem::take(&mut self.schedule.sequences[body.0 as usize]) {
            self.wait_before(&step, ending);
            let (take, mma) = (matches!(step, Step::Advance(_)), matches!(step, Step::Mma(_)));
            match &step {
                Step::For(step) => self.for_loop(step),
                Step::Loop(step) => self.sequence(step.body, &Ending::Complete),
                Step::If { arms, pure: true, .. } => self.pure_arms(arms),
                Step::If { arms, .. } => arms.iter().for_each(|&arm| self.sequence(arm, &Ending::Complete)),
                _ => {}
            }
            self.steps.push(step);
            if take || mma {
                self.after_step();
            }
        }
        self.schedule.sequences[body.0 as usize] = std::mem::replace(&mut self.steps, outer_steps);
    }

    /// Branches that only compute. Where they meet, the same MMAs may still run: what one of them
    /// waited for, the other one waits for at its end.
    fn pure_arms(&mut self, arms: &[SeqId]) {
        let before = self.in_flight.clone();
        let mut left: Vec<Vec<InFlightMma>> = Vec::new();
        for &arm in arms {
            self.in_flight.clone_from(&before);
            self.sequence(arm, &Ending::Overlapped);
            left.push(std::mem::take(&mut self.in_flight));
        }
        let alike = left.iter().map(Vec::len).min().unwrap_or(0);
        for (&arm, in_flight) in arms.iter().zip(left) {
            self.in_flight = in_flight;
            if self.in_flight.len() > alike {
                let outer_steps = std::mem::take(&mut self.steps);
                self.mma_wait(alike, true);
                let wait = std::mem::replace(&mut self.steps, outer_steps);
                let steps = &mut self.schedule.sequences[arm.0 as usize];
                let end = steps.len() - 1;
                steps.splice(end..end, wait);
            }
        }
    }

    /// The waits that a step needs.
    fn wait_before(&mut self, step: &Step, ending: &Ending) {
        if !self.in_flight.is_empty() {
            for value in self.info.values_read_by(step) {
                let position = self.in_flight.iter().position(|mma| mma.results.contains(&value));
                position.into_iter().for_each(|position| self.mma_wait(self.in_flight.len() - 1 - position, true));
            }
            let known =
                |carried_mmas: &[Vec<Value>]| self.in_flight.iter().all(|mma| carried_mmas.contains(&mma.results));
            let all = match (step, ending) {
                (Step::End(_), Ending::Complete) => true,
                (Step::End(_), Ending::Carried(carried_mmas)) => !known(carried_mmas),
                (step, Ending::Overlapped) => self.info.may_need_barrier(step),
                (Step::End(_), Ending::InFlight) => false,
                (step, _) => self.info.waits_for_all_mmas(self.schedule, step),
            };
            if all {
                // A loop or branch computes bounds and conditions first, and what brings a tile
                // what it is made of.
                let sunk = matches!(ending, Ending::Overlapped);
                self.mma_wait(0, sunk || !matches!(step, Step::ConsumerRelease(_) | Step::Advance(_) | Step::Exec(_)));
            }
        }
        match step {
            Step::Mma(plan) => self.consumer_wait_operands(plan),
            &Step::LocalLoad(load) => self.consumer_wait_aux(load),
            _ => {}
        }
    }

    /// The first use of a small tile that comes with others.
    fn consumer_wait_aux(&mut self, load: OpId) {
        let channel = self.schedule.warp_spec.as_ref().and_then(|warp_spec| warp_spec.aux_channel(load));
        if let Some(channel) = channel.filter(|&channel| self.full_channels.insert(channel)) {
            self.steps.push(Step::ConsumerWait(ConsumerWait { channel, sunk: false }));
        }
    }

    /// The first use of tiles that the producer loads.
    fn consumer_wait_operands(&mut self, plan: &MmaGroup) {
        for &id in &plan.ops {
            for &value in &self.info.module.op(id).operands[..2] {
                let load = self.info.source_load(value);
                let warp_spec = self.schedule.warp_spec.as_deref();
                let channel = load.and_then(|load| warp_spec?.operand_channel(load));
                if let Some(channel) = channel.filter(|&channel| self.full_channels.insert(channel)) {
                    self.steps.push(Step::ConsumerWait(ConsumerWait { channel, sunk: true }));
                }
            }
        }
    }

    /// After the step that came last.
    fn after_step(&mut self) {
        match self.steps.last() {
            Some(&Step::Advance(channel)) => {
                let wait_at_acquire = self
                    .schedule
                    .warp_spec
                    .as_ref()
                    .is_some_and(|warp_spec| warp_spec.channels[channel as usize].wait_at_acquire);
                self.full_channels.remove(&channel);
                if wait_at_acquire {
                    self.full_channels.insert(channel);
                    self.steps.push(Step::ConsumerWait(ConsumerWait { channel, sunk: false }));
                }
            }
            Some(Step::Mma(plan)) if self.info.is_async(&plan.ops) => {
                let Some(mma) = plan.last() else { return };
                let results = self.info.results_of(&plan.ops);
                self.in_flight.push(InFlightMma { mma, results, from_previous_iteration: false });
                if self.role == WarpRole::Consumer {
                    self.mma_wait(1, false);
                }
            }
            _ => {}
        }
    }

    /// The body of a loop, and the way out of it.
    fn for_loop(&mut self, step: &For) {
        let op = self.info.module.op(step.op);
        let block = self.info.module.block(op.regions[0]);
        let exit = block.ops.last().map(|&exit| self.info.module.op(exit));
        let of = |values: &[Value]| -> Vec<Vec<Value>> {
            let carried_mmas = step.carried_mmas.iter();
            carried_mmas
                .map(|carried_mma| carried_mma.accumulators.iter().map(|&carried| values[carried]).collect())
                .collect()
        };
        let mmas = |results: Vec<Vec<Value>>| -> Vec<InFlightMma> {
            let carried_mmas = step.carried_mmas.iter().zip(results);
            carried_mmas
                .map(|(carried_mma, results)| InFlightMma {
                    mma: carried_mma.mma,
                    results,
                    from_previous_iteration: true,
                })
                .collect()
        };
        // Multistage copies of it for all threads wait at the head for whatever runs.
        let waits_at_head = step.cp_async.as_ref().is_some_and(|cp_async| cp_async.barrier_at_head);
        let ending = match exit {
            Some(exit) if !step.carried_mmas.is_empty() => Ending::Carried(of(&exit.operands)),
            _ if waits_at_head && self.role == WarpRole::All => Ending::InFlight,
            _ => Ending::Complete,
        };
        self.in_flight = if waits_at_head { Vec::new() } else { mmas(of(&block.args[1..])) };
        self.sequence(step.body, &ending);
        self.in_flight = mmas(of(&op.results));
        if let Some(epilogue) = step.epilogue {
            let outer_steps = std::mem::take(&mut self.steps);
            self.mma_wait(0, false);
            self.schedule.sequences[epilogue.0 as usize] = std::mem::replace(&mut self.steps, outer_steps);
        }
    }

    /// A wait for all MMAs but the `pending` latest ones, if there are more.
    fn mma_wait(&mut self, pending: usize, sunk: bool) {
        let Some(completed) = self.in_flight.len().checked_sub(pending).filter(|&completed| completed > 0) else {
            return;
        };
        let InFlightMma { mma, from_previous_iteration: carried, .. } = self.in_flight[completed - 1];
        self.in_flight.drain(..completed);
        self.steps.push(Step::MmaWait(MmaWait {
            mma,
            from_previous_iteration: carried,
            pending,
            sunk,
            defer_release: false,
            release_after: None,
        }));
    }
}
