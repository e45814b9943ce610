//! State of one process that the children it forks do not share.
//!
//! A child of `fork` has the memory of its parent and one thread, the one that forked. A lock that
//! another thread held stays locked, and the threads of a pool do not exist. So a child creates
//! state with locks or threads again ([`PerProcess`]). It cannot use the GPU driver at all, which
//! [`generation`] detects.
//!
//! A `pthread_atfork` handler counts the forks since the first process. It runs in the child before
//! `fork` returns.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Number of forks since the process that first called [`watch`].
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Returns the generation of this process. A child of `fork` has the next number.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Starts the count of [`generation`].
pub(crate) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Acquire) && !WATCHED.swap(true, Ordering::AcqRel) {
        watch_forks();
    }
}

#[cfg(unix)]
fn watch_forks() {
    type Handler = Option<unsafe extern "C" fn()>;
    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> std::ffi::c_int;
    }
    /// Executes only async-signal-safe code.
    unsafe extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the signature is that of POSIX, and the handler is valid as long as this code is
    // loaded. The only failure is lack of memory: then forks are not counted.
    let _ = unsafe { pthread_atfork(None, None, Some(in_child)) };
}

#[cfg(not(unix))]
fn watch_forks() {}

/// A value that each process creates at its first use. It is never dropped.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Made<T>>);

struct Made<T> {
    generation: u32,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns the value of this process, and creates it by `make` if there is none. Concurrent
    /// threads may each call `make`; all of them receive the same value.
    #[inline]
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let made = self.0.load(Ordering::Acquire);
        // SAFETY: a pointer that is not null points to a value that is never dropped or changed.
        match unsafe { made.as_ref() } {
            Some(made) if made.generation == generation() => &made.value,
            _ => self.replace(made, make()),
        }
    }

    #[cold]
    fn replace(&self, old: *mut Made<T>, value: T) -> &'static T {
        watch();
        let new = Box::into_raw(Box::new(Made { generation: generation(), value }));
        // The value of the parent is leaked: its locks may be held, and its threads do not exist
        // here.
        let kept = match self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(first) => {
                // SAFETY: created above and not shared.
                drop(unsafe { Box::from_raw(new) });
                first
            }
        };
        // SAFETY: as in `get`. The value found belongs to this process, because a forked child has
        // only this thread.
        unsafe { &(*kept).value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_get_one_value() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        let next = AtomicU32::new(0);
        let all: Vec<usize> = std::thread::scope(|scope| {
            let get = || std::ptr::from_ref(VALUE.get(|| next.fetch_add(1, Ordering::Relaxed))).addr();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(get)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(all.windows(2).all(|two| two[0] == two[1]));
    }

    #[test]
    fn another_process_has_its_own_value() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        assert_eq!([VALUE.get(|| 1), VALUE.get(|| 2)], [&1, &1]);
        // Simulates a fork after the creation of the value.
        let made = VALUE.0.load(Ordering::Acquire);
        // SAFETY: created above, and not used by other code.
        unsafe { (*made).generation = generation().wrapping_sub(1) };
        assert_eq!([VALUE.get(|| 3), VALUE.get(|| 4)], [&3, &3]);
    }
}
