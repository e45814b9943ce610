//! State of a simulated warp group, and the execution of its events.

use crate::util::collect::CollectVec as _;
use std::collections::VecDeque;

use super::async_queue::{AsyncQueue, L2_QUEUE, MEMORY_QUEUE, MMA_QUEUE, NUM_QUEUES};
use super::events::{Event, EventKind, EventPrograms, LoopTiming, Work};
use super::resource_use::{QUANTUM_CYCLES, Resource, ResourceUse};
use super::resources::{CtaState, OrderRelease, Resources};
use crate::backend::ptx::schedule::{OrderBarrierKind, OrderPoint, WarpRole};
use crate::ir::Value;

/// Maximum number of quanta of one event.
const MAX_QUANTA: f64 = 16.0;

/// A span of time in which a warp group executed or waited for an event.
#[derive(Clone, Copy, Debug)]
pub struct TraceSpan {
    pub warp_group: usize,
    pub event: (usize, usize),
    pub start: f64,
    pub end: f64,
    pub waits: bool,
}

/// One execution of a loop.
pub struct IterationTiming {
    pub warp_group: usize,
    pub loop_index: usize,
    /// Iteration number and start time of each iteration; end of the last one.
    pub starts: Vec<(usize, f64)>,
    pub end: f64,
}

/// An MMA group in flight: its number among those of the warp group.
struct QueuedMma {
    number: usize,
    /// Pipelines and stages that it releases.
    releases: Vec<(usize, usize)>,
}

/// A list of events in execution.
struct EventFrame {
    list: usize,
    next: usize,
    /// Index of the loop whose body it is, and the iteration.
    loop_and_iteration: Option<(usize, usize)>,
    /// Completion times of the multistage copies in flight.
    arrivals: VecDeque<f64>,
    timings: Option<IterationTiming>,
}

impl EventFrame {
    fn new(list: usize, loop_and_iteration: Option<(usize, usize)>) -> EventFrame {
        EventFrame { list, next: 0, loop_and_iteration, arrivals: VecDeque::new(), timings: None }
    }
}

/// Result of one step of a warp group.
pub enum Progress {
    Advanced,
    /// Another warp group or queue must make progress first.
    Blocked,
    Ended,
}

/// A simulated warp group.
#[derive(Default)]
pub struct WarpGroupState {
    pub number: usize,
    /// Index among the resident CTAs.
    pub cta: usize,
    pub partition: usize,
    pub pingpong_group: usize,
    pub group: usize,
    pub time: f64,
    pub done: bool,
    /// Nothing has changed since the warp group is blocked.
    pub blocked: bool,
    frames: Vec<EventFrame>,
    /// Number of consumed stages of each pipeline, and the acquired stage of each channel.
    consumed: Vec<usize>,
    acquired: Vec<usize>,
    mmas_in_flight: VecDeque<QueuedMma>,
    /// Number of issued MMA groups.
    issued_mmas: usize,
    /// Iteration of the ping-pong loop.
    iteration: usize,
    /// Number of ordered sections that the group has left, by set of barriers.
    sections: [usize; OrderPoint::BARRIER_SETS],
    /// Number of barriers that the group has passed.
    passed_barriers: usize,
    /// Remaining barriers of the event; `arrived`: at the next one of them.
    barriers: u32,
    arrived: bool,
    /// Completed quanta of the event.
    quanta: f64,
    /// The warp group has reached the event.
    reached: bool,
    /// End of the background transfers.
    background: Option<f64>,
    /// Values that are available later, and their times.
    pending_values: Vec<(Value, f64)>,
    /// Number of issued TMA stores.
    issued_tma_stores: usize,
    /// Time at which the warp group reached the event.
    reached_at: f64,
}

/// State that all warp groups share.
pub struct SimState<'a> {
    pub programs: &'a EventPrograms,
    pub resources: Resources,
    pub ctas: Vec<CtaState>,
    /// [`NUM_QUEUES`] queues of each warp group: MMAs, transfers to the L2 cache, transfers to
    /// memory.
    pub queues: Vec<AsyncQueue<'a>>,
    /// Spans of all events, if they are recorded.
    pub spans: Option<Vec<TraceSpan>>,
    pub iteration_timings: Vec<IterationTiming>,
}

impl<'a> SimState<'a> {
    /// Returns a queue of a warp group.
    fn queue(&mut self, warp_group: usize, queue: usize) -> &mut AsyncQueue<'a> {
        &mut self.queues[NUM_QUEUES * warp_group + queue]
    }
}

