//! Barrier insertion: shared-memory buffers, layout conversions and barriers of every step.
//!
//! Input: the steps of all partitions. Output: the sub-steps of `ir/sub_step`.
//!
//! * `fulfil` — conversions, buffers and barriers for the requirements of a step
//! * `global_hazards` — global-memory hazards since the last barrier
//! * `state` — shared-memory buffers, available conversions and MMAs in flight
//! * `walk` — walks each partition and records the sub-steps of every step

pub mod fulfil;
pub mod global_hazards;
pub mod state;
pub mod walk;
