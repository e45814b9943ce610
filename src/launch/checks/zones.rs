//! Check of the red zones of the arrays of a launch, after the launch.

use crate::error::{Diagnostic, Error, Location, Result};
use crate::kernel::AnyArgs;

/// Waits for a launch, and compares the red zones of its arrays.
///
/// # Errors
/// [`Error::Execution`] at the caller's location for the first array with a changed zone; errors of
/// the launch.
#[cold]
#[track_caller]
pub(crate) fn check(kernel: &str, args: &dyn AnyArgs) -> Result<()> {
    let place = Location::caller();
    let (mut number, mut result) = (0, Ok(None));
    args.memory(&mut |used| {
        if matches!(result, Ok(None)) {
            let found = used.memory().take_damage();
            result = found.map(|damage| damage.map(|damage| (number, used.memory().len(), damage)));
        }
        number += 1;
    });
    let Some((number, bytes, damage)) = result? else { return Ok(()) };
    let count = damage.count;
    let (distance, side) = match damage.first {
        before if before < 0 => (-before, "before its first byte"),
        behind => (behind - bytes as i64, "behind its last byte"),
    };
    let message = format!(
        "kernel `{kernel}` wrote {count} bytes outside of array argument {number}, an allocation of {bytes} bytes: the \
         first one at offset {}, {distance} bytes {side}",
        damage.first
    );
    let note = "the arguments are counted from 0; with `CUTLET_CHECK=bounds` the launch names line and tile block of an access \
                outside, and skips it";
    Err(Error::Execution(Diagnostic::new(message, Some(place)).note(note)))
}
