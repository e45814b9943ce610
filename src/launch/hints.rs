//! Which wishes for code can be meant at all.

use crate::backend::Hints;
use crate::error::{Error, Result};

/// # Errors
/// [`Error::Argument`] at the caller's place for numbers that no code can have.
#[inline]
#[track_caller]
pub(super) fn check_hints(hints: Hints) -> Result<()> {
    if hints == Hints::default() { Ok(()) } else { checked(hints) }
}

#[cold]
#[track_caller]
fn checked(hints: Hints) -> Result<()> {
    let problem = match hints {
        Hints { num_warps: Some(n), .. } if !(n.is_power_of_two() && n <= 32) => {
            format!("num_warps is {n}: a power of two from 1 to 32 is needed")
        }
        Hints { num_ctas: Some(n), .. } if !(n.is_power_of_two() && n <= 16) => {
            format!("num_ctas is {n}: a power of two from 1 to 16 is needed")
        }
        Hints { occupancy: Some(n), .. } if !(1..=32).contains(&n) => {
            format!("occupancy is {n}: 1 to 32 tile blocks fit on a multiprocessor")
        }
        Hints { stages: Some(0), .. } => "stages is 0: a pipeline has at least one".into(),
        Hints { code_limit: Some(0), .. } => "code_limit is 0: every kernel has instructions".into(),
        Hints { loop_limit: Some(0), .. } => "loop_limit is 0: every loop has a turn".into(),
        _ => return Ok(()),
    };
    Err(Error::argument(format!("hints of this launch: {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_hints_are_refused() {
        assert!(check_hints(Hints { num_warps: Some(4), ..Hints::default() }).is_ok());
        assert!(check_hints(Hints { num_warps: Some(3), ..Hints::default() }).is_err());
        assert!(check_hints(Hints { stages: Some(0), ..Hints::default() }).is_err());
    }
}
