//! Objects of the driver whose release failed and is tried again: no object is lost because of the
//! time of its drop.
//!
//! The driver refuses calls inside of its callbacks, and some calls while a stream is captured.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;

/// A release that can be tried again after a failure.
type Release = Box<dyn FnMut() -> Result<()> + Send>;

/// Releases that failed.
#[derive(Default)]
pub(crate) struct Leftovers {
    /// The length of the list; read without its lock.
    count: AtomicUsize,
    list: Mutex<Vec<Release>>,
}

impl Leftovers {
    /// Releases an object now, or at a later [`Leftovers::retry`]. Values that the closure owns are
    /// dropped after its success.
    pub fn release(&self, mut release: impl FnMut() -> Result<()> + Send + 'static) {
        if release().is_err() {
            self.keep(vec![Box::new(release)]);
        }
    }

    /// Tries the failed releases again.
    #[inline]
    pub fn retry(&self) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.retry_all();
        }
    }

    #[cold]
    fn retry_all(&self) {
        // Not under the lock: a release drops streams, which are also released here.
        let mut all = {
            let mut list = self.list();
            self.count.store(0, Ordering::Relaxed);
            std::mem::take(&mut *list)
        };
        all.retain_mut(|release| release().is_err());
        self.keep(all);
    }

    #[cold]
    fn keep(&self, more: Vec<Release>) {
        let mut list = self.list();
        list.extend(more);
        self.count.store(list.len(), Ordering::Relaxed);
    }

    fn list(&self) -> MutexGuard<'_, Vec<Release>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leftovers({})", self.count.load(Ordering::Relaxed))
    }
}

/// A handle of the driver, valid on every thread.
#[derive(Clone, Copy)]
pub(crate) struct Handle<T>(T);

// SAFETY: the driver accepts its handles on any thread.
unsafe impl<T> Send for Handle<T> {}

impl<T: Copy> Handle<T> {
    pub fn new(raw: T) -> Handle<T> {
        Handle(raw)
    }

    /// Returns the handle. A method, so that a closure captures the whole object.
    pub fn raw(self) -> T {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::error::Error;

    #[test]
    fn failed_releases_are_repeated() {
        let (leftovers, permitted) = (Arc::new(Leftovers::default()), Arc::new(AtomicBool::new(false)));
        let (tries, owner) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let release = {
            let (permitted, tries, owner) = (permitted.clone(), tries.clone(), owner.clone());
            let nested = leftovers.clone();
            move || {
                let _ = &owner;
                nested.release(|| Ok(()));
                tries.fetch_add(1, Ordering::Relaxed);
                match permitted.load(Ordering::Relaxed) {
                    true => Ok(()),
                    false => Err(Error::argument("not permitted")),
                }
            }
        };
        leftovers.release(release);
        leftovers.retry();
        assert_eq!((tries.load(Ordering::Relaxed), Arc::strong_count(&owner)), (2, 2), "kept, with what it owns");
        permitted.store(true, Ordering::Relaxed);
        leftovers.retry();
        leftovers.retry();
        assert_eq!((tries.load(Ordering::Relaxed), Arc::strong_count(&owner)), (3, 1), "released once");
    }
}
