//! A time limit for compilers inside of the driver.
//!
//! The driver's compilers cannot be stopped: a compilation beyond the limit continues in a separate
//! thread until its end, and its result is dropped. Compilers that are programs (`tileiras`) are
//! terminated.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use super::deadline::Deadline;
use crate::error::{Error, Result};

/// The environment variable of the limit, in seconds.
const VARIABLE: &str = "CUTLET_COMPILE_SECONDS";

/// The time limit of a compiler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompileLimit {
    pub time: Duration,
    /// The source of the limit.
    pub of: &'static str,
}

/// Returns the limit: that of the environment, or the remaining time of the calling thread if that
/// is less.
///
/// # Errors
/// [`Error::Argument`] if the variable is no number of seconds.
pub(crate) fn compile_limit() -> Result<Option<CompileLimit>> {
    let general = general_limit()?.map(|time| CompileLimit { time, of: VARIABLE });
    let own = Deadline::current().map(|deadline| CompileLimit { time: deadline.left(), of: "this configuration" });
    Ok(general.into_iter().chain(own).min_by_key(|limit| limit.time))
}

fn general_limit() -> Result<Option<Duration>> {
    static LIMIT: OnceLock<(String, Option<Option<Duration>>)> = OnceLock::new();
    let (text, limit) = LIMIT.get_or_init(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let limit = seconds(&text);
        (text, limit)
    });
    limit.ok_or_else(|| Error::environment(VARIABLE, text, "a positive number of seconds is needed, such as 20 or 0.5"))
}

/// Parses a limit. Empty text is no limit; `None` for text that is no number.
fn seconds(text: &str) -> Option<Option<Duration>> {
    if text.is_empty() {
        return Some(None);
    }
    let seconds = text.parse().ok().filter(|&seconds: &f64| seconds > 0.0)?;
    Duration::try_from_secs_f64(seconds).ok().map(Some)
}

/// Returns the result of `work`, which a separate thread executes if there is a limit. `compiler`
/// describes the work, for a kernel of this name.
///
/// # Errors
/// Those of the work, and [`Error::Compile`] after the limit.
pub(crate) fn within<X: Send + 'static>(
    limit: Option<CompileLimit>,
    kernel: &str,
    compiler: &'static str,
    work: impl FnOnce() -> Result<X> + Send + 'static,
) -> Result<X> {
    let Some(limit) = limit else { return work() };
    let made = Arc::new(Mutex::new(None));
    let slot = made.clone();
    let work = move || {
        let made = work()?;
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        Ok(())
    };
    run_within(limit, kernel, compiler, Box::new(work))?;
    let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(made.expect("work without an error has a result"))
}

fn run_within(
    limit: CompileLimit,
    kernel: &str,
    compiler: &'static str,
    work: Box<dyn FnOnce() -> Result<()> + Send>,
) -> Result<()> {
    let (done, result) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(format!("compile {kernel}"));
    let spawned = thread.spawn(move || {
        // After the limit there is no receiver: the result is dropped.
        let _ = done.send(work());
    });
    let running = spawned.map_err(|source| Error::Io { path: "a thread for the compiler".into(), source })?;
    match result.recv_timeout(limit.time) {
        Ok(made) => made,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(Error::Compile {
            kernel: kernel.into(),
            stage: compiler,
            log: format!(
                "not done after the {:.3} s of {}; the driver's compiler cannot be stopped: it goes on in a thread of its \
                 own, and what it makes is dropped",
                limit.time.as_secs_f64(),
                limit.of
            ),
        }),
        Err(mpsc::RecvTimeoutError::Disconnected) => match running.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("work that ended has sent what it gave"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_seconds() {
        assert_eq!(seconds(""), Some(None));
        assert_eq!(seconds("20"), Some(Some(Duration::from_secs(20))));
        assert_eq!(seconds("0.5"), Some(Some(Duration::from_millis(500))));
        for wrong in ["0", "-1", "soon", "NaN", "1e30"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn work_that_takes_too_long_is_not_waited_for() {
        let limit = |time| Some(CompileLimit { time, of: VARIABLE });
        let (limit, long) = (limit(Duration::from_millis(20)), limit(Duration::from_secs(60)));
        assert_eq!(within(None, "k", "the compiler", || Ok(7)).unwrap(), 7);
        assert_eq!(within(long, "k", "the compiler", || Ok(7)).unwrap(), 7);
        let (release, held) = mpsc::channel::<()>();
        let late = within(limit, "k", "the compiler", move || {
            let _ = held.recv();
            Ok(7)
        });
        let Err(Error::Compile { kernel, stage, log }) = late else { panic!("{late:?}") };
        assert_eq!((kernel.as_str(), stage), ("k", "the compiler"));
        assert!(log.starts_with("not done after the 0.020 s of CUTLET_COMPILE_SECONDS"), "{log}");
        drop(release);
    }

    #[test]
    fn errors_and_panics_are_propagated() {
        let limit = Some(CompileLimit { time: Duration::from_secs(60), of: VARIABLE });
        let refused: Result<()> = within(limit, "k", "the compiler", || Err(Error::NoDevice("none".into())));
        assert!(matches!(refused, Err(Error::NoDevice(_))));
        let panic = std::panic::catch_unwind(|| within::<()>(limit, "k", "the compiler", || panic!("a defect")));
        assert!(panic.is_err());
    }
}
