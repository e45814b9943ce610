//! Analyses of a module: integer ranges, signs of floats, MMA groups, uniformity within clusters,
//! determinism, stores without bounds checks, and work for the roofline.
//!
//! Input: a module. Output: properties of its values. An analysis neither changes the module nor
//! uses a transformation.

pub(super) mod cluster_exchanges;
pub(super) mod determinism;
pub(super) mod float_sign;
pub(super) mod int_range;
pub(super) mod mma_groups;
pub(super) mod roofline;
pub(super) mod unchecked_stores;
