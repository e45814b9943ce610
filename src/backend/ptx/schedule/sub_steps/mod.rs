//! Sub-steps of every step: layout conversions, shared-memory buffers and barriers.
//!
//! Input: the steps of all partitions. Output: the sub-steps of `ir/sub_step`.
//!
//! * `global_hazards` — global-memory hazards since the last barrier
//! * `state` — the layouts of values, accesses to memory and MMAs in flight at a step
//! * `membar` — barriers, by hazard analysis
//! * `layout_conversion` — conversions of values to the layouts that a step needs
//! * `fulfil` — conversions, buffers and barriers for the requirements of a step
//! * `hoisted_operands` — operands of MMAs in buffers that live through a loop
//! * `double_buffers` — two slots for the operands that threads write in a loop
//! * `walk` — the walk through each partition

pub mod double_buffers;
pub mod fulfil;
pub mod global_hazards;
pub mod hoisted_operands;
pub mod layout_conversion;
pub mod membar;
pub mod state;
pub mod walk;
