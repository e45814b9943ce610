//! Check of the red zones of the arrays of a launch, after the launch.
//!
//! The error names the stores of the kernel that may have changed a zone: those without bounds
//! checks, with those of the damaged array first. A launch does not compare the zones of arrays
//! that it does not use. So damage at a launch without such stores is that of earlier work.

use crate::error::{Diagnostic, Error, Location, Result};
use crate::kernel::AnyArgs;
use crate::launch::compile::executable::Executable;
use crate::pass::UncheckedStore;

/// Maximum number of stores in an error.
const MAX_STORES: usize = 8;

/// Waits for a launch, and compares the red zones of its arrays.
///
/// # Errors
/// [`Error::Execution`] at the caller's location for the first array with a changed zone; errors of
/// the launch.
#[cold]
#[track_caller]
pub(crate) fn check(executable: &Executable, args: &dyn AnyArgs) -> Result<()> {
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
    let damage = damage.text(&format!("array argument {number}"), bytes);
    let kernel = executable.remarks().kernel();
    let counted = "the arguments are counted from 0";
    let bounds = "with `CUTLET_CHECK=bounds,memory` the launch names line and tile block of an access that violates an \
                  assumption, and skips it";
    let error = match executable.unchecked_stores.as_deref() {
        Some([]) => Diagnostic::new(format!("earlier work than kernel `{kernel}` wrote {damage}"), Some(place))
            .note(format!("each store of this kernel is inside of its array; {counted}"))
            .note(
                "earlier work is a launch with other arrays, the replay of a graph, or code of another library: allocate \
                 its arrays with red zones, too",
            ),
        stores => {
            let error = Diagnostic::new(format!("kernel `{kernel}` wrote {damage}"), Some(place));
            let error = match stores {
                Some(stores) => error.note(described(stores, number, args)),
                None => error,
            };
            error.note(format!("{counted}; {bounds}"))
        }
    };
    Err(Error::Execution(error))
}

/// Returns the number of the array argument at the address of a parameter.
fn array_of(param: usize, args: &dyn AnyArgs) -> Option<usize> {
    let (mut words, mut number, mut found) = (Vec::new(), 0, None);
    args.pack(&mut |word| words.push(word));
    let address = *words.get(param)?;
    args.memory(&mut |used| {
        let distance = address.wrapping_sub(used.memory().address());
        found = found.or((distance < used.memory().len() as u64).then_some(number));
        number += 1;
    });
    found
}

/// Lists stores, with those of the damaged array first.
fn described(stores: &[UncheckedStore], damaged: usize, args: &dyn AnyArgs) -> String {
    let stores = stores.iter().map(|store| (&store.place, store.param.and_then(|param| array_of(param, args))));
    let (own, others): (Vec<_>, Vec<_>) = stores.partition(|(_, array)| *array == Some(damaged));
    let count = own.len() + others.len();
    let mut text = "stores without a bounds check, any of which may have done this:".to_owned();
    for (place, array) in own.iter().chain(&others).take(MAX_STORES) {
        let place = place.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
        text += &match *array {
            Some(array) if array == damaged => format!("\n    {place}: to this array"),
            Some(array) => format!("\n    {place}: to array argument {array}"),
            None => format!("\n    {place}: to an address of no argument"),
        };
    }
    if count > MAX_STORES {
        text += &format!("\n    and {} more", count - MAX_STORES);
    }
    text
}
