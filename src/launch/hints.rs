//! Which wishes for code can be meant at all.

use crate::backend::Hints;
use crate::error::{Diagnostic, Error, Result};

/// # Errors
/// [`Error::Argument`] for numbers that no code can have.
pub(super) fn check_hints(hints: Hints) -> Result<()> {
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
        _ => return Ok(()),
    };
    Err(Error::Argument(Diagnostic::new(format!("hints of this launch: {problem}"), None)))
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
