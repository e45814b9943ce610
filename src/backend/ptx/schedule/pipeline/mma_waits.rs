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

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;
use std::convert::Infallible;

use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{ConsumerWait, For, MmaWait, Schedule, SeqId, Step, WarpRole};
use crate::backend::ptx::schedule::ir::walk::{ProgramPoint, Visitor};
use crate::ir::{OpId, Value};

/// MMA group in flight that has no MMA wait in the schedule so far.
#[derive(Clone, Debug)]
struct UnwaitedMmaGroup {
    /// The last MMA of the group.
    mma: OpId,
    /// The results of the group.
    results: Vec<Value>,
    /// The previous iteration has issued the group.
    from_previous_iteration: bool,
}

/// Insertion of waits into the program of one partition.
struct WaitInserter<'a, 'm> {
    info: &'a KernelInfo<'m>,
    schedule: &'a Schedule,
    role: WarpRole,
    /// In the order in which they were issued.
    in_flight: Vec<UnwaitedMmaGroup>,
    /// Channels whose tiles have been waited for.
    full_channels: FxHashSet<u32>,
    /// The waits, and the positions of the steps that they precede.
    waits: Vec<(SeqId, usize, Step)>,
}

impl KernelInfo<'_> {
    /// Inserts waits between the steps of a schedule that has none.
    pub fn insert_waits(&self, schedule: &mut Schedule) {
        let mut waits = Vec::new();
        for partition in schedule.partitions.iter().filter(|partition| partition.role != WarpRole::Producer) {
            let (role, in_flight, full_channels) = (partition.role, Vec::new(), FxHashSet::default());
            let mut inserter = WaitInserter { info: self, schedule, role, in_flight, full_channels, waits };
            let Ok(()) = schedule.walk(partition.body, None, &mut inserter);
            waits = inserter.waits;
        }
        for (seq, position, wait) in waits.into_iter().rev() {
            schedule.sequences[seq.0 as usize].insert(position, wait);
        }
    }
}

impl WaitInserter<'_, '_> {
    /// Adds the waits that precede a step.
    fn wait_before(&mut self, step: &Step, point: ProgramPoint<'_>) {
        if !self.in_flight.is_empty() {
            for value in self.info.values_read_by(step) {
                let position = self.in_flight.iter().position(|mma| mma.results.contains(&value));
                position
                    .into_iter()
                    .for_each(|position| self.mma_wait(point, self.in_flight.len() - 1 - position, true));
            }
            let sunk = matches!(point.parent, Some(Step::If { pure: true, .. }));
            let all = match (step, point.parent) {
                (step, _) if sunk => self.info.may_need_barrier(step),
                (&Step::End(id), Some(Step::For(plan))) if !plan.carried_mmas.is_empty() => {
                    let carried: Vec<_> = plan.accumulators_in(&self.info.module.op(id).operands).collect_vec();
                    !self.in_flight.iter().all(|mma| carried.iter().any(|(_, results)| *results == mma.results))
                }
                // The barrier at the head of the next iteration waits for all MMAs.
                (Step::End(_), Some(Step::For(plan))) => !(plan.has_barrier_at_head() && self.role == WarpRole::All),
                (Step::End(_), _) => true,
                (step, _) => self.info.waits_for_all_mmas(self.schedule, step),
            };
            if all {
                // A loop or branch first computes bounds and conditions, and other steps their
                // operands.
                let late = !matches!(step, Step::ConsumerRelease(_) | Step::Advance(_) | Step::Exec(_));
                self.mma_wait(point, 0, sunk || late);
            }
        }
        self.consumer_waits(step, point);
    }

    /// Adds the waits for tiles of the producer, before the step that uses them first.
    fn consumer_waits(&mut self, step: &Step, point: ProgramPoint<'_>) {
        let info = self.info;
        let Some(warp_spec) = self.schedule.warp_spec.as_deref() else { return };
        let (channels, sunk): (Vec<u32>, _) = match step {
            Step::Mma(plan) => {
                let operands = plan.ops.iter().flat_map(|&id| &info.module.op(id).operands[..2]);
                let loads = operands.filter_map(|&value| info.source_load(value));
                (loads.filter_map(|load| warp_spec.operand_channel(load)).collect_vec(), true)
            }
            &Step::LocalLoad(load) => (warp_spec.aux_channel(load).into_iter().collect_vec(), false),
            _ => return,
        };
        for channel in channels {
            if self.full_channels.insert(channel) {
                self.consumer_wait(point, channel, sunk);
            }
        }
    }

