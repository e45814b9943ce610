//! What belongs to one process, and not to the children that it forks.
//!
//! A child of `fork` has the memory of its parent and one thread, that which forked. A lock that another thread held stays
//! locked, and the threads of a pool are gone. State with locks or threads is therefore made anew in a child: [`PerProcess`].
//! The driver of GPUs cannot be used in a child at all: [`generation`] tells it.
//!
//! A handler of the system counts the forks on the way from the first process. It runs in the child before `fork` returns.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Forks between the process that first asked and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The number of this process among its ancestors. Children of `fork` have the next one.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has [`generation`] count from now on.
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
    /// Does what a handler of signals may do, and no more.
    unsafe extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the signature is that of POSIX, and the handler lasts as long as this code is loaded. Without memory for it
    // (the one failure), children are as they would be without it.
    let _ = unsafe { pthread_atfork(None, None, Some(in_child)) };
}

#[cfg(not(unix))]
fn watch_forks() {}

/// A value that each process makes for itself, at the first use. It is never dropped.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Made<T>>);

struct Made<T> {
    generation: u32,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value of this process, made by `make` if there is none. Threads that come at the same time may each make one;
    /// all get the same.
    #[inline]
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let made = self.0.load(Ordering::Acquire);
        // SAFETY: a pointer that is not null leads to a value that is never dropped or changed.
        match unsafe { made.as_ref() } {
            Some(made) if made.generation == generation() => &made.value,
            _ => self.replace(made, make()),
        }
    }

    #[cold]
    fn replace(&self, old: *mut Made<T>, value: T) -> &'static T {
        watch();
        let new = Box::into_raw(Box::new(Made { generation: generation(), value }));
        // What the parent has made stays: its locks may be held, and threads of it are not here to end.
        let kept = match self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(first) => {
                // SAFETY: made above, and nothing else has it.
                drop(unsafe { Box::from_raw(new) });
                first
            }
        };
        // SAFETY: as in `get`: what was found is of this process, for a fork leaves only this thread.
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
    fn another_process_makes_its_own() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        assert_eq!([VALUE.get(|| 1), VALUE.get(|| 2)], [&1, &1]);
        // As if this process had been forked from that which made it.
        let made = VALUE.0.load(Ordering::Acquire);
        // SAFETY: made above, and used by nothing else.
        unsafe { (*made).generation = generation().wrapping_sub(1) };
        assert_eq!([VALUE.get(|| 3), VALUE.get(|| 4)], [&3, &3]);
    }
}
