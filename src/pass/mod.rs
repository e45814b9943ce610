//! Passes: ir to ir. The pipeline is the list [`PIPELINE`].
//!
//! A pass asks the op table about effects and properties, keeps what it knows in tables keyed by
//! handles, and leaves a module that verifies. Equal modules give equal results.

mod apart;
pub(crate) mod bands;
mod bit_moves;
mod bundle;
mod canonicalize;
mod cse;
mod dce;
mod facts;
mod fold_facts;
mod in_order;
mod inline_ptx;
mod lane_sums;
mod licm;
mod lookup;
mod promises;
mod relax;
mod require;
mod rotate;
mod scaled;
mod signs;
mod work;
mod writer;

#[cfg(test)]
pub(crate) mod tests;

pub use apart::run as apart;
pub(crate) use bit_moves::with_reversals;
pub(crate) use bundle::{Bundles, sums};
pub use facts::{Facts, Range};
pub(crate) use in_order::{commutes, with_order_kept};
pub(crate) use inline_ptx::{as_meant, without_meanings};
pub(crate) use lane_sums::{Shared, lane_sums};
pub(crate) use lookup::without_lookups;
pub(crate) use promises::{BROKEN, check as check_promises};
pub(crate) use require::split as split_required;
pub use rotate::rotate;
pub(crate) use scaled::without_scaled_products;
pub use work::Work;

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
    Pass { name: "canonicalize", run: canonicalize::run },
    Pass { name: "cse", run: cse::run },
    Pass { name: "fold_facts", run: fold_facts::run },
    Pass { name: "canonicalize", run: canonicalize::run },
    Pass { name: "licm", run: licm::run },
    Pass { name: "cse", run: cse::run },
    Pass { name: "dce", run: dce::run },
    Pass { name: "relax", run: relax::run },
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
    cse::run(module);
    dce::run(module);
}

/// Takes out everything that neither decides where control goes nor is needed by ops of this kind.
pub(crate) fn keep_only(module: &mut Module, is_needed: &dyn Fn(&Op) -> bool) {
    dce::run_for(module, is_needed);
}