impl WarpGroupState {
    pub fn new(
        number: usize,
        [cta, partition, pingpong_group, group]: [usize; 4],
        programs: &EventPrograms,
    ) -> WarpGroupState {
        WarpGroupState {
            number,
            cta,
            partition,
            pingpong_group,
            group,
            frames: vec![EventFrame::new(programs.partitions[partition].list, None)],
            consumed: vec![0; programs.pipelines.len()],
            acquired: vec![0; programs.channels.len()],
            ..WarpGroupState::default()
        }
    }

    /// Executes the next quantum.
    pub fn step<'a>(&mut self, sim: &mut SimState<'a>) -> Progress {
        let programs: &'a EventPrograms = sim.programs;
        let Some(frame) = self.frames.last() else { return self.end(sim) };
        let position = (frame.list, frame.next);
        let Some(event) = programs.lists[frame.list].get(frame.next) else { return self.end_of_list(sim) };
        if !self.reached {
            self.reached = true;
            self.reached_at = self.time;
            self.wait_for_values(sim, event, position);
            // Resources serve requests in the order of the calls. Requests before the end of the
            // wait are served first.
            if self.time > self.reached_at {
                return Progress::Advanced;
            }
        }
        let Some(is_complete) = self.execute(sim, event, position) else { return Progress::Blocked };
        if is_complete {
            self.reached = false;
            self.background = None;
            if !matches!(event.what, EventKind::Loop(_)) {
                self.next();
            }
        }
        Progress::Advanced
    }

    fn next(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.next += 1;
        }
    }

    fn note(&self, sim: &mut SimState<'_>, event: (usize, usize), start: f64, waits: bool) {
        if let Some(spans) = &mut sim.spans
            && self.time > start
        {
            spans.push(TraceSpan { warp_group: self.number, event, start, end: self.time, waits });
        }
    }

    /// Advances to a later time and records the wait.
    fn wait_until(&mut self, sim: &mut SimState<'_>, time: f64, event: (usize, usize)) {
        let start = self.time;
        if time > start {
            self.time = time;
            self.note(sim, event, start, true);
        }
    }

    fn wait_for_values(&mut self, sim: &mut SimState<'_>, event: &Event, position: (usize, usize)) {
        if self.pending_values.is_empty() {
            return;
        }
        let required = self.pending_values.iter().filter(|(value, _)| event.reads.contains(value));
        let last = required.map(|&(_, time)| time).fold(0.0, f64::max);
        self.pending_values.retain(|(value, _)| !event.reads.contains(value));
        self.wait_until(sim, last, position);
    }

    /// Executes a quantum of an event; returns true if the event is complete. `None`: blocked.
    fn execute<'a>(&mut self, sim: &mut SimState<'a>, event: &'a Event, position: (usize, usize)) -> Option<bool> {
        let programs = sim.programs;
        let machine = programs.machine;
        match &event.what {
            EventKind::Work(Work { usage, background, stores, barriers, arrives, waits }) => {
                if self.background.is_none() && *stores {
                    sim.queue(self.number, MEMORY_QUEUE).issue((background, 0.0), self.time, position, 0.0);
                    self.background = Some(self.time);
                } else if self.background.is_none() {
                    self.background = Some(sim.resources.serve_all(background, self.time, (self.number, position)));
                }
                return self.work(sim, (usage, *barriers), (arrives, *waits), position);
            }
            EventKind::Mma { mma_usage, min_cycles, waits, releases } => {
                if self.quanta == 0.0 {
                    self.product(sim, (mma_usage, *min_cycles, releases), position);
                    self.quanta = 1.0;
                }
                if *waits {
                    self.wait_mmas(sim, self.mmas_in_flight.len(), position)?;
                }
                self.quanta = 0.0;
            }
            &EventKind::Produce(channel) => return self.produce(sim, channel, position),
            &EventKind::Advance(channel) => {
                let pipeline = programs.channels[channel as usize].pipeline;
                self.acquired[channel as usize] = self.consumed[pipeline];
                self.consumed[pipeline] += 1;
            }
            &EventKind::ConsumerWait(channel) => {
                let pipeline = programs.channels[channel as usize].pipeline;
                let full = sim.ctas[self.cta].full_at(pipeline, self.acquired[channel as usize])?;
                if full > self.time {
                    self.wait_until(sim, full + machine.wait_wakeup, position);
                } else {
                    self.time += machine.dependent_issue;
                }
            }
            &EventKind::MmaWait { pending } => {
                self.wait_mmas(sim, self.mmas_in_flight.len().saturating_sub(pending), position)?;
            }
            EventKind::ConsumerRelease(channels) => {
                for &channel in channels {
                    let stage = self.stage_of(sim, channel);
                    self.release_stage(sim, stage);
                }
            }
            &EventKind::OrderWait(point) => return self.order_wait(sim, point, position),
            &EventKind::OrderArrive(point) => {
                let (section, _) = self.section(sim, point);
                let last = self.issued_mmas.checked_sub(1).filter(|_| matches!(point, OrderPoint::Mma(_)));
                let end = OrderRelease { at: self.time, product: last.map(|last| (self.number, last)) };
                sim.ctas[self.cta].end_section(point, section, end);
                self.sections[point.barrier_set()] += 1;
                if point.barrier() == OrderBarrierKind::Named {
                    self.time += machine.dependent_issue;
                }
            }
            EventKind::TmaStore { near, far } => self.tma_store(sim, [near, far], position)?,
            &EventKind::Loop(loop_index) => self.enter(sim, loop_index, position),
        }
        Some(true)
    }

    /// Acquires a free stage and begins its copies. `None`: no stage is free.
    fn produce(&mut self, sim: &mut SimState<'_>, channel: u32, position: (usize, usize)) -> Option<bool> {
        let (programs, machine) = (sim.programs, sim.programs.machine);
        let channel = &programs.channels[channel as usize];
        let free = sim.ctas[self.cta].free_at(channel.pipeline)?;
        if free > self.time {
            self.wait_until(sim, free, position);
            return Some(false);
        }
        let start = self.time;
        let clustered = programs.pipelines[channel.pipeline].clustered;
        self.time += if clustered { machine.producer_stage_cluster } else { machine.producer_stage }
            + channel.boxes * machine.tma_box;
        let requester = (self.number, position);
        let (_, near) = sim.resources.serve(Resource::L2, start, channel.fetched / machine.l2, requester);
        let far = channel.fetched * machine.misses / machine.memory;
        let (_, far) = sim.resources.serve(Resource::Memory, start, far, requester);
        sim.ctas[self.cta].fill(channel.pipeline, near.max(far) + machine.copy_latency);
        self.note(sim, position, start, false);
        Some(true)
    }

    /// Begins a TMA store, after the one before has read shared memory. `None`: it still reads.
    fn tma_store<'a>(
        &mut self,
        sim: &mut SimState<'a>,
        [near, far]: [&'a ResourceUse; 2],
        position: (usize, usize),
    ) -> Option<()> {
        // The threads write to a staging buffer again when TMA has read its previous contents.
        if self.issued_tma_stores > 0 {
            let read = *sim.queue(self.number, L2_QUEUE).done.get(self.issued_tma_stores - 1)?;
            self.wait_until(sim, read, position);
        }
        self.issued_tma_stores += 1;
        sim.queue(self.number, L2_QUEUE).issue((near, 0.0), self.time, position, 0.0);
        sim.queue(self.number, MEMORY_QUEUE).issue((far, 0.0), self.time, position, 0.0);
        Some(())
    }

    /// Returns the number of the group's next ordered section among those of all groups, and the
    /// number of warp groups of a group.
    fn section(&self, sim: &SimState<'_>, point: OrderPoint) -> (usize, u32) {
        let plan = &sim.programs.partitions[self.partition];
        let done = self.sections[point.barrier_set()];
        match point.barrier() {
            OrderBarrierKind::Mbarrier => (done * plan.pingpong_groups as usize + self.pingpong_group, plan.groups),
            OrderBarrierKind::Named => {
                let warp_groups = (plan.groups / plan.ordered_groups).max(1);
                (done * plan.ordered_groups as usize + self.group / warp_groups as usize, warp_groups)
            }
        }
    }

    /// Waits for the end of the section before and, at a named barrier, for the other warp groups
    /// of the group.
    fn order_wait(&mut self, sim: &mut SimState<'_>, point: OrderPoint, position: (usize, usize)) -> Option<bool> {
        let (section, warp_groups) = self.section(sim, point);
        let machine = sim.programs.machine;
        let (mut enter, wakeup) = match point.barrier() {
            OrderBarrierKind::Mbarrier => (f64::NEG_INFINITY, machine.wait_wakeup),
            OrderBarrierKind::Named if !self.arrived => {
                sim.ctas[self.cta].begin_section(section, self.time);
                self.arrived = true;
                return Some(false);
            }
            OrderBarrierKind::Named => (sim.ctas[self.cta].begun(section, warp_groups)?, machine.barrier),
        };
        if let Some(before) = section.checked_sub(1) {
            for end in sim.ctas[self.cta].ended(point, before, warp_groups)? {
                let end = match end.product {
                    Some((warp_group, number)) => {
                        let done = *sim.queues[NUM_QUEUES * warp_group + MMA_QUEUE].done.get(number)?;
                        done - machine.mma_latency
                    }
                    None => end.at,
                };
                enter = enter.max(end);
            }
        }
        self.wait_until(sim, enter + wakeup, position);
        self.arrived = false;
        Some(true)
    }

    fn work(
        &mut self,
        sim: &mut SimState<'_>,
        (usage, barriers): (&ResourceUse, u32),
        (arrives, waits): (&[Value], bool),
        position: (usize, usize),
    ) -> Option<bool> {
        let parts = (usage.isolated_cycles() / QUANTUM_CYCLES).ceil().clamp(1.0, MAX_QUANTA);
        if self.quanta < parts {
            let start = self.time;
            if self.quanta == 0.0 {
                self.barriers = barriers;
            }
            self.time = sim.resources.serve_all(&usage.part(1.0 / parts), start, (self.number, position));
            self.note(sim, position, start, false);
            self.quanta += 1.0;
            return Some(false);
        }
        if self.barriers > 0 {
            let plan = &sim.programs.partitions[self.partition];
            let group = (self.partition, self.pingpong_group);
            if !self.arrived {
                sim.ctas[self.cta].arrive_at_barrier(group, self.passed_barriers, self.time);
                self.arrived = true;
                return Some(false);
            }
            let all = sim.ctas[self.cta].barrier_completion(group, self.passed_barriers, plan.groups)?;
            self.wait_until(sim, all + sim.programs.machine.barrier, position);
            self.arrived = false;
            self.passed_barriers += 1;
            self.barriers -= 1;
            return Some(false);
        }
        self.quanta = 0.0;
        let arrival = self.background.unwrap_or(0.0).max(self.time) + sim.programs.machine.load_latency;
        if waits {
            self.wait_until(sim, arrival, position);
        }
        self.pending_values.extend(arrives.iter().map(|&value| (value, arrival)));
        Some(true)
    }

    fn product<'a>(
        &mut self,
        sim: &mut SimState<'a>,
        (mma_usage, min_cycles, releases): (&'a ResourceUse, f64, &[u32]),
        position: (usize, usize),
    ) {
        let machine = sim.programs.machine;
        // A fence, and its instructions one by one.
        let start = self.time;
        self.time += machine.dependent_issue;
        self.note(sim, position, start, false);
        let is_single_group = sim.programs.partitions[self.partition].pingpong_groups == 1;
        let gap = if is_single_group { machine.mma_group_gap } else { 0.0 };
        sim.queue(self.number, MMA_QUEUE).issue((mma_usage, min_cycles), self.time, position, gap);
        let releases = releases.iter().map(|&channel| self.stage_of(sim, channel)).collect_vec();
        self.mmas_in_flight.push_back(QueuedMma { number: self.issued_mmas, releases });
        self.issued_mmas += 1;
    }

    /// Waits for the `count` oldest MMA groups. `None`: they are in flight.
    fn wait_mmas(&mut self, sim: &mut SimState<'_>, count: usize, position: (usize, usize)) -> Option<()> {
        let Some(last) = count.checked_sub(1).and_then(|last| self.mmas_in_flight.get(last)) else { return Some(()) };
        let done = *sim.queue(self.number, MMA_QUEUE).done.get(last.number)?;
        self.wait_until(sim, done, position);
        for mma in self.mmas_in_flight.drain(..count).collect_vec() {
            for stage in mma.releases {
                self.release_stage(sim, stage);
            }
        }
        Some(())
    }

    /// Returns the pipeline of a channel and its acquired stage.
    fn stage_of(&self, sim: &SimState<'_>, channel: u32) -> (usize, usize) {
        (sim.programs.channels[channel as usize].pipeline, self.acquired[channel as usize])
    }

    fn release_stage(&self, sim: &mut SimState<'_>, (pipeline, stage): (usize, usize)) {
        sim.ctas[self.cta].release_stage(pipeline, stage, self.time + sim.programs.machine.wait_wakeup);
    }

    fn enter(&mut self, sim: &mut SimState<'_>, index: usize, position: (usize, usize)) {
        let timing = &sim.programs.loops[index];
        self.next();
        let first = if timing.pingpong.is_some() { self.pingpong_group } else { 0 };
        let mut frame = EventFrame::new(timing.body, Some((index, first)));
        frame.timings =
            Some(IterationTiming { warp_group: self.number, loop_index: index, starts: Vec::new(), end: 0.0 });
        if let Some(cp_async) = &timing.cp_async {
            for _ in 1..cp_async.stages {
                let arrival = self.copy(sim, timing, position);
                frame.arrivals.push_back(arrival);
            }
        }
        self.frames.push(frame);
        self.begin_iteration(sim, position);
    }

    /// Issues the multistage copies of one iteration; returns their completion time.
    fn copy(&mut self, sim: &mut SimState<'_>, timing: &LoopTiming, position: (usize, usize)) -> f64 {
        let Some(cp_async) = &timing.cp_async else { return self.time };
        let (start, requester) = (self.time, (self.number, position));
        self.time = sim.resources.serve_all(&cp_async.issue, start, requester);
        self.note(sim, position, start, false);
        let machine = sim.programs.machine;
        let share = if cp_async.barrier_at_head { machine.misses } else { 1.0 };
        let (_, near) = sim.resources.serve(Resource::L2, start, cp_async.bytes / machine.l2, requester);
        let (_, far) = sim.resources.serve(Resource::Memory, start, cp_async.bytes * share / machine.memory, requester);
        near.max(far) + machine.copy_latency
    }

    /// Begins the next iteration of a loop, or leaves it.
    fn begin_iteration(&mut self, sim: &mut SimState<'_>, position: (usize, usize)) {
        let programs = sim.programs;
        let Some(frame) = self.frames.last_mut() else { return };
        let Some((index, iteration)) = frame.loop_and_iteration else { return };
        let timing = &programs.loops[index];
        if iteration as u32 >= timing.simulated {
            let (time, epilogue) = (self.time, timing.epilogue);
            if let Some(mut timings) = frame.timings.take() {
                timings.end = time;
                sim.iteration_timings.push(timings);
            }
            self.frames.pop();
            if let Some(epilogue) = epilogue {
                self.frames.push(EventFrame::new(epilogue, None));
            }
            return;
        }
        if let Some(timings) = &mut frame.timings {
            timings.starts.push((iteration, self.time));
        }
        let arrival = frame.arrivals.pop_front();
        // Each warp issues the same for the loop; four of them do at a time.
        let cycles =
            programs.machine.loop_overhead * f64::from(programs.partitions[self.partition].warps).max(4.0) / 4.0;
        self.time = sim.resources.serve(Resource::Issue, self.time, cycles, (self.number, position)).1;
        if let Some(counts) = &timing.pingpong {
            self.iteration = iteration;
            for (pipeline, count) in counts.iter().enumerate() {
                let of_loops = count.per_trip_of.iter().map(|&op| {
                    let known = programs.loops.iter().find(|timing| timing.op == op);
                    known.map_or(0, |timing| timing.simulated as usize)
                });
                self.consumed[pipeline] = iteration * (count.direct as usize + of_loops.sum::<usize>());
            }
        }
        if let (Some(arrival), Some(cp_async)) = (arrival, &timing.cp_async) {
            self.wait_until(sim, arrival, position);
            if cp_async.barrier_at_head {
                self.time += programs.machine.barrier;
            }
            let next = self.copy(sim, timing, position);
            if let Some(frame) = self.frames.last_mut() {
                frame.arrivals.push_back(next);
            }
        }
    }

    /// Ends the program when TMA stores have read shared memory.
    fn end(&mut self, sim: &mut SimState<'_>) -> Progress {
        if self.issued_tma_stores > 0 {
            let Some(&read) = sim.queue(self.number, L2_QUEUE).done.get(self.issued_tma_stores - 1) else {
                return Progress::Blocked;
            };
            self.wait_until(sim, read, (sim.programs.partitions[self.partition].list, usize::MAX));
        }
        self.done = true;
        Progress::Ended
    }

    fn end_of_list(&mut self, sim: &mut SimState<'_>) -> Progress {
        let Some(frame) = self.frames.last_mut() else { return Progress::Ended };
        let position = (frame.list, frame.next);
        match &mut frame.loop_and_iteration {
            None => {
                self.frames.pop();
            }
            Some((loop_index, iteration)) => {
                let pingpong_groups = match sim.programs.loops[*loop_index].pingpong {
                    Some(_) => sim.programs.partitions[self.partition].pingpong_groups as usize,
                    None => 1,
                };
                *iteration += pingpong_groups;
                frame.next = 0;
                self.begin_iteration(sim, (position.0, 0));
            }
        }
        Progress::Advanced
    }

    /// Returns true if the warp group is a producer.
    pub fn loads(&self, programs: &EventPrograms) -> bool {
        programs.partitions[self.partition].role == WarpRole::Producer
    }
}
