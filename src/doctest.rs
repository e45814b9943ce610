//! Names and a launch for the examples of the documentation, so that an example hides three lines.

pub use crate as ct;
pub use crate::prelude::*;

/// Runs `kernel` as one block on the cpu back end.
///
/// # Panics
/// If the launch returns an error.
#[track_caller]
pub fn on_cpu(kernel: impl Fn()) {
    if let Err(error) = crate::Launch::new(1).backend(crate::Backend::Cpu).launch(kernel, ()) {
        panic!("{error}");
    }
}
