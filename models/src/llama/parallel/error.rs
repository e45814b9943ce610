//! Errors of arguments.

use cutlet as ct;
use cutlet::{Diagnostic, Location};

/// Returns the error of an argument, at the place of the caller.
#[track_caller]
pub fn argument(text: String) -> ct::Error {
    ct::Error::Argument(Diagnostic::new(text, Some(Location::caller())))
}
