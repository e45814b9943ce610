//! Who goes through a program: a group of warps of one team, on its own time.

use std::collections::VecDeque;

use super::async_queue::{AsyncQueue, FAR, NEAR, PRODUCTS, QUEUES};
use super::events::{Event, EventKind, EventPrograms, LoopTiming};
use super::resource_use::{QUANTUM_CYCLES, Resource, ResourceUse};
use super::resources::{BlockState, OrderRelease, Resources};
use crate::backend::ptx::schedule::WarpRole;
use crate::ir::Value;

/// Most parts of one act.
const MAX_QUANTA: f64 = 16.0;

/// What somebody did, or what it waited for.
#[derive(Clone, Copy, Debug)]
pub struct TraceSpan {
    pub walker: usize,
    pub act: (usize, usize),
    pub start: f64,
    pub end: f64,
    pub waits: bool,
}

/// One time through a loop.
pub struct IterationTiming {
    pub walker: usize,
    pub round: usize,
    /// When each iteration began, and the last one ended. Iterations of a dealt loop by their numbers.
    pub starts: Vec<(usize, f64)>,
    pub end: f64,
}

/// Products of one group in flight, by their number among those of a walker.
struct InFlightMma {
    number: usize,
    /// Rings and stages of them.
    gives: Vec<(usize, usize)>,
}

/// A list of acts that somebody is in.
struct EventFrame {
    list: usize,
    next: usize,
    /// The loop whose body it is, and the iteration.
    round: Option<(usize, usize)>,
    /// Copies ahead that are on their way, and which were begun.
    arrivals: VecDeque<f64>,
    lap: Option<IterationTiming>,
}

/// What became of a step.
pub enum Progress {
    Went,
    /// Others have to go on first.
    Waits,
    Ended,
}

pub struct WarpGroupState {
    pub number: usize,
    pub block: usize,
    pub agent: usize,
    pub team: usize,
    pub group: usize,
    pub time: f64,
    pub done: bool,
    /// Nothing has changed since it waits.
    pub blocked: bool,
    frames: Vec<EventFrame>,
    /// Filled stages that were taken of each ring, and the one that is held of each channel.
    taken: Vec<usize>,
    held: Vec<usize>,
    flights: VecDeque<InFlightMma>,
    issued: usize,
    /// Iteration of the loop that is dealt.
    iteration: usize,
    /// Turns of this walker's group that are over.
    turns: usize,
    met: usize,
    /// Barriers that are still to come in this act; has it arrived at the next one?
    meets: u32,
    arrived: bool,
    /// Parts of the act that are done.
    parts: f64,
    begun: bool,
    /// When what goes on behind it ends.
    behind: Option<f64>,
    late: Vec<(Value, f64)>,
    /// Stores that the copy engine has been told of.
    sent: usize,
    /// When it came to the act.
    came: f64,
}

/// What all share while they walk.
pub struct SimState<'a> {
    pub programs: &'a EventPrograms,
    pub units: Resources,
    pub blocks: Vec<BlockState>,
    /// By walker, [`QUEUES`] each: products, bytes to the second-level cache, bytes to memory.
    pub queues: Vec<AsyncQueue<'a>>,
    /// What was done when, if it is wanted.
    pub spans: Option<Vec<TraceSpan>>,
    pub laps: Vec<IterationTiming>,
}

impl WarpGroupState {
    pub fn new(number: usize, [block, agent, team, group]: [usize; 4], programs: &EventPrograms) -> WarpGroupState {
        let frame = EventFrame {
            list: programs.agents[agent].list,
            next: 0,
            round: None,
            arrivals: VecDeque::new(),
            lap: None,
        };
        WarpGroupState {
            number,
            block,
            agent,
            team,
            group,
            time: 0.0,
            done: false,
            blocked: false,
            frames: vec![frame],
            taken: vec![0; programs.rings.len()],
            held: vec![0; programs.channels.len()],
            flights: VecDeque::new(),
            issued: 0,
            iteration: 0,
            turns: 0,
            met: 0,
            meets: 0,
            arrived: false,
            parts: 0.0,
            begun: false,
            behind: None,
            late: Vec::new(),
            sent: 0,
            came: 0.0,
        }
    }

