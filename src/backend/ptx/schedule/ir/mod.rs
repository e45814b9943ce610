//! Schedule IR: the data that planning passes write and lowering reads.
//!
//! Holds types and their text form. No decision is made here.
//!
//! * `cp_async` — multistage `cp.async` copies of a loop
//! * `header` — kernel, warps, pipelines and the user's lines of loads, MMAs and stores
//! * `load_path` — how the tile of each load reaches the ops that read it
//! * `pipelines` — pipelines, channels and TMA loads of a warp-specialized kernel, as data
//! * `print` — prints a schedule as text
//! * `privatized_array` — a privatized array in shared memory, as data
//! * `program` — partitions, sequences and steps
//! * `rejected_loads` — the loads that no producer issues, with the reasons
//! * `sub_step` — layout conversions, shared-memory accesses and barriers of one step
//! * `tma_store` — staging buffers and how a tile is split
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
