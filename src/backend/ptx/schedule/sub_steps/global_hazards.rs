//! Global-memory hazards since the last barrier.

use crate::backend::ptx::schedule::analysis::memory_effects::{MemoryEffect, WrittenMemory};

/// Accesses to each written array since the last barrier.
#[derive(Clone, Debug, Default)]
pub struct GlobalHazards {
    effects: Vec<MemoryEffect>,
}

impl GlobalHazards {
    /// Clears the accesses, which a barrier has ordered.
    pub fn after_barrier(&mut self) {
        self.effects.clear();
    }

    /// Adds accesses that may have been executed.
    pub fn add(&mut self, written: &WrittenMemory, effects: impl IntoIterator<Item = MemoryEffect>) {
        for effect in effects {
            if !written.does_not_modify(&effect) && !self.effects.contains(&effect) {
                self.effects.push(effect);
            }
        }
    }

    /// Returns true if other threads may still access the same elements, and one of the accesses
    /// writes.
    pub fn may_race(&self, effect: &MemoryEffect) -> bool {
        self.effects.iter().any(|earlier| earlier.may_race(effect))
    }

    /// Adds the accesses of the other arm of a branch.
    pub fn join(&mut self, written: &WrittenMemory, other: GlobalHazards) {
        self.add(written, other.effects);
    }
}
