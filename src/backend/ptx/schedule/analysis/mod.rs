//! Analyses of one kernel that the planning passes read.
//!
//! Input: module, layouts and options of the kernel. Nothing here changes a schedule.
//!
//! * `cta_uniformity` — the values that are equal in both CTAs of a cluster
//! * `deferred_values` — conditions, paddings and scalars computed at their use
//! * `early_exit` — kernels that can leave a body before its end
//! * `hints` — hints of ops for the scheduler
//! * `kernel_info` — module, layouts, options, uses
//! * `memory_effects` — the elements of arrays that an op reads or writes
//! * `ragged_slices` — views of an array between two run-time numbers along one axis
//! * `register_budget` — warps and registers per partition, CTAs per SM
//! * `smem_budget` — shared-memory budget left for pipeline stages
//! * `step_uses` — the values a step reads and the accumulators it updates in place
//! * `tensor_maps` — the views that TMA can transfer, with their boxes
//! * `tile_adjacency` — tiles of one array that are adjacent or disjoint, by their starts

pub mod cta_uniformity;
pub mod deferred_values;
pub mod early_exit;
pub mod hints;
pub mod kernel_info;
pub mod memory_effects;
pub mod ragged_slices;
pub mod register_budget;
pub mod smem_budget;
pub mod step_uses;
pub mod tensor_maps;
pub mod tile_adjacency;
