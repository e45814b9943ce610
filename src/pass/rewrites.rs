//! Passes that the launch and the back ends call, each under its name (see [`super::manager`]).
//!
//! A pass that may have nothing to change returns the changed module, or `None`.

use super::manager::{apply, rewrite, try_apply, try_rewrite};
use super::transform::hoist_factor::Factors;
use super::transform::thread_local_reduction::ReductionDistribution;
use super::{exact as exact_mode, instrument, legalize, split_extents as extents, transform};
use crate::error::Diagnostic;
use crate::ir::{Module, OpId};

/// Replaces floats by elements of a ring of integers.
///
/// # Errors
/// The ops without a form in exact mode.
pub fn exact(module: &mut Module) -> Result<(), Vec<Diagnostic>> {
    try_apply("exact", module, exact_mode::exact)
}

/// Replaces assumptions of the user by assertions.
pub(crate) fn assume_to_assert(module: &mut Module) {
    apply("assume_to_assert", module, instrument::assume_to_assert::assume_to_assert);
}

/// Records the accesses to memory, for the check of races.
pub(crate) fn record_accesses(module: &mut Module) {
    apply("record_accesses", module, instrument::record_accesses::record_accesses);
}

/// Records the elements that stores write, and checks those that loads read.
pub(crate) fn record_writes(module: &mut Module) {
    apply("record_writes", module, instrument::record_writes::record_writes);
}

/// Runs the passes of a launch with checks on a trace. For tests that record passes.
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub fn instrument_accesses(module: &mut Module) {
    assume_to_assert(module);
    record_accesses(module);
    record_writes(module);
}

/// Removes the layouts that the user has requested.
pub(crate) fn drop_layouts(module: &Module) -> Option<Module> {
    rewrite("drop_layouts", module, legalize::drop_layouts::drop_layouts)
}

/// Expands gathers of tiles.
pub(crate) fn expand_gather(module: &Module) -> Option<Module> {
    rewrite("expand_gather", module, legalize::expand_gather::expand_gather)
}

/// Expands MMAs with scaled operands; `only_of_two_types`: those whose operands have two types.
pub(crate) fn expand_scaled_mma(module: &Module, only_of_two_types: bool) -> Option<Module> {
    rewrite("expand_scaled_mma", module, |module| {
        legalize::expand_scaled_mma::expand_scaled_mma(module, only_of_two_types)
    })
}

/// Replaces inline PTX by its semantics.
pub(crate) fn expand_inline_ptx(module: &Module) -> Option<Module> {
    rewrite("expand_inline_ptx", module, legalize::inline_ptx::expand_inline_ptx)
}

/// Removes the semantics of inline PTX.
pub(crate) fn strip_inline_ptx_semantics(module: &Module) -> Option<Module> {
    rewrite("strip_inline_ptx_semantics", module, legalize::inline_ptx::strip_inline_ptx_semantics)
}

/// Expands reductions whose functions are not commutative.
///
/// # Errors
/// The reductions that cannot be expanded.
pub(crate) fn expand_ordered_reductions(module: &Module) -> Result<Option<Module>, Vec<Diagnostic>> {
    try_rewrite("expand_ordered_reductions", module, legalize::ordered_reduction::expand_ordered_reductions)
}

/// Splits tiles whose extents are not powers of two.
///
/// # Errors
/// The ops that cannot be split.
pub fn split_extents(module: &Module, in_strips: bool) -> Result<Option<Module>, Vec<Diagnostic>> {
    try_rewrite("split_extents", module, |module| extents::run(module, in_strips))
}

/// Replaces sequences of ops by reversals of bits.
pub(crate) fn expand_bit_reverse(module: &Module) -> Option<Module> {
    rewrite("expand_bit_reverse", module, transform::bit_reverse::expand_bit_reverse)
}

/// Hoists factors out of reductions.
pub(crate) fn hoist_factor(module: &Module, factors: Factors) -> Option<Module> {
    rewrite("hoist_factor", module, |module| transform::hoist_factor::hoist_factor(module, factors))
}

/// Returns the persistent form of a kernel.
pub(crate) fn persistent(module: &Module) -> Option<Module> {
    rewrite("persistent", module, transform::persistent::persistent)
}

/// Moves MMAs that depend on other MMAs into the next iteration. Returns true if one moves.
pub fn pipeline_dependent_mma(module: &mut Module, wanted: &dyn Fn(OpId) -> bool) -> bool {
    apply("pipeline_dependent_mma", module, |module| {
        transform::pipeline_dependent_mma::pipeline_dependent_mma(module, wanted)
    })
}

/// Sets the fast modes of float ops.
pub(crate) fn relax_floats(module: &Module) -> Option<Module> {
    rewrite("relax_floats", module, transform::relax_floats::relax_floats)
}

/// Replaces selects of at least `min_elements` elements by branches.
pub(crate) fn select_to_branch(module: &Module, min_elements: i64) -> Option<Module> {
    rewrite("select_to_branch", module, |module| transform::select_to_branch::select_to_branch(module, min_elements))
}

/// Sinks loads below loops that do not use them.
pub(crate) fn sink_loads(module: &Module) -> Option<Module> {
    rewrite("sink_loads", module, transform::sink_loads::sink_loads)
}

/// Carries sums over an axis as partial sums of threads. Returns true if a reduction changes.
pub(crate) fn thread_local_reduction(
    module: &mut Module,
    shared: &dyn Fn(OpId) -> Option<ReductionDistribution>,
) -> bool {
    apply("thread_local_reduction", module, |module| {
        transform::thread_local_reduction::thread_local_reduction(module, shared)
    })
}
