//! Schedule IR: the data that planning passes write and lowering reads.
//!
//! The module contains types and their text form, and makes no decisions.
//!
//! * `cp_async` — multistage `cp.async` copies of a loop
//! * `header` — kernel, warps, pipelines and the user's lines of loads, MMAs and stores
//! * `load_path` — the transfer of each loaded tile to the ops that read it
//! * `pipelines` — pipelines, channels and TMA loads of a warp-specialized kernel, as data
//! * `print` — prints a schedule as text
//! * `privatized_array` — a privatized array in shared memory, as data
//! * `program` — partitions, sequences and steps
//! * `rejected_loads` — the loads that the producer does not issue, with the reasons
//! * `sub_step` — layout conversions, shared-memory accesses and barriers of one step
//! * `tma_store` — staging buffers and the division of a tile
//! * `walk` — the traversal of a partition that data-flow analyses share

pub mod cp_async;
pub mod header;
pub mod load_path;
pub mod pipelines;
pub mod print;
pub mod privatized_array;
pub mod program;
pub mod rejected_loads;
pub mod sub_step;
pub mod tma_store;
pub mod walk;
