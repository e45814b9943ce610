//! Legalization: rewrites ops that a back end lacks as ops that it has.
//!
//! Input: a module. Output: a module with the same results, without these ops.

pub(super) mod drop_layouts;
pub(super) mod expand_gather;
pub(super) mod expand_scaled_mma;
pub(super) mod inline_ptx;
pub(super) mod ordered_reduction;
