//! Passes: ir to ir. The pipeline is the list [`PIPELINE`].
//!
//! A pass asks the op table about effects and properties, keeps what it knows in tables keyed by
//! handles, and leaves a module that verifies. Equal modules give equal results.

mod analysis;
pub(crate) mod data_partition;
mod instrument;
mod legalize;
mod split_extents;
mod transform;

#[cfg(test)]
pub(crate) mod tests;

pub use analysis::int_range::{Facts, Range};
pub(crate) use analysis::mma_groups::{Bundles, sums};
pub use analysis::roofline::Work;
pub(crate) use instrument::assume_to_assert::{BROKEN, check as check_promises};
pub(crate) use instrument::preconditions::split as split_required;
pub(crate) use legalize::expand_gather::without_lookups;
pub(crate) use legalize::expand_scaled_mma::without_scaled_products;
pub(crate) use legalize::inline_ptx::{as_meant, without_meanings};
pub(crate) use legalize::ordered_reduction::{commutes, with_order_kept};
pub use split_extents::run as apart;
pub(crate) use transform::bit_reverse::with_reversals;
pub use transform::pipeline_dependent_mma::rotate;
pub(crate) use transform::thread_local_reduction::{Shared, lane_sums};

use crate::ir::{Module, Op};

/// A pass with its name.
#[derive(Clone, Copy)]
pub struct Pass {
    /// As in the name of its file.
    pub name: &'static str,
    /// Changes the module.
    pub run: fn(&mut Module),
}

/// The passes in the order in which they run.
///
/// Facts see through fewer ops before canonicalisation, and what they decide (branches, say) gives it
/// new work; common subexpressions make more operands equal; hoisting brings equal ops of different
/// loops into one block.
pub const PIPELINE: &[Pass] = &[
    Pass { name: "canonicalize", run: transform::canonicalize::run },
    Pass { name: "cse", run: transform::cse::run },
    Pass { name: "fold_facts", run: transform::fold_int_range::run },
    Pass { name: "canonicalize", run: transform::canonicalize::run },
    Pass { name: "licm", run: transform::licm::run },
    Pass { name: "cse", run: transform::cse::run },
    Pass { name: "dce", run: transform::dce::run },
    Pass { name: "relax", run: transform::relax_memory_order::run },
];

/// Runs all passes in order on a verified module; the result verifies and means the same.
pub fn optimize(module: &mut Module) {
    optimize_watched(module, &mut |_, _| {});
}

/// [`optimize`], with a look at the module after each pass.
pub(crate) fn optimize_watched(module: &mut Module, look: &mut dyn FnMut(&'static str, &Module)) {
    for pass in PIPELINE {
        (pass.run)(module);
        look(pass.name, module);
    }
}

/// Merges equal ops and takes out unused ones: for back ends that added some.
pub(crate) fn tidy(module: &mut Module) {
    transform::cse::run(module);
    transform::dce::run(module);
}

/// Takes out everything that neither decides where control goes nor is needed by ops of this kind.
pub(crate) fn keep_only(module: &mut Module, is_needed: &dyn Fn(&Op) -> bool) {
    transform::dce::run_for(module, is_needed);
}
