//! Legalization: conversion from the semantics of this crate to those of Tile IR. Ops replace the
//! cases that this crate defines and Tile IR does not, on a copy of the module.
//!
//! No op is added if ranges prove that the undefined case cannot occur. For tile indices and loop
//! counters there are three levels:
//!
//! * An index that is a block id or the counter of a loop over tiles is inside if grid and extents
//!   match. The host checks this at each launch by a few integer operations
//!   ([`Limit`](super::Limit)).
//! * Other indices that only depend on block ids, parameters and counters are evaluated before the
//!   first launch of a kind ([`Probe`]). The same applies to ends of loops whose counter could
//!   wrap, and divisors that could be 0.
//! * Launches that violate a condition, and indices and ends that depend on data, need another
//!   kernel. In it, each such access is in an `if`, and each such loop has a wider counter.

mod arithmetic;
mod assertion;
mod atomic_16bit;
mod bounds;
mod index;
mod launch_probe;
mod loops;
mod overlap;
mod padding;
mod positive_extents;
mod rewrite;

#[cfg(test)]
mod tests;

pub use launch_probe::Probe;

use super::grid;
use super::launch_conditions::{Guards, LaunchConditions};
use crate::ir::Module;
use crate::pass::manager::apply;
use crate::pass::tidy;

/// Defines the undefined cases of a verified module. Returns the conditions that a launch must
/// check before it runs the result.
pub fn legalize(module: &mut Module, guards: Guards) -> LaunchConditions {
    let mut conditions = LaunchConditions::default();
    for entry in module.entries.clone() {
        apply("split_loops", module, |module| loops::split::run(module, &entry));
        let mut facts = grid::facts(module, &entry);
        if apply("version_overlap", module, |module| overlap::run(module, &entry, &facts)) {
            facts = grid::facts(module, &entry);
        }
        if guards == Guards::Launch
            && let Some((limits, positive)) =
                apply("positive_extents", module, |module| positive_extents::assume(module, &entry, &facts))
        {
            conditions.limits.extend(limits);
            facts = positive;
        }
        let mut wrapping = loops::wrapping(module, &entry, &facts);
        let by_zero = arithmetic::by_zero(module, &entry, &facts);
        let mut unchecked = by_zero.clone();
        let of_entry = apply("guard_bounds", module, |module| {
            bounds::run(module, &entry, &facts, guards, &mut wrapping, &mut unchecked)
        });
        conditions.limits.extend(of_entry.limits);
        conditions.probe = conditions.probe.or(of_entry.probe);
        let unproven = &by_zero - &unchecked;
        apply("legalize_arithmetic", module, |module| arithmetic::run(module, &entry, &facts, &unproven));
        apply("legalize_assertions", module, |module| assertion::run(module, &entry));
        apply("drop_loop_hints", module, |module| loops::drop_hints(module, &entry));
        apply("legalize_padding", module, |module| padding::run(module, &entry));
        apply("widen_loops", module, |module| loops::widen(module, &entry, &wrapping));
        apply("atomic_16bit", module, |module| atomic_16bit::run(module, &entry));
    }
    tidy(module);
    conditions
}

/// Replaces loads of tf32 by loads of f32 and conversions, for targets that need it.
pub fn read_tf32_as_f32(module: &mut Module) {
    for entry in module.entries.clone() {
        apply("read_tf32_as_f32", module, |module| padding::run_for_all(module, &entry));
    }
    tidy(module);
}
