//! A time limit for the waits of a thread: with a limit, events, streams and devices are polled
//! until its end. Work on a GPU continues nevertheless: only the end of its process stops a kernel.
//!
//! **Tasks of a rayon pool.** On a thread of a pool, a function of the user that waits for rayon
//! lets its thread execute unrelated tasks (see [`crate::util::task`]). Their waits cannot be
//! distinguished from its own. [`in_user_code`] therefore suspends the limit during that function.
//! The time of the function counts, and the waits of this crate after it are limited.

use std::cell::Cell;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::util::task::{Scoped, may_interrupt};

thread_local! {
    static CURRENT: Cell<Option<Deadline>> = const { Cell::new(None) };
}

/// The end of the waits of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    limit: Duration,
    end: Instant,
}

/// The longest pause between two polls.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

impl Deadline {
    /// Returns the deadline of the calling thread.
    pub fn current() -> Option<Deadline> {
        CURRENT.get()
    }

    /// Returns the remaining time.
    pub fn left(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Waits until `done` returns true, in pauses of increasing length.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; those of `done`.
    pub fn wait(self, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
        let mut pause = Duration::from_micros(10);
        while !done()? {
            let left = self.left();
            if left.is_zero() {
                return Err(self.missed(what));
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// Executes `work` in another thread, which continues after the deadline.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; those of the work.
    pub fn wait_in_thread(self, what: &str, work: Box<dyn FnOnce() -> Result<()> + Send>) -> Result<()> {
        let (done, result) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(what.to_owned());
        let spawned = thread.spawn(move || {
            let _ = done.send(work());
        });
        spawned.map_err(|source| Error::Io { path: "a thread that waits".into(), source })?;
        result.recv_timeout(self.left()).unwrap_or_else(|_| Err(self.missed(what)))
    }

    fn missed(self, what: &str) -> Error {
        Error::TimedOut { what: what.to_owned(), limit: self.limit }
    }
}

/// Returns the end of the time limit of the calling thread.
pub(crate) fn launch_end() -> Option<Instant> {
    Deadline::current().map(|deadline| deadline.end)
}

/// Runs a function of the user. If its thread may execute other tasks meanwhile, the limit of the
/// thread is suspended.
pub(crate) fn in_user_code<X>(function: impl FnOnce() -> X) -> X {
    let _unlimited = may_interrupt().then(|| Scoped::set(&CURRENT, None));
    function()
}

/// Executes work whose waits have a time limit. Work that ends by itself after the limit is an
/// error, too.
///
/// # Errors
/// [`Error::TimedOut`]; those of the work.
pub(crate) fn limited<X>(limit: Duration, what: &str, work: impl FnOnce() -> Result<X>) -> Result<X> {
    let Some(end) = Instant::now().checked_add(limit) else { return work() };
    let deadline = Deadline { limit, end };
    let _limited = Scoped::set(&CURRENT, Some(deadline));
    let made = work()?;
    if deadline.left().is_zero() { Err(deadline.missed(what)) } else { Ok(made) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    #[test]
    fn waiting_ends() {
        let never = limited(SOON, "the work", || Deadline::current().unwrap().wait("an event", || Ok(false)));
        let Err(Error::TimedOut { what, limit }) = never else { panic!("{never:?}") };
        assert_eq!((what.as_str(), limit), ("an event", SOON));
        assert!(Deadline::current().is_none());
        let mut looks = 0;
        let third = || {
            looks += 1;
            Ok(looks == 3)
        };
        limited(Duration::from_secs(60), "the work", || Deadline::current().unwrap().wait("an event", third)).unwrap();
        assert_eq!(looks, 3);
    }

    #[test]
    fn functions_of_the_user_have_no_limit_on_threads_that_run_tasks() -> Result<()> {
        const LONG: Duration = Duration::from_secs(60);
        let limits = || {
            limited(LONG, "all", || {
                let inside = in_user_code(|| Deadline::current().is_some());
                Ok((inside, Deadline::current().is_some()))
            })
        };
        assert_eq!(limits()?, (true, true));
        let pool = rayon_core::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
        assert_eq!(pool.install(limits)?, (false, true));
        Ok(())
    }

    #[test]
    fn waiting_in_another_thread_ends() {
        let (release, held) = mpsc::channel::<()>();
        let late = limited(SOON, "the work", || {
            let hang = move || {
                let _ = held.recv();
                Ok(())
            };
            Deadline::current().unwrap().wait_in_thread("the device", Box::new(hang))
        });
        assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
        drop(release);
        limited(Duration::from_secs(60), "the work", || {
            Deadline::current().unwrap().wait_in_thread("it", Box::new(|| Ok(())))
        })
        .unwrap();
    }

    #[test]
    fn late_ends_are_errors_and_limits_nest() {
        let slow = || {
            std::thread::sleep(SOON * 2);
            Ok(())
        };
        let late = limited(SOON, "the work", slow);
        assert_eq!(late.unwrap_err().to_string(), "the work is not done after 20ms");
        limited(Duration::from_secs(60), "all", || {
            let _ = limited(SOON, "a part", || Ok(()));
            assert_eq!(Deadline::current().unwrap().limit, Duration::from_secs(60));
            Ok(())
        })
        .unwrap();
        assert_eq!(limited(Duration::MAX, "all", || Ok(7)).unwrap(), 7);
    }
}
