//! Discrete-event simulation of a schedule: all warp groups of the resident CTAs, until they
//! are done.
//!
//! The next event is always the one with the smallest time, of a warp group or of an asynchronous
//! queue. A loop is simulated for a few iterations; the others are added at the cycles of a steady
//! iteration.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::async_queue::{AsyncQueue, NUM_QUEUES};
use super::events::EventPrograms;
use super::resource_use::{NUM_RESOURCES, Resource};
use super::resources::{CtaState, ResourceSpan, Resources};
use super::warp_walk::{IterationTiming, Progress, SimState, TraceSpan, WarpGroupState};
use crate::util::sort;

/// Maximum number of steps of a simulation.
const MAX_STEPS: usize = 4_000_000;

/// Events of a replay of the schedule on one SM.
pub struct EventReplay {
    pub warp_groups: Vec<WarpGroupState>,
    pub spans: Vec<TraceSpan>,
    pub resource_spans: Vec<ResourceSpan>,
    pub iteration_timings: Vec<IterationTiming>,
    /// Time at which the last warp group ends.
    pub end: f64,
    pub busy: [f64; NUM_RESOURCES],
}

impl EventReplay {
    /// Simulates `resident_ctas` CTAs. `seen`: spans are recorded. `None`: deadlock.
    pub fn run(programs: &EventPrograms, resident_ctas: usize, seen: bool) -> Option<EventReplay> {
        let mut warp_groups = Vec::new();
        for cta in 0..resident_ctas {
            for (partition, plan) in programs.partitions.iter().enumerate() {
                for pingpong_group in 0..plan.pingpong_groups as usize {
                    for group in 0..plan.groups as usize {
                        warp_groups.push(WarpGroupState::new(
                            warp_groups.len(),
                            [cta, partition, pingpong_group, group],
                            programs,
                        ));
                    }
                }
            }
        }
        let mut sim = SimState {
            programs,
            resources: Resources::new(seen),
            ctas: (0..resident_ctas).map(|_| CtaState::new(programs)).collect_vec(),
            queues: (0..NUM_QUEUES * warp_groups.len()).map(|_| AsyncQueue::default()).collect_vec(),
            spans: seen.then(Vec::new),
            iteration_timings: Vec::new(),
        };
        for _ in 0..MAX_STEPS {
            let ready = warp_groups.iter().filter(|warp_group| !warp_group.done && !warp_group.blocked);
            let next =
                ready.min_by(|a, b| a.time.total_cmp(&b.time)).map(|warp_group| (warp_group.time, warp_group.number));
            let running = sim.queues.iter().enumerate().filter_map(|(number, list)| Some((list.next()?, number)));
            let queue = running.min_by(|a, b| a.0.total_cmp(&b.0));
            let (number, is_queue) = match (next, queue) {
                (Some((time, _)), Some((earlier, number))) if earlier <= time => (number, true),
                (None, Some((_, number))) => (number, true),
                (Some((_, number)), _) => (number, false),
                (None, None) => break,
            };
            let changed = if is_queue {
                sim.queues[number].part(&mut sim.resources, number / NUM_QUEUES, programs.machine)
            } else {
                let waits = matches!(warp_groups[number].step(&mut sim), Progress::Blocked);
                warp_groups[number].blocked = waits;
                !waits
            };
            if changed {
                let cta = warp_groups[if is_queue { number / NUM_QUEUES } else { number }].cta;
                warp_groups.iter_mut().filter(|other| other.cta == cta).for_each(|other| other.blocked = false);
            }
        }
        if warp_groups.iter().any(|warp_group| !warp_group.done) {
            return None;
        }
        let end = warp_groups.iter().map(|warp_group| warp_group.time).fold(0.0, f64::max);
        let SimState { resources: Resources { busy, resource_spans, .. }, spans, iteration_timings, .. } = sim;
        let (spans, resource_spans) = (spans.unwrap_or_default(), resource_spans.unwrap_or_default());
        Some(EventReplay { warp_groups, spans, resource_spans, iteration_timings, end, busy })
    }
}

