//! Checks of arguments.

use cutlet as ct;
use cutlet::{Diagnostic, Location};

/// Returns [`ct::Error::Argument`] with the caller's place, unless a condition holds.
///
/// # Errors
/// [`ct::Error::Argument`].
#[track_caller]
#[allow(dead_code, reason = "kernels are added one by one")]
pub fn require(holds: bool, message: impl FnOnce() -> String) -> ct::Result<()> {
    match holds {
        true => Ok(()),
        false => Err(ct::Error::Argument(Diagnostic::new(message(), Some(Location::caller())))),
    }
}
