//! Checks of hints, and the options of assemblers.

use std::sync::OnceLock;

use crate::backend::{Assembly, Hints};
use crate::error::{Error, Result};

/// Checks the ranges of hints.
///
/// # Errors
/// [`Error::Argument`] at the caller's location for numbers that no code can have.
#[inline]
#[track_caller]
pub(crate) fn check_hints(hints: Hints) -> Result<()> {
    if hints == Hints::default() { Ok(()) } else { checked(hints) }
}

#[cold]
#[track_caller]
fn checked(hints: Hints) -> Result<()> {
    let problem = match hints {
        Hints { num_warps: Some(n), .. } if !(n.is_power_of_two() && n <= 32 || [12, 24].contains(&n)) => {
            format!("num_warps is {n}: a power of two from 1 to 32 is needed, or 12 or 24")
        }
        Hints { num_ctas: Some(n), .. } if !(n.is_power_of_two() && n <= 16) => {
            format!("num_ctas is {n}: a power of two from 1 to 16 is needed")
        }
        Hints { occupancy: Some(n), .. } if !(1..=32).contains(&n) => {
            format!("occupancy is {n}: 1 to 32 tile blocks fit on a multiprocessor")
        }
        Hints { num_stages: Some(0), .. } => "num_stages is 0: a pipeline has at least one".into(),
        Hints { code_limit: Some(0), .. } => "code_limit is 0: every kernel has instructions".into(),
        Hints { loop_limit: Some(0), .. } => "loop_limit is 0: every loop has an iteration".into(),
        Hints { wait_limit: Some(0), .. } => "wait_limit is 0: every wait takes time".into(),
        Hints { opt_level: Some(4..), .. } => "opt_level is from 0 to 3".into(),
        _ => return Ok(()),
    };
    Err(Error::argument(format!("hints of this launch: {problem}")))
}

/// Returns true if the code has line information: by these hints, else by `CUTLET_LINES`, which is
/// read once.
pub(super) fn wants_lines(hints: Hints) -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    let environment = || std::env::var_os("CUTLET_LINES").is_some_and(|value| !value.is_empty() && value != "0");
    hints.device_debug || hints.line_info.unwrap_or_else(|| *WANTED.get_or_init(environment))
}

/// Returns the options of assemblers.
pub(crate) fn assembly(hints: Hints) -> Assembly {
    Assembly {
        lines: wants_lines(hints),
        // The highest level is the default of the assemblers.
        opt_level: hints.opt_level.filter(|&level| level < 3),
        device_debug: hints.device_debug,
        memcheck: hints.memcheck,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_hints_are_refused() {
        assert!(check_hints(Hints { num_warps: Some(4), ..Hints::default() }).is_ok());
        assert!(check_hints(Hints { num_warps: Some(3), ..Hints::default() }).is_err());
        assert!(check_hints(Hints { num_warps: Some(12), ..Hints::default() }).is_ok());
        assert!(check_hints(Hints { num_stages: Some(0), ..Hints::default() }).is_err());
        assert!(check_hints(Hints::new().opt_level(0)).is_ok() && check_hints(Hints::new().opt_level(4)).is_err());
    }
}
