//! Transformations that simplify or speed up a module and keep its results.
//!
//! Input: a module, and the results of `analysis`. Output: the module, changed.

pub(super) mod bit_reverse;
pub(super) mod canonicalize;
pub(super) mod cse;
pub(super) mod dce;
pub(super) mod fold_int_range;
pub(super) mod hoist_factor;
pub(super) mod licm;
pub(super) mod op_writer;
pub(super) mod persistent;
pub(super) mod pipeline_dependent_mma;
pub(super) mod relax_floats;
pub(super) mod relax_memory_order;
pub(super) mod select_to_branch;
pub(super) mod sink_loads;
pub(super) mod thread_local_reduction;
