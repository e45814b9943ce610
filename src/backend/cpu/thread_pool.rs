//! Thread pool of the interpreter.
//!
//! The pool is private, because a launch from a thread of another rayon pool must not wait in that
//! pool. While rayon waits, it runs other tasks of the pool on the same stack. These tasks may
//! launch as well, until the stack overflows. So the caller executes work itself, and then sleeps
//! until its helpers have finished. A helper that starts later finds no work.
//! A part that waits for another part requests an additional thread. So all parts are started, and
//! the scheduler of the operating system prevents starvation.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rayon_core::{ThreadPool, ThreadPoolBuilder};

use crate::util::process::PerProcess;

/// Work that several threads share: each thread executes parts until none is left.
pub(super) trait Shared: Send + Sync + 'static {
    /// Executes parts until all have been started. A part that waits for other parts calls
    /// `reinforce` if some have not been started.
    fn work(&self, reinforce: &dyn Fn());
}

/// Maximal number of additional threads for waiting parts.
const MAX_REINFORCEMENTS: usize = 4096;

/// Threads that execute one work.
#[derive(Default)]
struct WorkerGroup {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    helpers: usize,
    /// Additional threads, including those that have finished.
    reinforcements: usize,
    /// The caller found no part left, so later helpers return at once.
    closed: bool,
    panic: Option<Box<dyn Any + Send>>,
}

impl WorkerGroup {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn help(self: &Arc<Self>, work: &Arc<impl Shared>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.helpers += 1;
        drop(state);
        self.helping(work);
    }

    /// Starts an additional thread, if the system permits.
    fn reinforce(self: &Arc<Self>, work: &Arc<impl Shared>) {
        let mut state = self.state();
        if state.reinforcements >= MAX_REINFORCEMENTS {
            return;
        }
        // Counted before the start: `close` must wait for the thread.
        state.helpers += 1;
        state.reinforcements += 1;
        drop(state);
        let (group, shared) = (self.clone(), work.clone());
        let thread = std::thread::Builder::new().name("cutlet cpu waits".into());
        if thread.spawn(move || group.helping(&shared)).is_err() {
            self.state().helpers -= 1;
            self.changed.notify_all();
        }
    }

    fn helping(self: &Arc<Self>, work: &Arc<impl Shared>) {
        let result = catch_unwind(AssertUnwindSafe(|| work.work(&|| self.reinforce(work))));
        let mut state = self.state();
        state.helpers -= 1;
        state.panic = state.panic.take().or(result.err());
        self.changed.notify_all();
    }

    /// Waits for the helpers that have started, and returns the panic of one of them.
    fn close(&self) -> Option<Box<dyn Any + Send>> {
        let mut state = self.state();
        state.closed = true;
        while state.helpers > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.panic.take()
    }
}

/// Executes the work on this thread and at most `helpers` others. Returns after all of it is
/// complete.
pub(super) fn run(work: &Arc<impl Shared>, helpers: usize) {
    let group = Arc::new(WorkerGroup::default());
    if helpers > 0
        && let Some(pool) = pool()
    {
        for _ in 0..helpers.min(pool.current_num_threads() - 1) {
            let (group, work) = (group.clone(), work.clone());
            pool.spawn(move || group.help(&work));
        }
    }
    let own = catch_unwind(AssertUnwindSafe(|| work.work(&|| group.reinforce(work))));
    // After a panic, too, no helper may still use the caller's borrows.
    if let Some(panic) = own.err().or(group.close()) {
        resume_unwind(panic);
    }
}

/// Returns the number of threads that execute tile blocks at the same time.
pub(crate) fn num_threads() -> usize {
    pool().map_or(1, ThreadPool::current_num_threads)
}

/// Returns the pool; `None` if the system cannot create threads.
fn pool() -> Option<&'static ThreadPool> {
    // A forked child has none of the threads of its parent, and their locks may remain locked.
    static POOL: PerProcess<Option<ThreadPool>> = PerProcess::new();
    let build = || ThreadPoolBuilder::new().thread_name(|i| format!("cutlet cpu {i}")).build().ok();
    POOL.get(build).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    struct Parts {
        next: AtomicUsize,
        done: AtomicUsize,
        count: usize,
        panics_at: usize,
    }

    impl Shared for Parts {
        fn work(&self, _: &dyn Fn()) {
            loop {
                let part = self.next.fetch_add(1, SeqCst);
                if part >= self.count {
                    return;
                }
                assert_ne!(part, self.panics_at, "a part that panics");
                std::thread::yield_now();
                self.done.fetch_add(1, SeqCst);
            }
        }
    }

    fn parts(count: usize, panics_at: usize) -> Arc<Parts> {
        Arc::new(Parts { next: AtomicUsize::new(0), done: AtomicUsize::new(0), count, panics_at })
    }

    #[test]
    fn everything_is_done_when_it_returns() {
        for helpers in [0, 1, 3, 100] {
            for count in [0, 1, 2, 50] {
                let work = parts(count, usize::MAX);
                run(&work, helpers);
                assert_eq!(work.done.load(SeqCst), count, "{helpers} helpers");
            }
        }
    }

    /// Work whose parts wait until all have started.
    struct StartBarrier {
        begun: AtomicUsize,
        count: usize,
    }

    impl Shared for StartBarrier {
        fn work(&self, reinforce: &dyn Fn()) {
            while self.begun.load(SeqCst) < self.count {
                if self.begun.fetch_add(1, SeqCst) >= self.count {
                    return;
                }
                while self.begun.load(SeqCst) < self.count {
                    reinforce();
                    std::thread::yield_now();
                }
            }
        }
    }

    #[test]
    fn parts_that_wait_do_not_starve_others() {
        for count in [1, 2, 40] {
            let work = Arc::new(StartBarrier { begun: AtomicUsize::new(0), count });
            run(&work, 1);
            assert!(work.begun.load(SeqCst) >= count);
        }
    }

    #[test]
    fn panics_are_propagated_without_loss_of_threads() {
        for _ in 0..20 {
            let work = parts(30, 7);
            assert!(catch_unwind(AssertUnwindSafe(|| run(&work, 3))).is_err());
        }
        let work = parts(30, usize::MAX);
        run(&work, 3);
        assert_eq!(work.done.load(SeqCst), 30);
    }
}
