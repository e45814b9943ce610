//! Resource use: cycles of each resource of an SM.

use std::ops::AddAssign;

/// A unit of an SM, or its share of L2 cache and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    Tensor,
    Special,
    Alu,
    Issue,
    Shared,
    L2,
    Memory,
}

/// Cycles of work after which a resource may serve another request.
pub const QUANTUM_CYCLES: f64 = 64.0;

/// Number of resources.
pub const NUM_RESOURCES: usize = 7;

impl Resource {
    pub const ALL: [Resource; NUM_RESOURCES] = [
        Resource::Tensor,
        Resource::Special,
        Resource::Alu,
        Resource::Issue,
        Resource::Shared,
        Resource::L2,
        Resource::Memory,
    ];

    /// Name in reports and timelines.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Tensor => "tensor cores",
            Resource::Special => "exp2, rcp",
            Resource::Alu => "integers, max",
            Resource::Issue => "issue",
            Resource::Shared => "shared memory",
            Resource::L2 => "L2",
            Resource::Memory => "memory",
        }
    }
}

/// Cycles of each resource, and a latency without any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceUse {
    pub resources: [f64; NUM_RESOURCES],
    /// Cycles in addition to those of the busiest resource.
    pub latency: f64,
}

impl ResourceUse {
    /// Returns a latency without resources.
    pub fn time(latency: f64) -> ResourceUse {
        ResourceUse { latency, ..ResourceUse::default() }
    }

    /// Returns the use of one resource.
    pub fn new(resource: Resource, cycles: f64) -> ResourceUse {
        let mut usage = ResourceUse::default();
        usage.resources[resource as usize] = cycles;
        usage
    }

    /// Adds cycles of a resource.
    pub fn and(mut self, resource: Resource, cycles: f64) -> ResourceUse {
        self.resources[resource as usize] += cycles;
        self
    }

    /// Returns the duration without contention.
    pub fn isolated_cycles(&self) -> f64 {
        self.resources.iter().copied().fold(0.0, f64::max) + self.latency
    }

    /// Returns a fraction of the use.
    pub fn part(&self, of: f64) -> ResourceUse {
        ResourceUse { resources: self.resources.map(|cycles| cycles * of), latency: self.latency * of }
    }
}

impl AddAssign for ResourceUse {
    fn add_assign(&mut self, other: ResourceUse) {
        self.resources.iter_mut().zip(other.resources).for_each(|(mine, more)| *mine += more);
        self.latency += other.latency;
    }
}