    /// Goes on a little.
    pub fn step<'a>(&mut self, world: &mut SimState<'a>) -> Progress {
        let programs: &'a EventPrograms = world.programs;
        let Some(frame) = self.frames.last() else { return self.end(world) };
        let place = (frame.list, frame.next);
        let Some(act) = programs.lists[frame.list].get(frame.next) else { return self.end_of_list(world) };
        if !self.begun {
            self.begun = true;
            self.came = self.time;
            self.wait_for_values(world, act, place);
            // Units serve in the order in which they are asked: what comes before the end of the wait goes first.
            if self.time > self.came {
                return Progress::Went;
            }
        }
        let Some(went) = self.act(world, act, place) else { return Progress::Waits };
        if went {
            self.begun = false;
            self.behind = None;
            if !matches!(act.what, EventKind::LoopTiming(_)) {
                self.next();
            }
        }
        Progress::Went
    }

    fn next(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.next += 1;
        }
    }

    fn note(&self, world: &mut SimState<'_>, act: (usize, usize), start: f64, waits: bool) {
        if let Some(spans) = &mut world.spans
            && self.time > start
        {
            spans.push(TraceSpan { walker: self.number, act, start, end: self.time, waits });
        }
    }

    /// Goes to a time, if it is later, which is a wait.
    fn wait_until(&mut self, world: &mut SimState<'_>, time: f64, act: (usize, usize)) {
        let start = self.time;
        if time > start {
            self.time = time;
            self.note(world, act, start, true);
        }
    }

    fn wait_for_values(&mut self, world: &mut SimState<'_>, act: &Event, place: (usize, usize)) {
        if self.late.is_empty() {
            return;
        }
        let wanted = self.late.iter().filter(|(value, _)| act.reads.contains(value));
        let last = wanted.map(|&(_, time)| time).fold(0.0, f64::max);
        self.late.retain(|(value, _)| !act.reads.contains(value));
        self.wait_until(world, last, place);
    }

    /// Does a part of an act: is it done? None: others have to go on first.
    fn act<'a>(&mut self, world: &mut SimState<'a>, act: &'a Event, place: (usize, usize)) -> Option<bool> {
        let programs = world.programs;
        let weights = programs.weights;
        match &act.what {
            EventKind::Work { demand, behind, stores, meets, arrives, waits } => {
                if self.behind.is_none() && *stores {
                    world.queues[QUEUES * self.number + FAR].issue((behind, 0.0), self.time, place, 0.0);
                    self.behind = Some(self.time);
                } else if self.behind.is_none() {
                    self.behind = Some(world.units.serve_all(behind, self.time, (self.number, place)));
                }
                return self.work(world, (demand, *meets), (arrives, *waits), place);
            }
            EventKind::Product { runs, least, waits, gives } => {
                if self.parts == 0.0 {
                    self.product(world, (runs, *least, gives), place);
                    self.parts = 1.0;
                }
                if *waits {
                    self.land(world, self.flights.len(), place)?;
                }
                self.parts = 0.0;
            }
            &EventKind::Fill(channel) => {
                let channel = &programs.channels[channel as usize];
                let free = world.blocks[self.block].free(channel.ring)?;
                if free > self.time {
                    self.wait_until(world, free, place);
                    return Some(false);
                }
                let start = self.time;
                let paired = programs.rings[channel.ring].paired;
                self.time += if paired { weights.producer_stage_cluster } else { weights.producer_stage }
                    + channel.boxes * weights.tma_box;
                let who = (self.number, place);
                let (_, near) = world.units.serve(Resource::L2, start, channel.fetched / weights.l2, who);
                let far = channel.fetched * weights.misses / weights.memory;
                let (_, far) = world.units.serve(Resource::Memory, start, far, who);
                world.blocks[self.block].fill(channel.ring, near.max(far) + weights.copy_latency);
                self.note(world, place, start, false);
            }
            &EventKind::Take(channel) => {
                let ring = programs.channels[channel as usize].ring;
                self.held[channel as usize] = self.taken[ring];
                self.taken[ring] += 1;
            }
            &EventKind::Await(channel) => {
                let ring = programs.channels[channel as usize].ring;
                let full = world.blocks[self.block].full(ring, self.held[channel as usize])?;
                if full > self.time {
                    self.wait_until(world, full + weights.wait_wakeup, place);
                } else {
                    self.time += weights.dependent_issue;
                }
            }
            &EventKind::Land { younger } => {
                self.land(world, self.flights.len().saturating_sub(younger), place)?;
            }
            EventKind::Give(channels) => {
                for &channel in channels {
                    let stage = self.stage_of(world, channel);
                    self.give(world, stage);
                }
            }
            &EventKind::Turn(turn) => {
                if self.iteration > 0 {
                    let passed = world.blocks[self.block].passed(turn, self.iteration - 1)?;
                    self.wait_until(world, passed + weights.wait_wakeup, place);
                }
            }
            &EventKind::Pass(turn) => world.blocks[self.block].pass(turn, self.iteration, self.time),
            EventKind::BeginTurn => return self.begin_turn(world, place),
            &EventKind::EndTurn { multiplied } => {
                let (turn, _) = self.turn(world);
                let last = self.issued.checked_sub(1).filter(|_| multiplied);
                let end = OrderRelease { at: self.time, product: last.map(|last| (self.number, last)) };
                world.blocks[self.block].end_turn(turn, end);
                self.turns += 1;
                self.time += weights.dependent_issue;
            }
            EventKind::Send { near, far } => {
                // The threads write to shared memory again when what stood there has been read.
                if self.sent > 0 {
                    let read = *world.queues[QUEUES * self.number + NEAR].done.get(self.sent - 1)?;
                    self.wait_until(world, read, place);
                }
                self.sent += 1;
                world.queues[QUEUES * self.number + NEAR].issue((near, 0.0), self.time, place, 0.0);
                world.queues[QUEUES * self.number + FAR].issue((far, 0.0), self.time, place, 0.0);
            }
            &EventKind::LoopTiming(round) => self.enter(world, round, place),
        }
        Some(true)
    }

    /// The number of the next turn of this walker's group among those of all groups, and the walkers of a group.
    fn turn(&self, world: &SimState<'_>) -> (usize, u32) {
        let plan = &world.programs.agents[self.agent];
        let walkers = (plan.groups / plan.in_turn).max(1);
        (self.turns * plan.in_turn as usize + self.group / walkers as usize, walkers)
    }

    /// Waits at the barrier of this walker's group: for its other walkers, and for the end of the turn before.
    fn begin_turn(&mut self, world: &mut SimState<'_>, place: (usize, usize)) -> Option<bool> {
        let (turn, walkers) = self.turn(world);
        if !self.arrived {
            world.blocks[self.block].begin_turn(turn, self.time);
            self.arrived = true;
            return Some(false);
        }
        let weights = world.programs.weights;
        let mut all = world.blocks[self.block].begun(turn, walkers)?;
        if let Some(before) = turn.checked_sub(1) {
            for end in world.blocks[self.block].ended(before, walkers)? {
                let end = match end.product {
                    Some((walker, number)) => {
                        let done = *world.queues[QUEUES * walker + PRODUCTS].done.get(number)?;
                        done - weights.mma_latency
                    }
                    None => end.at,
                };
                all = all.max(end);
            }
        }
        self.wait_until(world, all + weights.barrier, place);
        self.arrived = false;
        Some(true)
    }

    fn work(
        &mut self,
        world: &mut SimState<'_>,
        (demand, meets): (&ResourceUse, u32),
        (arrives, waits): (&[Value], bool),
        place: (usize, usize),
    ) -> Option<bool> {
        let parts = (demand.alone() / QUANTUM_CYCLES).ceil().clamp(1.0, MAX_QUANTA);
        if self.parts < parts {
            let start = self.time;
            if self.parts == 0.0 {
                self.meets = meets;
            }
            self.time = world.units.serve_all(&demand.part(1.0 / parts), start, (self.number, place));
            self.note(world, place, start, false);
            self.parts += 1.0;
            return Some(false);
        }
        if self.meets > 0 {
            let plan = &world.programs.agents[self.agent];
            let who = (self.agent, self.team);
            if !self.arrived {
                world.blocks[self.block].meet(who, self.met, self.time);
                self.arrived = true;
                return Some(false);
            }
            let all = world.blocks[self.block].met(who, self.met, plan.groups)?;
            self.wait_until(world, all + world.programs.weights.barrier, place);
            self.arrived = false;
            self.met += 1;
            self.meets -= 1;
            return Some(false);
        }
        self.parts = 0.0;
        let arrival = self.behind.unwrap_or(0.0).max(self.time) + world.programs.weights.load_latency;
        if waits {
            self.wait_until(world, arrival, place);
        }
        self.late.extend(arrives.iter().map(|&value| (value, arrival)));
        Some(true)
    }

    fn product<'a>(
        &mut self,
        world: &mut SimState<'a>,
        (runs, least, gives): (&'a ResourceUse, f64, &[u32]),
        place: (usize, usize),
    ) {
        let weights = world.programs.weights;
        // A fence, and its instructions one by one.
        let start = self.time;
        self.time += weights.dependent_issue;
        self.note(world, place, start, false);
        let alone = world.programs.agents[self.agent].teams == 1;
        let gap = if alone { weights.mma_group_gap } else { 0.0 };
        world.queues[QUEUES * self.number + PRODUCTS].issue((runs, least), self.time, place, gap);
        let gives = gives.iter().map(|&channel| self.stage_of(world, channel)).collect();
        self.flights.push_back(InFlightMma { number: self.issued, gives });
        self.issued += 1;
    }

    /// Waits for the products that were issued first. None: they still run.
    fn land(&mut self, world: &mut SimState<'_>, count: usize, place: (usize, usize)) -> Option<()> {
        let Some(last) = count.checked_sub(1).and_then(|last| self.flights.get(last)) else { return Some(()) };
        let done = *world.queues[QUEUES * self.number + PRODUCTS].done.get(last.number)?;
        self.wait_until(world, done, place);
        for flight in self.flights.drain(..count).collect::<Vec<_>>() {
            for stage in flight.gives {
                self.give(world, stage);
            }
        }
        Some(())
    }

    /// The ring of a channel, and which of its stages is held.
    fn stage_of(&self, world: &SimState<'_>, channel: u32) -> (usize, usize) {
        (world.programs.channels[channel as usize].ring, self.held[channel as usize])
    }

    fn give(&self, world: &mut SimState<'_>, (ring, stage): (usize, usize)) {
        world.blocks[self.block].give(ring, stage, self.time + world.programs.weights.wait_wakeup);
    }

    fn enter(&mut self, world: &mut SimState<'_>, index: usize, place: (usize, usize)) {
        let round = &world.programs.rounds[index];
        self.next();
        let first = if round.deal.is_some() { self.team } else { 0 };
        let mut frame =
            EventFrame { list: round.acts, next: 0, round: Some((index, first)), arrivals: VecDeque::new(), lap: None };
        frame.lap = Some(IterationTiming { walker: self.number, round: index, starts: Vec::new(), end: 0.0 });
        if let Some(ahead) = &round.ahead {
            for _ in 1..ahead.stages {
                let arrival = self.copy(world, round, place);
                frame.arrivals.push_back(arrival);
            }
        }
        self.frames.push(frame);
        self.begin_iteration(world, place);
    }

    /// Copies of one iteration ahead: when they are there.
    fn copy(&mut self, world: &mut SimState<'_>, round: &LoopTiming, place: (usize, usize)) -> f64 {
        let Some(ahead) = &round.ahead else { return self.time };
        let (start, who) = (self.time, (self.number, place));
        self.time = world.units.serve_all(&ahead.issue, start, who);
        self.note(world, place, start, false);
        let weights = world.programs.weights;
        let share = if ahead.operands { weights.misses } else { 1.0 };
        let (_, near) = world.units.serve(Resource::L2, start, ahead.bytes / weights.l2, who);
        let (_, far) = world.units.serve(Resource::Memory, start, ahead.bytes * share / weights.memory, who);
        near.max(far) + weights.copy_latency
    }

    /// At the head of a loop: is there another iteration?
    fn begin_iteration(&mut self, world: &mut SimState<'_>, place: (usize, usize)) {
        let programs = world.programs;
        let Some(frame) = self.frames.last_mut() else { return };
        let Some((index, iteration)) = frame.round else { return };
        let round = &programs.rounds[index];
        if iteration as u32 >= round.followed {
            let (time, leave) = (self.time, round.leave);
            if let Some(mut lap) = frame.lap.take() {
                lap.end = time;
                world.laps.push(lap);
            }
            self.frames.pop();
            if let Some(leave) = leave {
                let arrivals = VecDeque::new();
                self.frames.push(EventFrame { list: leave, next: 0, round: None, arrivals, lap: None });
            }
            return;
        }
        if let Some(lap) = &mut frame.lap {
            lap.starts.push((iteration, self.time));
        }
        let arrival = frame.arrivals.pop_front();
        // Each warp issues the same for the loop; four of them do at a time.
        let cycles = programs.weights.loop_overhead * f64::from(programs.agents[self.agent].warps).max(4.0) / 4.0;
        self.time = world.units.serve(Resource::Issue, self.time, cycles, (self.number, place)).1;
        if let Some(takes) = &round.deal {
            self.iteration = iteration;
            for (ring, takes) in takes.iter().enumerate() {
                let of_loops = takes.per_iteration_of.iter().map(|&op| {
                    let known = programs.rounds.iter().find(|round| round.op == op);
                    known.map_or(0, |round| round.followed as usize)
                });
                self.taken[ring] = iteration * (takes.fixed as usize + of_loops.sum::<usize>());
            }
        }
        if let (Some(arrival), Some(ahead)) = (arrival, &round.ahead) {
            self.wait_until(world, arrival, place);
            if ahead.meets {
                self.time += programs.weights.barrier;
            }
            let next = self.copy(world, round, place);
            if let Some(frame) = self.frames.last_mut() {
                frame.arrivals.push_back(next);
            }
        }
    }

    /// A block is over when its stores have been read.
    fn end(&mut self, world: &mut SimState<'_>) -> Progress {
        if self.sent > 0 {
            let Some(&read) = world.queues[QUEUES * self.number + NEAR].done.get(self.sent - 1) else {
                return Progress::Waits;
            };
            self.wait_until(world, read, (world.programs.agents[self.agent].list, usize::MAX));
        }
        self.done = true;
        Progress::Ended
    }

    fn end_of_list(&mut self, world: &mut SimState<'_>) -> Progress {
        let Some(frame) = self.frames.last_mut() else { return Progress::Ended };
        let place = (frame.list, frame.next);
        match &mut frame.round {
            None => {
                self.frames.pop();
            }
            Some((round, iteration)) => {
                let teams = match world.programs.rounds[*round].deal {
                    Some(_) => world.programs.agents[self.agent].teams as usize,
                    None => 1,
                };
                *iteration += teams;
                frame.next = 0;
                self.begin_iteration(world, (place.0, 0));
            }
        }
        Progress::Went
    }

    /// Is it one of those that load?
    pub fn loads(&self, programs: &EventPrograms) -> bool {
        programs.agents[self.agent].acts == WarpRole::Producer
    }
}
