//! The threads that run tile blocks.
//!
//! They are the interpreter's own. A launch from a thread of somebody else's pool must not wait in that pool:
//! while rayon waits it runs other tasks of the pool, which may launch, too, one on top of the other until
//! the stack ends. So the caller works itself, and then sleeps until its helpers are done; a helper that comes
//! after that finds nothing to do.
//!
//! A part that waits for what another one will do asks for reinforcements: threads of their own, so that every part is
//! begun, and the system's scheduler sees to it that none starves.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rayon_core::{ThreadPool, ThreadPoolBuilder};

use crate::process::PerProcess;

/// Work that any number of threads do together: each takes parts of it until there are none left.
pub(super) trait Shared: Send + Sync + 'static {
    /// Takes parts and does them, until no part is left that nobody has taken. A part that waits for others calls
    /// `reinforce` if there are some that nobody has taken.
    fn work(&self, reinforce: &dyn Fn());
}

/// Most threads that waiting parts may ask for.
const MAX_REINFORCEMENTS: usize = 4096;

/// Who is at work.
#[derive(Default)]
struct Team {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    helpers: usize,
    /// Threads beyond those of the pool, ever.
    reinforcements: usize,
    /// The caller found nothing left to take: whoever comes now is too late.
    closed: bool,
    panic: Option<Box<dyn Any + Send>>,
}

impl Team {
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

    /// One thread more, if the system gives one.
    fn reinforce(self: &Arc<Self>, work: &Arc<impl Shared>) {
        let mut state = self.state();
        if state.reinforcements >= MAX_REINFORCEMENTS {
            return;
        }
        // Counted here: the team may not close before the thread has begun.
        state.helpers += 1;
        state.reinforcements += 1;
        drop(state);
        let (team, shared) = (self.clone(), work.clone());
        let thread = std::thread::Builder::new().name("cutlet cpu waits".into());
        if thread.spawn(move || team.helping(&shared)).is_err() {
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

    /// Waits for the helpers that have begun.
    fn close(&self) -> Option<Box<dyn Any + Send>> {
        let mut state = self.state();
        state.closed = true;
        while state.helpers > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.panic.take()
    }
}

/// Does the work on this thread and on at most `helpers` others; returns when all of it is done.
pub(super) fn run(work: &Arc<impl Shared>, helpers: usize) {
    let team = Arc::new(Team::default());
    if helpers > 0
        && let Some(pool) = pool()
    {
        for _ in 0..helpers.min(pool.current_num_threads() - 1) {
            let (team, work) = (team.clone(), work.clone());
            pool.spawn(move || team.help(&work));
        }
    }
    let own = catch_unwind(AssertUnwindSafe(|| work.work(&|| team.reinforce(work))));
    // Also after a panic nobody may be left who uses what this call has borrowed.
    if let Some(panic) = own.err().or(team.close()) {
        resume_unwind(panic);
    }
}

/// How many threads run tile blocks at a time.
pub(crate) fn num_threads() -> usize {
    pool().map_or(1, ThreadPool::current_num_threads)
}

/// None where the system gives no threads.
fn pool() -> Option<&'static ThreadPool> {
    // A child of this process has none of its threads, whose locks may be held for good.
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

    /// Each part waits until all have begun.
    struct Meeting {
        begun: AtomicUsize,
        count: usize,
    }

    impl Shared for Meeting {
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
            let work = Arc::new(Meeting { begun: AtomicUsize::new(0), count });
            run(&work, 1);
            assert!(work.begun.load(SeqCst) >= count);
        }
    }

    #[test]
    fn panics_come_back_and_leave_the_threads() {
        for _ in 0..20 {
            let work = parts(30, 7);
            assert!(catch_unwind(AssertUnwindSafe(|| run(&work, 3))).is_err());
        }
        let work = parts(30, usize::MAX);
        run(&work, 3);
        assert_eq!(work.done.load(SeqCst), 30);
    }
}
