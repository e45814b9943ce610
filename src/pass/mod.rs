//! Passes: transformations of the IR. The optimizations are listed in [`PIPELINE`], in their order.
//!
//! A pass reads effects and properties of ops from the op table and stores its analyses in tables
//! indexed by handles. The resulting module verifies. Equal modules have equal results.
//!
//! Each pass runs under its name through the pass manager, also those of the back ends.

mod analysis;
pub(crate) mod data_partition;
mod exact;
mod instrument;
mod legalize;
pub(crate) mod manager;
mod prove;
mod rewrites;
mod split_extents;
mod transform;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use analysis::cluster_exchanges::check as check_cluster_exchanges;
pub(crate) use analysis::determinism::check as check_determinism;
pub use analysis::int_range::{IntRange, IntRanges};
pub(crate) use analysis::mma_groups::{MmaGroups, accumulator_chains};
pub use analysis::roofline::Work;
pub(crate) use analysis::unchecked_stores::{UncheckedStore, unchecked_stores};
pub(crate) use instrument::assume_to_assert::VIOLATED_ASSUMPTION;
pub(crate) use instrument::preconditions::split_preconditions;
pub(crate) use instrument::record_writes::UNWRITTEN;
pub(crate) use legalize::ordered_reduction::is_commutative;
#[cfg(any(test, feature = "_suite"))]
#[doc(hidden)]
pub use manager::{Fault, NAMES, PassRun, record_passes};
pub(crate) use prove::{
    Argument, SymbolicLaunch, check_rowwise, prove, prove_for_all, remove_needless_checks, remove_proved_checks,
    satisfies_conditions,
};
pub use prove::{Counterexample, Property, Symbol, Verdict};
pub use rewrites::*;
pub(crate) use transform::canonicalize::int::binary as fold_int;
#[cfg(not(feature = "_suite"))]
pub(crate) use transform::hoist_factor::POSITIVE_RANGE;
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub use transform::hoist_factor::POSITIVE_RANGE;
pub(crate) use transform::hoist_factor::{Factors, positive_params};
pub(crate) use transform::thread_local_reduction::{ReductionAxis, ReductionDistribution};

use crate::ir::{Module, Op};

/// A pass and its name.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Name of the pass: that of its file.
    pub name: &'static str,
    /// Function that changes the module.
    pub run: fn(&mut Module),
}

/// Optimization passes in execution order.
///
/// The second `canonicalize` runs for two reasons. Integer ranges are derived only after the first
/// one has removed ops that they cannot be propagated through. The conditions that `fold_int_range`
/// decides make further branches removable. `cse` makes more operands equal. `licm` moves equal ops
/// of different loops into one block, so a second `cse` follows.
pub const PIPELINE: &[Pass] = &[
    Pass { name: "canonicalize", run: transform::canonicalize::run },
    Pass { name: "cse", run: transform::cse::run },
    Pass { name: "fold_int_range", run: transform::fold_int_range::run },
    Pass { name: "canonicalize", run: transform::canonicalize::run },
    Pass { name: "licm", run: transform::licm::run },
    Pass { name: "cse", run: transform::cse::run },
    Pass { name: "dce", run: transform::dce::run },
    Pass { name: "relax_memory_order", run: transform::relax_memory_order::run },
];

/// Runs the passes of [`PIPELINE`] on a verified module. The result verifies and has the same
/// semantics.
pub fn optimize(module: &mut Module) {
    optimize_with_observer(module, &mut |_, _| {});
}

/// Runs [`optimize`] and calls `look` with the module after each pass.
pub(crate) fn optimize_with_observer(module: &mut Module, look: &mut dyn FnMut(&'static str, &Module)) {
    for pass in PIPELINE {
        manager::apply(pass.name, module, pass.run);
        look(pass.name, module);
    }
}

/// Merges equal ops and removes unused ones, for back ends that have added ops.
pub(crate) fn tidy(module: &mut Module) {
    manager::apply("cse", module, transform::cse::run);
    manager::apply("dce", module, transform::dce::run);
}

/// Removes each op that neither decides control flow nor contributes to an op for which `is_needed`
/// is true.
pub(crate) fn keep_only(module: &mut Module, is_needed: &dyn Fn(&Op) -> bool) {
    transform::dce::run_for(module, is_needed);
}