/// Cost of a loop.
#[derive(Clone, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "tests compare it"))]
pub struct LoopCost {
    /// Cycles of a steady iteration.
    pub cycles: f64,
    /// Iterations.
    pub trip_count: f64,
    /// The loop contains loops.
    pub outer: bool,
}

/// Returns the cycles of an iteration, in the second half of the simulated ones.
fn steady(starts: &[(usize, f64)], end: f64) -> f64 {
    let mut starts: Vec<(usize, f64)> = starts.to_vec();
    sort::by(&mut starts, |a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    starts.dedup_by_key(|start| start.0);
    let count = starts.len();
    if count < 2 {
        return starts.first().map_or(0.0, |&(_, start)| end - start);
    }
    // Ping-pong groups alternate: an even number of iterations, if there are enough.
    let span = match count - 1 {
        1 => 1,
        more => (more / 2).next_multiple_of(2).min(more),
    };
    let (from, to) = (starts[count - 1 - span], starts[count - 1]);
    (to.1 - from.1) / (to.0 - from.0) as f64
}

/// Returns the loops of the consumers, and the cycles of a CTA with all iterations.
pub fn extrapolated(programs: &EventPrograms, replay: &EventReplay) -> (Vec<LoopCost>, f64) {
    let mut starts: FxHashMap<usize, (Vec<(usize, f64)>, f64)> = FxHashMap::default();
    let last = |timings: &IterationTiming| timings.starts.first().map_or(0.0, |&(_, start)| start);
    for (loop_index, plan) in programs.loops.iter().enumerate() {
        let of_math = |timings: &&IterationTiming| {
            let warp_group = &replay.warp_groups[timings.warp_group];
            timings.loop_index == loop_index
                && warp_group.cta == 0
                && warp_group.group == 0
                && !warp_group.loads(programs)
        };
        let iteration_timings: Vec<&IterationTiming> = replay.iteration_timings.iter().filter(of_math).collect_vec();
        if plan.pingpong.is_some() {
            let all = iteration_timings.iter().flat_map(|timings| timings.starts.iter().copied()).collect_vec();
            let end = iteration_timings.iter().map(|timings| timings.end).fold(0.0, f64::max);
            starts.insert(loop_index, (all, end));
        } else if let Some(timings) = iteration_timings.into_iter().max_by(|a, b| last(a).total_cmp(&last(b))) {
            starts.insert(loop_index, (timings.starts.clone(), timings.end));
        }
    }
    let mut costs = Vec::new();
    let mut extra_of_lists: FxHashMap<usize, f64> = FxHashMap::default();
    // In the list, loops follow the loops inside of them.
    for (loop_index, plan) in programs.loops.iter().enumerate() {
        let Some((starts, end)) = starts.get(&loop_index) else { continue };
        let within = extra_of(programs, plan.body, &extra_of_lists);
        let cycles = steady(starts, *end) + within;
        let (simulated, trip_count) = (f64::from(plan.simulated), plan.trip_count);
        extra_of_lists.insert(loop_index, simulated * within + (trip_count - simulated) * cycles);
        costs.push(LoopCost { cycles, trip_count, outer: plan.outer });
    }
    let main = programs.partitions.first().map_or(0.0, |partition| extra_of(programs, partition.list, &extra_of_lists));
    (costs, replay.end + main)
}

/// Returns the cycles of the iterations of a list's loops that were not simulated.
fn extra_of(programs: &EventPrograms, list: usize, extra: &FxHashMap<usize, f64>) -> f64 {
    let loops = programs.lists[list].iter().filter_map(|event| match event.what {
        super::events::EventKind::Loop(loop_index) => extra.get(&loop_index).copied(),
        _ => None,
    });
    loops.sum()
}

/// Returns the utilization of each resource.
pub fn shares(replay: &EventReplay) -> Vec<(Resource, f64)> {
    Resource::ALL
        .into_iter()
        .map(|resource| (resource, replay.busy[resource as usize] / replay.end.max(1.0)))
        .collect_vec()
}
