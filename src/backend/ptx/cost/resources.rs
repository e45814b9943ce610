//! A multiprocessor: units that serve who comes, and what agents of a tile block wait for.

use super::events::{EventPrograms, PipelineCost};
use super::resource_use::{NUM_RESOURCES, Resource, ResourceUse};
use crate::backend::ptx::schedule::OrderPoint;

/// A part of a unit's time that somebody has had.
#[derive(Clone, Copy, Debug)]
pub struct ResourceSpan {
    pub unit: Resource,
    pub start: f64,
    pub end: f64,
    /// Whose, by the number of the walker, and for which act.
    pub walker: usize,
    pub act: (usize, usize),
}

/// Units, in the order in which they are asked.
#[derive(Default)]
pub struct Resources {
    free: [f64; NUM_RESOURCES],
    pub busy: [f64; NUM_RESOURCES],
    /// All uses, if they are wanted.
    pub uses: Option<Vec<ResourceSpan>>,
}

impl Resources {
    /// `seen`: all uses are noted.
    pub fn new(seen: bool) -> Resources {
        Resources { uses: seen.then(Vec::new), ..Resources::default() }
    }

    /// Gives a unit to who comes at a time, for so many cycles: from when to when.
    pub fn serve(&mut self, unit: Resource, at: f64, cycles: f64, who: (usize, (usize, usize))) -> (f64, f64) {
        let start = self.free[unit as usize].max(at);
        let end = start + cycles;
        if cycles > 0.0 {
            self.free[unit as usize] = end;
            self.busy[unit as usize] += cycles;
            if let Some(uses) = &mut self.uses {
                uses.push(ResourceSpan { unit, start, end, walker: who.0, act: who.1 });
            }
        }
        (start, end)
    }

    /// The same for all units of a demand: when the last one is done.
    pub fn serve_all(&mut self, demand: &ResourceUse, at: f64, who: (usize, (usize, usize))) -> f64 {
        let mut end = at;
        for unit in Resource::ALL {
            let cycles = demand.units[unit as usize];
            if cycles > 0.0 {
                end = end.max(self.serve(unit, at, cycles, who).1);
            }
        }
        end + demand.latency
    }
}

/// Somebody arrives here several times; what counts is when the last one has.
#[derive(Clone, Copy, Default)]
struct Arrivals {
    count: u32,
    last: f64,
}

/// Stages of a ring, by how many have been filled before.
struct Ring {
    price: PipelineCost,
    /// When what was filled is there.
    full: Vec<f64>,
    given: Vec<Arrivals>,
}

/// The end of a turn of a group: at a time, or when a product of this number leaves the tensor cores, of this walker.
#[derive(Clone, Copy)]
pub struct OrderRelease {
    pub at: f64,
    pub product: Option<(usize, usize)>,
}

/// What the agents of one tile block wait for.
pub struct BlockState {
    rings: Vec<Ring>,
    turns: [Vec<Arrivals>; 2],
    /// Begins and ends of the turns of groups, in the order of the turns.
    begins: Vec<Arrivals>,
    ends: Vec<Vec<OrderRelease>>,
    /// By agent and team.
    meets: Vec<Vec<Vec<Arrivals>>>,
    /// Groups of a team that takes stages.
    takers: u32,
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
        let ring = |price: &PipelineCost| Ring { price: *price, full: Vec::new(), given: Vec::new() };
        let takers = programs.agents.first().map_or(1, |agent| agent.groups);
        BlockState {
            rings: programs.rings.iter().map(ring).collect(),
            turns: Default::default(),
            begins: Vec::new(),
            ends: Vec::new(),
            meets: programs.agents.iter().map(|agent| vec![Vec::new(); agent.teams as usize]).collect(),
            takers,
        }
    }

    /// When the next stage of a ring is free; not yet known.
    pub fn free(&self, ring: usize) -> Option<f64> {
        let ring = &self.rings[ring];
        match ring.full.len().checked_sub(ring.price.stages) {
            Some(before) => complete(&ring.given, before, self.takers),
            None => Some(0.0),
        }
    }

    /// The next stage of a ring is filled; when it is full.
    pub fn fill(&mut self, ring: usize, full: f64) {
        self.rings[ring].full.push(full);
    }

    /// When what was filled as this one is there.
    pub fn full(&self, ring: usize, index: usize) -> Option<f64> {
        self.rings[ring].full.get(index).copied()
    }

    pub fn give(&mut self, ring: usize, index: usize, at: f64) {
        arrive(&mut self.rings[ring].given, index, at);
    }

    pub fn pass(&mut self, turn: OrderPoint, iteration: usize, at: f64) {
        arrive(&mut self.turns[turn as usize], iteration, at);
    }

    /// When all of a team have passed a turn.
    pub fn passed(&self, turn: OrderPoint, iteration: usize) -> Option<f64> {
        complete(&self.turns[turn as usize], iteration, self.takers)
    }

    /// A walker comes to the begin of a turn of its group.
    pub fn begin_turn(&mut self, turn: usize, at: f64) {
        arrive(&mut self.begins, turn, at);
    }

    /// When all walkers of a group have come to the begin of its turn.
    pub fn begun(&self, turn: usize, walkers: u32) -> Option<f64> {
        complete(&self.begins, turn, walkers)
    }

    /// A walker ends a turn of its group.
    pub fn end_turn(&mut self, turn: usize, end: OrderRelease) {
        if self.ends.len() <= turn {
            self.ends.resize(turn + 1, Vec::new());
        }
        self.ends[turn].push(end);
    }

    /// The ends of a turn, if all walkers of its group have ended it.
    pub fn ended(&self, turn: usize, walkers: u32) -> Option<&[OrderRelease]> {
        self.ends.get(turn).map(|ends| &ends[..]).filter(|ends| ends.len() >= walkers as usize)
    }

    pub fn meet(&mut self, (agent, team): (usize, usize), index: usize, at: f64) {
        arrive(&mut self.meets[agent][team], index, at);
    }

    /// When all groups of a team have met.
    pub fn met(&self, (agent, team): (usize, usize), index: usize, groups: u32) -> Option<f64> {
        complete(&self.meets[agent][team], index, groups)
    }
}
