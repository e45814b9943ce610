//! Plan of a kernel: the decisions that precede the schedule.
//!
//! Input: an optimized module and the options of the user. Output: the module to lower, its layouts, and options that
//! are complete. Order:
//! 1. `prepare`: expands ops that instructions do not exist for, partitions rows, splits extents into powers of two;
//! 2. `plan_search`: compares the default plan with alternatives by the cost model;
//! 3. `num_warps`: the number of warps of a tile block, from the sizes of its tiles (`extract_groups`);
//! 4. `rematerialize`: repeats loads of tiles that would fill the registers;
//! 5. `prepare`: layout inference, then the loops with asynchronous MMAs are rewritten.
//!
//! The folder does not know instructions (`isa`); of `lower` it knows only how to get a schedule to cost.

pub mod extract_groups;
pub mod num_warps;
pub mod plan_search;
pub mod prepare;
pub mod rematerialize;

pub use super::hardware::{WARP_GROUP_WARPS as GROUP_WARPS, WARP_SIZE as WARP};
pub use num_warps::{extent, fills_registers, products_behind};
