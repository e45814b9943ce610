//! Checks of a launch on request: races between tile blocks and reads of unwritten memory by code
//! that the kernel contains, and red zones around its arrays.
//!
//! Input: the compiled kernel, and the arguments of the launch. Output: an error after the launch,
//! with the ops and tile blocks, or with the array and the offset.

pub(super) mod ordered;
pub(super) mod races;
pub(super) mod unwritten;
pub(super) mod zones;

use crate::backend::cpu::Checks;
use crate::backend::{ParamWord, cpu};
use crate::error::Result;
use crate::runtime::{Access, Memory, StreamHandle};

/// Memory that a kernel with checks uses in addition to its arguments.
#[derive(Clone, Copy)]
pub(crate) struct ShadowMemory<'a> {
    pub memory: &'a Memory,
    /// Word of the parameter.
    pub word: ParamWord,
}

impl ShadowMemory<'_> {
    /// Makes a launch on this stream follow the initialization of the memory.
    pub fn before_use(self, stream: &StreamHandle) -> Result<()> {
        self.memory.before_use(stream, Access::Write)
    }

    /// Adds the memory to that of a launch on the cpu device.
    pub fn add_to(self, memory: &mut cpu::Memory) {
        if let Some(base) = self.memory.host_pointer() {
            // SAFETY: the memory is allocated and initialized, and launches alone use it.
            unsafe { memory.add(base, self.memory.len(), true) };
        }
    }
}

/// Accesses that the code records for checks of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    /// Accesses of tile blocks to arrays: for the check of races.
    pub races: bool,
    /// Written elements: for the check of unwritten memory.
    pub writes: bool,
}

impl Recorded {
    pub const NONE: Recorded = Recorded { races: false, writes: false };

    /// Returns the records that checks need.
    pub fn by(checks: Checks) -> Recorded {
        Recorded { races: checks.races, writes: checks.unwritten }
    }

    /// Returns true if there is a record.
    pub fn any(self) -> bool {
        self != Recorded::NONE
    }
}

#[cfg(test)]
mod hang_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod ordered_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unwritten_tests;
#[cfg(test)]
mod zones_tests;
