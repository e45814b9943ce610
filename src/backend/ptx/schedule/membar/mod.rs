//! Barrier insertion: shared-memory buffers, layout conversions and barriers of every step.
//!
//! Input: the steps of all partitions. Output: the sub-steps of `ir/sub_step`. Runs last.
//!
//! * `global_hazards` — global-memory hazards since the last barrier
//! * `printf_steps` — message pieces and their scratch
//! * `reduction_steps` — the order in which registers, lanes and warps are combined
//! * `requirements` — operand layouts and shared-memory scratch
//! * `scratch` — shared-memory scratch of reductions, scans, gathers and histograms
//! * `state` — shared-memory buffers, available conversions and MMAs in flight
//! * `walk` — walks each partition and records the sub-steps of every step

pub mod global_hazards;
pub mod printf_steps;
pub mod reduction_steps;
pub mod requirements;
pub mod scratch;
pub mod state;
pub mod walk;
