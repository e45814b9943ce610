//! Passes: transformations of the IR. The optimizations are listed in [`PIPELINE`], in their order.
//!
//! A pass reads effects and properties of ops from the op table and stores its analyses in tables
//! indexed by handles. The resulting module verifies. Equal modules give equal results.

mod analysis;
pub(crate) mod data_partition;
mod exact;
mod instrument;
mod legalize;
mod prove;
mod split_extents;
mod transform;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use analysis::cluster_uniformity::check as check_cluster_uniformity;
pub(crate) use analysis::determinism::check as check_determinism;
pub use analysis::int_range::{IntRange, IntRanges};
pub(crate) use analysis::mma_groups::{MmaGroups, accumulator_chains};
pub use analysis::roofline::Work;
pub(crate) use exact::exact;
pub(crate) use instrument::assume_to_assert::{VIOLATED_ASSUMPTION, assume_to_assert};
pub(crate) use instrument::preconditions::split_preconditions;
pub(crate) use instrument::record_accesses::record_accesses;
pub(crate) use legalize::drop_layouts::drop_layouts;
pub(crate) use legalize::expand_gather::expand_gather;
pub(crate) use legalize::expand_scaled_mma::expand_scaled_mma;
pub(crate) use legalize::inline_ptx::{expand_inline_ptx, strip_inline_ptx_semantics};
pub(crate) use legalize::ordered_reduction::{expand_ordered_reductions, is_commutative};
pub(crate) use prove::{Argument, SymbolicLaunch, check_rowwise, prove, prove_for_all, remove_needless_checks};
pub use prove::{Counterexample, Property, Symbol, Verdict};
pub use split_extents::run as split_extents;
pub(crate) use transform::bit_reverse::expand_bit_reverse;
pub(crate) use transform::hoist_factor::hoist_factor;
pub(crate) use transform::persistent::persistent;
pub use transform::pipeline_dependent_mma::pipeline_dependent_mma;
pub(crate) use transform::relax_floats::relax_floats;
pub(crate) use transform::select_to_branch::select_to_branch;
pub(crate) use transform::sink_loads::sink_loads;
pub(crate) use transform::thread_local_reduction::{ReductionAxis, ReductionDistribution, thread_local_reduction};

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
        (pass.run)(module);
        look(pass.name, module);
    }
}

/// Merges equal ops and removes unused ones, for back ends that have added ops.
pub(crate) fn tidy(module: &mut Module) {
    transform::cse::run(module);
    transform::dce::run(module);
}

/// Removes each op that neither decides control flow nor contributes to an op for which `is_needed`
/// is true.
pub(crate) fn keep_only(module: &mut Module, is_needed: &dyn Fn(&Op) -> bool) {
    transform::dce::run_for(module, is_needed);
}
