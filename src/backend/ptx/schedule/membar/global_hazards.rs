//! Global-memory hazards since the last barrier.

use crate::backend::ptx::schedule::analysis::memory_effects::{MemoryEffect, WrittenMemory};

/// Accesses to each written array since the last meeting.
#[derive(Clone, Debug, Default)]
pub struct GlobalHazards {
    touches: Vec<MemoryEffect>,
}

impl GlobalHazards {
    /// All threads have done what came before.
    pub fn meet(&mut self) {
        self.touches.clear();
    }

    /// Accesses that may have happened, or not.
    pub fn may_have_happened(&mut self, written: &WrittenMemory, touches: impl IntoIterator<Item = MemoryEffect>) {
        for touch in touches {
            if !written.does_not_modify(&touch) && !self.touches.contains(&touch) {
                self.touches.push(touch);
            }
        }
    }

    /// May other threads still be at work on the same elements?
    pub fn conflicts(&self, touch: &MemoryEffect) -> bool {
        self.touches.iter().any(|earlier| earlier.conflicts(touch))
    }

    /// Where two branches meet.
    pub fn join(&mut self, written: &WrittenMemory, other: GlobalHazards) {
        self.may_have_happened(written, other.touches);
    }
}
