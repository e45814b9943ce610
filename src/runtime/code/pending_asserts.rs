//! The failed assertions of a GPU that have not been reported yet. The code does not depend on a
//! GPU.

use crate::util::collect::CollectVec as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::{Error, Result};

/// A place for the note of a failure.
pub(crate) trait Noted: Send + Sync {
    /// Returns and removes the noted failure, if there is one.
    fn take(&self) -> Option<Error>;
}

/// The notes of all kernels on a GPU.
#[derive(Default)]
pub(crate) struct Failures {
    /// True after the first load of a kernel with assertions.
    any: AtomicBool,
    notes: Mutex<Vec<Weak<dyn Noted>>>,
    /// Failures of kernels that have been dropped.
    lost: Mutex<Vec<Error>>,
}

impl Failures {
    pub fn add(&self, note: Weak<dyn Noted>) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.retain(|note| note.strong_count() > 0);
        notes.push(note);
        self.any.store(true, Ordering::Release);
    }

    /// Keeps a failure of a kernel that is dropped.
    pub fn keep(&self, error: Error) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    }

    /// Returns one of the noted failures as an error, after a wait of the host for work.
    ///
    /// # Errors
    /// [`Error::Execution`] for an assertion that failed, [`Error::Hung`] for waits that did not
    /// end.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.any.load(Ordering::Acquire) { self.report() } else { Ok(()) }
    }

    #[cold]
    fn report(&self) -> Result<()> {
        if let Some(error) = self.lost.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Err(error);
        }
        // Not under the lock: the last handle of a note may be dropped here, and the note then
        // locks this list.
        let notes: Vec<Arc<dyn Noted>> =
            self.notes.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect_vec();
        notes.iter().find_map(|note| note.take()).map_or(Ok(()), Err)
    }
}
