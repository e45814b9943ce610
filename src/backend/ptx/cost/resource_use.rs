//! What work asks of the units of a multiprocessor.

use std::ops::AddAssign;

/// A unit of a multiprocessor, or its share of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    Tensor,
    Special,
    Alu,
    Issue,
    Shared,
    L2,
    Memory,
}

/// Cycles of work after which others may come in between.
pub const PART: f64 = 64.0;

/// How many there are.
pub const UNITS: usize = 7;

impl Unit {
    pub const ALL: [Unit; UNITS] =
        [Unit::Tensor, Unit::Special, Unit::Alu, Unit::Issue, Unit::Shared, Unit::L2, Unit::Memory];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Tensor => "tensor cores",
            Unit::Special => "exp2, rcp",
            Unit::Alu => "integers, max",
            Unit::Issue => "issue",
            Unit::Shared => "shared memory",
            Unit::L2 => "L2",
            Unit::Memory => "memory",
        }
    }
}

/// Cycles of each unit, and of nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    pub units: [f64; UNITS],
    /// Passes beside what the busiest unit takes.
    pub latency: f64,
}

impl Demand {
    /// Nothing but time.
    pub fn time(latency: f64) -> Demand {
        Demand { latency, ..Demand::default() }
    }

    /// So many cycles of a unit.
    pub fn of(unit: Unit, cycles: f64) -> Demand {
        let mut demand = Demand::default();
        demand.units[unit as usize] = cycles;
        demand
    }

    /// Also so many cycles of a unit.
    pub fn and(mut self, unit: Unit, cycles: f64) -> Demand {
        self.units[unit as usize] += cycles;
        self
    }

    /// Cycles if nobody else is there.
    pub fn alone(&self) -> f64 {
        self.units.iter().copied().fold(0.0, f64::max) + self.latency
    }

    /// A part of it.
    pub fn part(&self, of: f64) -> Demand {
        Demand { units: self.units.map(|cycles| cycles * of), latency: self.latency * of }
    }
}

impl AddAssign for Demand {
    fn add_assign(&mut self, other: Demand) {
        self.units.iter_mut().zip(other.units).for_each(|(mine, more)| *mine += more);
        self.latency += other.latency;
    }
}
