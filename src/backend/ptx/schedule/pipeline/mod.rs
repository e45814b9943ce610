//! Software pipelining: copies, MMAs and waits of several loop iterations in flight.
//!
//! Input: results of `analysis` and the plan of `warp_specialize`. Output: steps and fields of
//! `ir/program`.
//!
//! * `cp_async` — multistage `cp.async` copies for loops without a producer
//! * `exp_order` — two consumer groups evaluate `exp2` one after another
//! * `hoist_conversions` — hoists layout conversions of loop invariants
//! * `hoist_operands` — hoists operands of MMAs that threads write to shared memory
//! * `load_remarks` — the loads of loops that are not asynchronous, with the reasons
//! * `loop_remarks` — loop hints that were not satisfied, and loops without a producer
//! * `mma_carry` — MMAs in flight across a back edge or a side-effect-free branch
//! * `mma_groups` — MMAs issued together under one `commit_group`
//! * `mma_order` — consumer groups issue their MMAs one after another
//! * `mma_overlap` — moves part of the work on one MMA before the wait for the next
//! * `mma_partition` — the instruction of each MMA, and the rows and columns per warp group
//! * `mma_waits` — inserts MMA waits and pipeline waits
//! * `try_wait` — inserts `consumer_try_wait` for the next stage of a loop
//! * `unroll` — unroll factors of `for` loops

pub mod cp_async;
pub mod exp_order;
pub mod hoist_conversions;
pub mod hoist_operands;
pub mod load_remarks;
pub mod loop_remarks;
pub mod mma_carry;
pub mod mma_groups;
pub mod mma_order;
pub mod mma_overlap;
pub mod mma_partition;
pub mod mma_waits;
pub mod try_wait;
pub mod unroll;
