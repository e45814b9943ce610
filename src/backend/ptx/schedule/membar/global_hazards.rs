//! Global-memory hazards since the last barrier.

use crate::backend::ptx::schedule::analysis::memory_effects::{Touch, Written};

/// Accesses to each written array since the last meeting.
#[derive(Clone, Debug, Default)]
pub struct History {
    touches: Vec<Touch>,
}

impl History {
    /// All threads have done what came before.
    pub fn meet(&mut self) {
        self.touches.clear();
    }

    /// Accesses that may have happened, or not.
    pub fn may_have_happened(&mut self, written: &Written, touches: impl IntoIterator<Item = Touch>) {
        for touch in touches {
            if !written.leaves_alone(&touch) && !self.touches.contains(&touch) {
                self.touches.push(touch);
            }
        }
    }

    /// May other threads still be at work on the same elements?
    pub fn conflicts(&self, touch: &Touch) -> bool {
        self.touches.iter().any(|earlier| earlier.conflicts(touch))
    }

    /// Where two branches meet.
    pub fn join(&mut self, written: &Written, other: History) {
        self.may_have_happened(written, other.touches);
    }
}
