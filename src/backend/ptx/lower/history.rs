//! The order of accesses to one array: which of them need a barrier between them.

use super::Lowering;
use crate::backend::ptx::schedule::{Touch, Written};
use crate::ir::OpId;

/// Accesses to each written array since the last barrier.
#[derive(Clone, Debug, Default)]
pub struct History {
    touches: Vec<Touch>,
}

impl History {
    /// All threads have done what came before.
    pub fn barrier(&mut self) {
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

    /// Where two branches meet.
    pub fn join(&mut self, written: &Written, other: History) {
        self.may_have_happened(written, other.touches);
    }
}

impl Lowering<'_> {
    /// Notes an access once more: a barrier may have come between its beginning and what it does.
    pub fn note_access(&mut self, id: OpId) {
        self.memory.may_have_happened(&self.context.written, self.context.access_of(id));
    }

    /// A barrier, if other threads of the block may still be at work on the same elements.
    pub fn order(&mut self, id: OpId) {
        let Some(touch) = self.context.access_of(id) else { return };
        if self.memory.touches.iter().any(|earlier| earlier.conflicts(&touch)) {
            self.barrier();
        }
        self.memory.may_have_happened(&self.context.written, [touch]);
    }
}