    /// Adds the waits that follow a step.
    fn wait_after(&mut self, step: &Step, point: ProgramPoint<'_>) {
        match step {
            &Step::Advance(channel) => {
                self.full_channels.remove(&channel);
                let mut channels = self.schedule.warp_spec.iter().flat_map(|warp_spec| &warp_spec.channels);
                if channels.nth(channel as usize).is_some_and(|channel| channel.wait_at_acquire) {
                    self.full_channels.insert(channel);
                    self.consumer_wait(point, channel, false);
                }
            }
            Step::Mma(plan) if self.info.is_async(&plan.ops) => {
                let Some(mma) = plan.last() else { return };
                let results = self.info.results_of(&plan.ops);
                self.in_flight.push(UnwaitedMmaGroup { mma, results, from_previous_iteration: false });
                if self.role == WarpRole::Consumer {
                    self.mma_wait(point, 1, false);
                }
            }
            _ => {}
        }
    }

    fn consumer_wait(&mut self, point: ProgramPoint<'_>, channel: u32, sunk: bool) {
        self.waits.push((point.seq, point.position, Step::ConsumerWait(ConsumerWait { channel, sunk })));
    }

    /// Adds a wait for all MMA groups but the `pending` latest ones, if there are more.
    fn mma_wait(&mut self, point: ProgramPoint<'_>, pending: usize, sunk: bool) {
        let Some(completed) = self.in_flight.len().checked_sub(pending).filter(|&completed| completed > 0) else {
            return;
        };
        let UnwaitedMmaGroup { mma, from_previous_iteration, .. } = self.in_flight[completed - 1];
        self.in_flight.drain(..completed);
        let sunk = sunk && self.info.is_enabled(Optimization::SinkMmaWaits);
        let wait = MmaWait { mma, from_previous_iteration, pending, sunk, defer_release: false, release_after: None };
        self.waits.push((point.seq, point.position, Step::MmaWait(wait)));
    }
}

/// Returns the loop-carried MMA groups, with their results among the carried `values`.
fn carried_mmas(step: &For, values: &[Value]) -> Vec<UnwaitedMmaGroup> {
    let carried = step.accumulators_in(values);
    carried
        .map(|(carried, results)| UnwaitedMmaGroup { mma: carried.mma, results, from_previous_iteration: true })
        .collect_vec()
}

impl<'a> Visitor<'a> for WaitInserter<'a, '_> {
    type State = Vec<UnwaitedMmaGroup>;
    type Error = Infallible;

    fn state(&mut self) -> &mut Vec<UnwaitedMmaGroup> {
        &mut self.in_flight
    }

    fn step(&mut self, step: &'a Step, point: ProgramPoint<'a>) -> Result<(), Infallible> {
        self.wait_before(step, point);
        self.wait_after(step, ProgramPoint { position: point.position + 1, ..point });
        Ok(())
    }

    fn enter(&mut self, parent: &'a Step) -> Result<(), Infallible> {
        if let Step::For(step) = parent {
            let args = &self.info.module.block(self.info.module.op(step.op).regions[0]).args;
            // A barrier at the head of each iteration waits for all MMAs.
            self.in_flight = if step.has_barrier_at_head() { Vec::new() } else { carried_mmas(step, &args[1..]) };
        }
        Ok(())
    }

    fn leave(&mut self, point: ProgramPoint<'a>, _: Vec<UnwaitedMmaGroup>) -> Result<(), Infallible> {
        if let Some(Step::For(step)) = point.parent {
            self.in_flight = carried_mmas(step, &self.info.module.op(step.op).results);
            if let Some(epilogue) = step.epilogue {
                self.mma_wait(ProgramPoint { seq: epilogue, position: 0, parent: None }, 0, false);
            }
        }
        Ok(())
    }

    /// Adds waits at the ends of arms, so that the same MMA groups are in flight after each arm.
    fn join(
        &mut self,
        arms: &'a [SeqId],
        ends: Vec<Vec<UnwaitedMmaGroup>>,
    ) -> Result<Vec<UnwaitedMmaGroup>, Infallible> {
        let common = ends.iter().map(Vec::len).min().unwrap_or(0);
        for (&seq, in_flight) in arms.iter().zip(ends) {
            self.in_flight = in_flight;
            let position = self.schedule.steps(seq).len().saturating_sub(1);
            self.mma_wait(ProgramPoint { seq, position, parent: None }, common, true);
        }
        Ok(std::mem::take(&mut self.in_flight))
    }
}
