//! Simulated resources: the units of a multiprocessor, and the barriers and pipeline stages of a
//! tile block.

use super::events::{EventPrograms, PipelineCost};
use super::resource_use::{NUM_RESOURCES, Resource, ResourceUse};
use crate::backend::ptx::schedule::OrderPoint;

/// A part of a unit's time that somebody has had.
#[derive(Clone, Copy, Debug)]
pub struct ResourceSpan {
    pub resource: Resource,
    pub start: f64,
    pub end: f64,
    /// Whose, by the number of the walker, and for which act.
    pub warp_group: usize,
    pub event: (usize, usize),
}

/// Units, in the order in which they are asked.
#[derive(Default)]
pub struct Resources {
    free: [f64; NUM_RESOURCES],
    pub busy: [f64; NUM_RESOURCES],
    /// All uses, if they are wanted.
    pub resource_spans: Option<Vec<ResourceSpan>>,
}

impl Resources {
    /// `seen`: all uses are noted.
    pub fn new(seen: bool) -> Resources {
        Resources { resource_spans: seen.then(Vec::new), ..Resources::default() }
    }

    /// Gives a unit to who comes at a time, for so many cycles: from when to when.
    pub fn serve(&mut self, resource: Resource, at: f64, cycles: f64, who: (usize, (usize, usize))) -> (f64, f64) {
        let start = self.free[resource as usize].max(at);
        let end = start + cycles;
        if cycles > 0.0 {
            self.free[resource as usize] = end;
            self.busy[resource as usize] += cycles;
            if let Some(resource_spans) = &mut self.resource_spans {
                resource_spans.push(ResourceSpan { resource, start, end, warp_group: who.0, event: who.1 });
            }
        }
        (start, end)
    }

    /// The same for all units of a demand: when the last one is done.
    pub fn serve_all(&mut self, usage: &ResourceUse, at: f64, who: (usize, (usize, usize))) -> f64 {
        let mut end = at;
        for resource in Resource::ALL {
            let cycles = usage.resources[resource as usize];
            if cycles > 0.0 {
                end = end.max(self.serve(resource, at, cycles, who).1);
            }
        }
        end + usage.latency
    }
}

/// Somebody arrives here several times; what counts is when the last one has.
#[derive(Clone, Copy, Default)]
struct Arrivals {
    count: u32,
    last: f64,
}

/// Stages of a ring, by how many have been filled before.
struct StageTimes {
    cost: PipelineCost,
    /// When what was filled is there.
    full: Vec<f64>,
    released: Vec<Arrivals>,
}

/// The end of a turn of a group: at a time, or when a product of this number leaves the tensor
/// cores, of this walker.
#[derive(Clone, Copy)]
pub struct OrderRelease {
    pub at: f64,
    pub product: Option<(usize, usize)>,
}

/// What the agents of one tile block wait for.
pub struct BlockState {
    pipelines: Vec<StageTimes>,
    turns: [Vec<Arrivals>; 2],
    /// Begins and ends of the turns of groups, in the order of the turns.
    begins: Vec<Arrivals>,
    ends: Vec<Vec<OrderRelease>>,
    /// By agent and team.
    barriers: Vec<Vec<Vec<Arrivals>>>,
    /// Groups of a team that takes stages.
    consumers: u32,
}

fn arrive(list: &mut Vec<Arrivals>, index: usize, at: f64) {
    if list.len() <= index {
        list.resize(index + 1, Arrivals::default());
    }
    list[index].count += 1;
    list[index].last = list[index].last.max(at);
}

fn complete(list: &[Arrivals], index: usize, wanted: u32) -> Option<f64> {
    list.get(index).filter(|arrivals| arrivals.count >= wanted).map(|arrivals| arrivals.last)
}

impl BlockState {
    pub fn new(programs: &EventPrograms) -> BlockState {
        let pipeline = |cost: &PipelineCost| StageTimes { cost: *cost, full: Vec::new(), released: Vec::new() };
        let consumers = programs.partitions.first().map_or(1, |partition| partition.groups);
        BlockState {
            pipelines: programs.pipelines.iter().map(pipeline).collect(),
            turns: Default::default(),
            begins: Vec::new(),
            ends: Vec::new(),
            barriers: programs
                .partitions
                .iter()
                .map(|partition| vec![Vec::new(); partition.pingpong_groups as usize])
                .collect(),
            consumers,
        }
    }

    /// When the next stage of a ring is free; not yet known.
    pub fn free(&self, pipeline: usize) -> Option<f64> {
        let pipeline = &self.pipelines[pipeline];
        match pipeline.full.len().checked_sub(pipeline.cost.stages) {
            Some(before) => complete(&pipeline.released, before, self.consumers),
            None => Some(0.0),
        }
    }

    /// The next stage of a ring is filled; when it is full.
    pub fn fill(&mut self, pipeline: usize, full: f64) {
        self.pipelines[pipeline].full.push(full);
    }

    /// When what was filled as this one is there.
    pub fn full(&self, pipeline: usize, index: usize) -> Option<f64> {
        self.pipelines[pipeline].full.get(index).copied()
    }

    pub fn give(&mut self, pipeline: usize, index: usize, at: f64) {
        arrive(&mut self.pipelines[pipeline].released, index, at);
    }

    pub fn pass(&mut self, turn: OrderPoint, iteration: usize, at: f64) {
        arrive(&mut self.turns[turn as usize], iteration, at);
    }

    /// When all of a team have passed a turn.
    pub fn passed(&self, turn: OrderPoint, iteration: usize) -> Option<f64> {
        complete(&self.turns[turn as usize], iteration, self.consumers)
    }

    /// A walker comes to the begin of a turn of its group.
    pub fn begin_turn(&mut self, turn: usize, at: f64) {
        arrive(&mut self.begins, turn, at);
    }

    /// When all walkers of a group have come to the begin of its turn.
    pub fn begun(&self, turn: usize, warp_groups: u32) -> Option<f64> {
        complete(&self.begins, turn, warp_groups)
    }

    /// A walker ends a turn of its group.
    pub fn end_turn(&mut self, turn: usize, end: OrderRelease) {
        if self.ends.len() <= turn {
            self.ends.resize(turn + 1, Vec::new());
        }
        self.ends[turn].push(end);
    }

    /// The ends of a turn, if all walkers of its group have ended it.
    pub fn ended(&self, turn: usize, warp_groups: u32) -> Option<&[OrderRelease]> {
        self.ends.get(turn).map(|ends| &ends[..]).filter(|ends| ends.len() >= warp_groups as usize)
    }

    pub fn meet(&mut self, (partition, pingpong_group): (usize, usize), index: usize, at: f64) {
        arrive(&mut self.barriers[partition][pingpong_group], index, at);
    }

    /// When all groups of a team have met.
    pub fn met(&self, (partition, pingpong_group): (usize, usize), index: usize, groups: u32) -> Option<f64> {
        complete(&self.barriers[partition][pingpong_group], index, groups)
    }
}
