//! A schedule replayed: all who go through it, until they are done.

use std::collections::HashMap;

use super::async_queue::{AsyncQueue, QUEUES};
use super::events::EventPrograms;
use super::resource_use::{NUM_RESOURCES, Resource};
use super::resources::{BlockState, ResourceSpan, Resources};
use super::warp_walk::{IterationTiming, Progress, SimState, TraceSpan, WarpGroupState};

/// Steps after which a replay gives up.
const MAX_STEPS: usize = 4_000_000;

/// What was seen of a multiprocessor with some tile blocks.
pub struct Simulation {
    pub walkers: Vec<WarpGroupState>,
    pub spans: Vec<TraceSpan>,
    pub uses: Vec<ResourceSpan>,
    pub laps: Vec<IterationTiming>,
    /// When the last one was done.
    pub end: f64,
    pub busy: [f64; NUM_RESOURCES],
}

impl Simulation {
    /// So many tile blocks at the same time; `seen`: everything is noted. None: they wait for each other for ever.
    pub fn of(programs: &EventPrograms, blocks: usize, seen: bool) -> Option<Simulation> {
        let mut walkers = Vec::new();
        for block in 0..blocks {
            for (agent, plan) in programs.agents.iter().enumerate() {
                for team in 0..plan.teams as usize {
                    for group in 0..plan.groups as usize {
                        walkers.push(WarpGroupState::new(walkers.len(), [block, agent, team, group], programs));
                    }
                }
            }
        }
        let mut world = SimState {
            programs,
            units: Resources::new(seen),
            blocks: (0..blocks).map(|_| BlockState::new(programs)).collect(),
            queues: (0..QUEUES * walkers.len()).map(|_| AsyncQueue::default()).collect(),
            spans: seen.then(Vec::new),
            laps: Vec::new(),
        };
        for _ in 0..MAX_STEPS {
            let ready = walkers.iter().filter(|walker| !walker.done && !walker.blocked);
            let next = ready.min_by(|a, b| a.time.total_cmp(&b.time)).map(|walker| (walker.time, walker.number));
            let running = world.queues.iter().enumerate().filter_map(|(number, list)| Some((list.next()?, number)));
            let queue = running.min_by(|a, b| a.0.total_cmp(&b.0));
            let (number, is_queue) = match (next, queue) {
                (Some((time, _)), Some((earlier, number))) if earlier <= time => (number, true),
                (None, Some((_, number))) => (number, true),
                (Some((_, number)), _) => (number, false),
                (None, None) => break,
            };
            let changed = if is_queue {
                world.queues[number].part(&mut world.units, number / QUEUES, programs.weights)
            } else {
                let waits = matches!(walkers[number].step(&mut world), Progress::Waits);
                walkers[number].blocked = waits;
                !waits
            };
            if changed {
                let block = walkers[if is_queue { number / QUEUES } else { number }].block;
                walkers.iter_mut().filter(|other| other.block == block).for_each(|other| other.blocked = false);
            }
        }
        if walkers.iter().any(|walker| !walker.done) {
            return None;
        }
        let end = walkers.iter().map(|walker| walker.time).fold(0.0, f64::max);
        let SimState { units: Resources { busy, uses, .. }, spans, laps, .. } = world;
        let (spans, uses) = (spans.unwrap_or_default(), uses.unwrap_or_default());
        Some(Simulation { walkers, spans, uses, laps, end, busy })
    }
}

/// What a loop takes.
#[derive(Clone, Debug)]
pub struct LoopCost {
    /// The number of its op.
    pub op: usize,
    /// Cycles of an iteration, when it has gone round for a while.
    pub cycles: f64,
    /// Iterations, and whether grid, parameters or the kernel itself tell.
    pub trips: f64,
    pub known: bool,
    /// Does it stand around others?
    pub outer: bool,
}

/// Cycles from one iteration to the next, in the second half of those that were seen.
fn steady(starts: &[(usize, f64)], end: f64) -> f64 {
    let mut starts: Vec<(usize, f64)> = starts.to_vec();
    starts.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    starts.dedup_by_key(|start| start.0);
    let count = starts.len();
    if count < 2 {
        return starts.first().map_or(0.0, |&(_, start)| end - start);
    }
    // Teams go in turn: an even number of iterations, where there are that many.
    let span = match count - 1 {
        1 => 1,
        more => (more / 2).next_multiple_of(2).min(more),
    };
    let (from, to) = (starts[count - 1 - span], starts[count - 1]);
    (to.1 - from.1) / (to.0 - from.0) as f64
}

/// Loops of the programs that compute, and cycles of a tile block, as if all iterations had been gone through.
pub fn extrapolated(programs: &EventPrograms, replay: &Simulation) -> (Vec<LoopCost>, f64) {
    let mut starts: HashMap<usize, (Vec<(usize, f64)>, f64)> = HashMap::new();
    let last = |lap: &IterationTiming| lap.starts.first().map_or(0.0, |&(_, start)| start);
    for (round, plan) in programs.rounds.iter().enumerate() {
        let of_math = |lap: &&IterationTiming| {
            let walker = &replay.walkers[lap.walker];
            lap.round == round && walker.block == 0 && walker.group == 0 && !walker.loads(programs)
        };
        let laps: Vec<&IterationTiming> = replay.laps.iter().filter(of_math).collect();
        if plan.deal.is_some() {
            let all = laps.iter().flat_map(|lap| lap.starts.iter().copied()).collect();
            let end = laps.iter().map(|lap| lap.end).fold(0.0, f64::max);
            starts.insert(round, (all, end));
        } else if let Some(lap) = laps.into_iter().max_by(|a, b| last(a).total_cmp(&last(b))) {
            starts.insert(round, (lap.starts.clone(), lap.end));
        }
    }
    let mut costs = Vec::new();
    let mut extra_of_lists: HashMap<usize, f64> = HashMap::new();
    // Loops stand in the list behind those within them.
    for (round, plan) in programs.rounds.iter().enumerate() {
        let Some((starts, end)) = starts.get(&round) else { continue };
        let within = extra_of(programs, plan.acts, &extra_of_lists);
        let cycles = steady(starts, *end) + within;
        let (followed, trips) = (f64::from(plan.followed), plan.trips);
        extra_of_lists.insert(round, followed * within + (trips - followed) * cycles);
        costs.push(LoopCost { op: plan.op.index(), cycles, trips, known: plan.known, outer: plan.outer });
    }
    let main = programs.agents.first().map_or(0.0, |agent| extra_of(programs, agent.list, &extra_of_lists));
    (costs, replay.end + main)
}

/// What loops of a list take beyond what was seen.
fn extra_of(programs: &EventPrograms, list: usize, extra: &HashMap<usize, f64>) -> f64 {
    let rounds = programs.lists[list].iter().filter_map(|act| match act.what {
        super::events::EventKind::LoopTiming(round) => extra.get(&round).copied(),
        _ => None,
    });
    rounds.sum()
}

/// Which unit was busy for what part of the time.
pub fn shares(replay: &Simulation) -> Vec<(Resource, f64)> {
    Resource::ALL.into_iter().map(|unit| (unit, replay.busy[unit as usize] / replay.end.max(1.0))).collect()
}
