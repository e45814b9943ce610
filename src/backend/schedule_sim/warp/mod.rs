//! Warps of the simulated CTA: execution of the steps of a schedule by one group of warps.
//!
//! Input: a partition of the schedule, and the memory of the CTA. Output: the next state of the
//! group, or a fault.

pub(super) mod control;
pub(super) mod fork;
pub(super) mod mma;
pub(super) mod steps;
pub(super) mod strip_mine;
pub(super) mod warp_groups;
pub(super) mod warp_state;
