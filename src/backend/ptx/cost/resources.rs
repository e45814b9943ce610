//! Simulated resources: the units of an SM, and the barriers and pipeline stages of a
//! CTA.

use super::events::{EventPrograms, PipelineCost};
use super::resource_use::{NUM_RESOURCES, Resource, ResourceUse};
use crate::backend::ptx::schedule::OrderPoint;
use crate::util::collect::CollectVec as _;

/// A span of time in which a resource served one event.
#[derive(Clone, Copy, Debug)]
pub struct ResourceSpan {
    pub resource: Resource,
    pub start: f64,
    pub end: f64,
    /// Number of the warp group, and the event as list and position.
    pub warp_group: usize,
    pub event: (usize, usize),
}

/// Resources of an SM, which serve requests in the order of the calls.
#[derive(Default)]
pub struct Resources {
    free: [f64; NUM_RESOURCES],
    pub busy: [f64; NUM_RESOURCES],
    /// All spans, if they are recorded.
    pub resource_spans: Option<Vec<ResourceSpan>>,
}

/// A warp group, and its event: list and position.
pub type Requester = (usize, (usize, usize));

impl Resources {
    /// Returns free resources. `seen`: spans are recorded.
    pub fn new(seen: bool) -> Resources {
        Resources { resource_spans: seen.then(Vec::new), ..Resources::default() }
    }

    /// Reserves a resource for `cycles` from time `at` on; returns start and end.
    pub fn serve(&mut self, resource: Resource, at: f64, cycles: f64, requester: Requester) -> (f64, f64) {
        let start = self.free[resource as usize].max(at);
        let end = start + cycles;
        if cycles > 0.0 {
            self.free[resource as usize] = end;
            self.busy[resource as usize] += cycles;
            if let Some(resource_spans) = &mut self.resource_spans {
                resource_spans.push(ResourceSpan { resource, start, end, warp_group: requester.0, event: requester.1 });
            }
        }
        (start, end)
    }

    /// Reserves all resources of a use; returns the end of the last one.
    pub fn serve_all(&mut self, usage: &ResourceUse, at: f64, requester: Requester) -> f64 {
        let mut end = at;
        for resource in Resource::ALL {
            let cycles = usage.resources[resource as usize];
            if cycles > 0.0 {
                end = end.max(self.serve(resource, at, cycles, requester).1);
            }
        }
        end + usage.latency
    }
}

/// Arrivals at one phase of a barrier: their number and the time of the last one.
#[derive(Clone, Copy, Default)]
struct Arrivals {
    count: u32,
    last: f64,
}

/// Stages of a pipeline, by the number of stages produced before.
struct StageTimes {
    cost: PipelineCost,
    /// Time at which the stage is full.
    full: Vec<f64>,
    released: Vec<Arrivals>,
}

/// Arrival at an order barrier: at a time, or when an MMA of a warp group leaves the tensor cores.
#[derive(Clone, Copy)]
pub struct OrderRelease {
    pub at: f64,
    pub product: Option<(usize, usize)>,
}

/// Barriers and pipelines of one CTA.
pub struct CtaState {
    pipelines: Vec<StageTimes>,
    /// Waits at named order barriers, by section in program order.
    begins: Vec<Arrivals>,
    /// Arrivals at order barriers, by set of barriers and section.
    ends: [Vec<Vec<OrderRelease>>; OrderPoint::BARRIER_SETS],
    /// By partition and ping-pong group.
    barriers: Vec<Vec<Vec<Arrivals>>>,
    /// Warp groups that release a stage.
    consumers: u32,
}

fn arrive(list: &mut Vec<Arrivals>, index: usize, at: f64) {
    if list.len() <= index {
        list.resize(index + 1, Arrivals::default());
    }
    list[index].count += 1;
    list[index].last = list[index].last.max(at);
}

fn complete(list: &[Arrivals], index: usize, required: u32) -> Option<f64> {
    list.get(index).filter(|arrivals| arrivals.count >= required).map(|arrivals| arrivals.last)
}

impl CtaState {
    pub fn new(programs: &EventPrograms) -> CtaState {
        let pipeline = |cost: &PipelineCost| StageTimes { cost: *cost, full: Vec::new(), released: Vec::new() };
        let consumers = programs.partitions.first().map_or(1, |partition| partition.groups);
        CtaState {
            pipelines: programs.pipelines.iter().map(pipeline).collect_vec(),
            begins: Vec::new(),
            ends: Default::default(),
            barriers: programs
                .partitions
                .iter()
                .map(|partition| vec![Vec::new(); partition.pingpong_groups as usize])
                .collect_vec(),
            consumers,
        }
    }

    /// Returns the time at which the next stage is free, or `None` if it is not yet determined.
    pub fn free_at(&self, pipeline: usize) -> Option<f64> {
        let pipeline = &self.pipelines[pipeline];
        match pipeline.full.len().checked_sub(pipeline.cost.stages) {
            Some(before) => complete(&pipeline.released, before, self.consumers),
            None => Some(0.0),
        }
    }

    /// Produces the next stage, which is full at time `full`.
    pub fn fill(&mut self, pipeline: usize, full: f64) {
        self.pipelines[pipeline].full.push(full);
    }

    /// Returns the time at which stage number `index` is full.
    pub fn full_at(&self, pipeline: usize, index: usize) -> Option<f64> {
        self.pipelines[pipeline].full.get(index).copied()
    }

    pub fn release_stage(&mut self, pipeline: usize, index: usize, at: f64) {
        arrive(&mut self.pipelines[pipeline].released, index, at);
    }

    /// A warp group reaches an ordered section with a named barrier.
    pub fn begin_section(&mut self, section: usize, at: f64) {
        arrive(&mut self.begins, section, at);
    }

    /// Returns the time at which all warp groups of a group have reached the section.
    pub fn begun(&self, section: usize, warp_groups: u32) -> Option<f64> {
        complete(&self.begins, section, warp_groups)
    }

    /// A warp group leaves an ordered section.
    pub fn end_section(&mut self, point: OrderPoint, section: usize, end: OrderRelease) {
        let ends = &mut self.ends[point.barrier_set()];
        if ends.len() <= section {
            ends.resize(section + 1, Vec::new());
        }
        ends[section].push(end);
    }

    /// Returns the ends of a section, if all warp groups of its group have left it.
    pub fn ended(&self, point: OrderPoint, section: usize, warp_groups: u32) -> Option<&[OrderRelease]> {
        let ends = self.ends[point.barrier_set()].get(section)?;
        (ends.len() >= warp_groups as usize).then_some(ends)
    }

    pub fn arrive_at_barrier(&mut self, (partition, pingpong_group): (usize, usize), index: usize, at: f64) {
        arrive(&mut self.barriers[partition][pingpong_group], index, at);
    }

    /// Returns the time at which all warp groups have arrived at a barrier.
    pub fn barrier_completion(
        &self,
        (partition, pingpong_group): (usize, usize),
        index: usize,
        groups: u32,
    ) -> Option<f64> {
        complete(&self.barriers[partition][pingpong_group], index, groups)
    }
}
