//! Resource use: cycles of each resource of a multiprocessor.

use std::ops::AddAssign;

/// A unit of a multiprocessor, or its share of one.
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

/// Cycles of work after which others may come in between.
pub const QUANTUM_CYCLES: f64 = 64.0;

/// How many there are.
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

    /// For people.
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

/// Cycles of each unit, and of nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceUse {
    pub resources: [f64; NUM_RESOURCES],
    /// Passes beside what the busiest unit takes.
    pub latency: f64,
}

impl ResourceUse {
    /// Nothing but time.
    pub fn time(latency: f64) -> ResourceUse {
        ResourceUse { latency, ..ResourceUse::default() }
    }

    /// So many cycles of a unit.
    pub fn of(resource: Resource, cycles: f64) -> ResourceUse {
        let mut usage = ResourceUse::default();
        usage.resources[resource as usize] = cycles;
        usage
    }

    /// Also so many cycles of a unit.
    pub fn and(mut self, resource: Resource, cycles: f64) -> ResourceUse {
        self.resources[resource as usize] += cycles;
        self
    }

    /// Cycles if nobody else is there.
    pub fn alone(&self) -> f64 {
        self.resources.iter().copied().fold(0.0, f64::max) + self.latency
    }

    /// A part of it.
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
