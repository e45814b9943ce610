//! The failed assertions of a GPU, as far as nobody has been told of them. Knows no GPU.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::{Error, Result};

/// Somewhere a failure may be noted.
pub(crate) trait Noted: Send + Sync {
    /// The failure that is noted, if there is one, which is forgotten.
    fn take(&self) -> Option<Error>;
}

/// The notes of all kernels on a GPU.
#[derive(Default)]
pub(crate) struct Failures {
    /// Has there ever been a kernel with assertions?
    any: AtomicBool,
    notes: Mutex<Vec<Weak<dyn Noted>>>,
    /// Failures of kernels that are gone.
    lost: Mutex<Vec<Error>>,
}

impl Failures {
    pub fn add(&self, note: Weak<dyn Noted>) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.retain(|note| note.strong_count() > 0);
        notes.push(note);
        self.any.store(true, Ordering::Release);
    }

    /// A failure that was noted by a kernel which is gone now.
    pub fn keep(&self, error: Error) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    }

    /// What the host learns after it has waited for work: one failure of those that are noted.
    ///
    /// # Errors
    /// [`Error::Execution`] for an assertion that failed.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.any.load(Ordering::Acquire) { self.look() } else { Ok(()) }
    }

    #[cold]
    fn look(&self) -> Result<()> {
        if let Some(error) = self.lost.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Err(error);
        }
        // Not under the lock: the last handle of a note may go here, and the note then locks what it is in.
        let notes: Vec<Arc<dyn Noted>> =
            self.notes.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
        notes.iter().find_map(|note| note.take()).map_or(Ok(()), Err)
    }
}
