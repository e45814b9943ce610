//! Plan of a kernel: the decisions that precede the schedule.
//!
//! Input: an optimized module whose extents are powers of two, and the options of the user. Output:
//! [`kernel_plan::Plan`], i.e. the module to lower, its layouts, and complete options. Order:
//! 1. `plan_search`: compares the default plan with alternatives by the cost model;
//! 2. `spill_relief`: twice the warps where registers do not suffice;
//! 3. `num_warps`: the number of warps of a CTA, from the sizes of its tiles
//!    (`extract_groups`);
//! 4. `rematerialize`: repeats loads of tiles that would fill the registers;
//! 5. layout inference;
//! 6. `overlap_mmas`: rewrites loops with asynchronous MMAs; layouts are then inferred again.
//!
//! The folder does not know instructions (`isa`). `plan_search` and `spill_relief` alone know
//! `lower`: they compare schedules by their cost, and code by its registers.

pub mod extract_groups;
pub mod kernel_plan;
pub mod num_warps;
pub mod overlap_mmas;
pub mod plan_search;
mod register_operands;
pub mod rematerialize;
pub mod spill_relief;
