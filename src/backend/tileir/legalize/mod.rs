//! From our semantics to those of Tile IR: what we define and Tile IR leaves undefined becomes ops
//! with the defined result, on a copy of the module before it is written.
//!
//! Nothing is added where facts prove that the undefined case cannot happen. Of tile indices outside
//! of an array, most need nothing either: an index that is a block id or the counter of a
//! loop over tiles is inside whenever grid and extents fit together, which the host checks at each
//! launch ([`Limit`]) at the price of a few integer operations; others that depend on nothing but block ids,
//! parameters and counters are gone through before the first launch of a kind ([`Probe`]), and so are ends of loops
//! whose counter could wrap. Launches that do not fit, and indices and ends that depend on data, get a kernel in
//! which each such access has an `if`, and each such loop a wider counter.

mod arithmetic;
mod assertion;
mod atomic_16bit;
mod bounds;
mod index;
mod launch_compare;
mod launch_conditions;
mod launch_probe;
mod loops;
mod overlap;
mod padding;
mod rewrite;

#[cfg(test)]
mod tests;

pub use launch_compare::{Bound, Limit};
pub use launch_conditions::{Guards, Promises};
pub use launch_probe::Probe;

use super::grid;
use crate::ir::Module;
use crate::pass;

/// Makes the undefined cases of a verified module defined. Gives what a launch must check before it
/// runs the result.
pub fn legalize(module: &mut Module, guards: Guards) -> Promises {
    let mut promises = Promises::default();
    for entry in module.entries.clone() {
        let mut facts = grid::facts(module, &entry);
        if overlap::run(module, &entry, &facts) {
            facts = grid::facts(module, &entry);
        }
        let mut wrapping = loops::wrapping(module, &entry, &facts);
        let of_entry = bounds::run(module, &entry, &facts, guards, &mut wrapping);
        promises.limits.extend(of_entry.limits);
        promises.probe = promises.probe.or(of_entry.probe);
        arithmetic::run(module, &entry, &facts);
        assertion::run(module, &entry);
        loops::drop_hints(module, &entry);
        padding::run(module, &entry);
        loops::widen(module, &entry, &wrapping);
        atomic_16bit::run(module, &entry);
    }
    pass::tidy(module);
    promises
}

/// Lets tf32 be read from memory as f32 and converted, for targets that know no better.
pub fn read_tf32_as_f32(module: &mut Module) {
    for entry in module.entries.clone() {
        padding::run_for_all(module, &entry);
    }
    pass::tidy(module);
}
