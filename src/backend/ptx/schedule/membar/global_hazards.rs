//! Global-memory hazards since the last barrier.

use crate::backend::ptx::schedule::analysis::memory_effects::{MemoryEffect, WrittenMemory};

/// Accesses to each written array since the last barrier.
#[derive(Clone, Debug, Default)]
pub struct GlobalHazards {
    effects: Vec<MemoryEffect>,
}

impl GlobalHazards {
    /// All threads have done what came before.
    pub fn after_barrier(&mut self) {
        self.effects.clear();
    }

    /// Accesses that may have happened, or not.
    pub fn add(&mut self, written: &WrittenMemory, effects: impl IntoIterator<Item = MemoryEffect>) {
        for effect in effects {
            if !written.does_not_modify(&effect) && !self.effects.contains(&effect) {
                self.effects.push(effect);
            }
        }
    }

    /// May other threads still be at work on the same elements?
    pub fn may_race(&self, effect: &MemoryEffect) -> bool {
        self.effects.iter().any(|earlier| earlier.may_race(effect))
    }

    /// Where two branches meet.
    pub fn join(&mut self, written: &WrittenMemory, other: GlobalHazards) {
        self.add(written, other.effects);
    }
}
