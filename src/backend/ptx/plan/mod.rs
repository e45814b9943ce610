//! Plan of a kernel: the decisions that precede the schedule.
//!
//! Input: an optimized module whose extents are powers of two, and the options of the user. Output:
//! [`kernel_plan::Plan`], i.e. the module to lower, its layouts, and complete options. Order:
//! 1. `plan_search`: compares the default plan with alternatives by the cost model;
//! 2. `num_warps`: the number of warps of a CTA, from the sizes of its tiles
//!    (`extract_groups`);
//! 3. `rematerialize`: repeats loads of tiles that would fill the registers;
//! 4. layout inference;
//! 5. `mma_loops`: rewrites loops with asynchronous MMAs; layouts are then inferred again;
//! 6. `planned_kernel`: the schedule, and the offsets of its buffers in shared memory. They are the
//!    input of `lower`.
//!
//! The folder does not know instructions (`isa`). `plan_search` alone knows `cost`: it costs
//! schedules.

pub mod extract_groups;
pub mod kernel_plan;
pub mod mma_loops;
pub mod num_warps;
pub mod plan_search;
pub mod planned_kernel;
mod register_operands;
pub mod rematerialize;
