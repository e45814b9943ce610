//! Analyses of a module: ranges of integers, signs of floats, groups of MMAs, and work for the roofline.
//!
//! Input: a module. Output: facts about its values. An analysis changes nothing and names no transformation.

pub(super) mod float_sign;
pub(super) mod int_range;
pub(super) mod mma_groups;
pub(super) mod roofline;
