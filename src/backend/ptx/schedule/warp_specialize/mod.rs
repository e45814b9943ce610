//! Warp specialization: division of a kernel into a producer and its consumers.
//!
//! Input: results of `analysis`. Output: pipelines, channels and TMA loads of `ir/pipelines`.
//!
//! * `aux_loads` — small tiles loaded into the stage of an MMA operand
//! * `cluster_multicast` — loads that both CTAs of a cluster can share
//! * `data_partition` — consumer groups that each compute a share of the rows
//! * `epilogue_smem_reuse` — a TMA store stages its tile in a free pipeline stage
//! * `joined_operands` — the offsets of the loads that `cat` concatenates to an operand
//! * `operand_axes` — the view dimensions of an operand's axes, and the boxes of its tile
//! * `pingpong` — two consumer groups alternate the iterations of a persistent loop
//! * `pipeline_assignment` — the channels that share a pipeline
//! * `plan` — the loads that the producer issues, and their pipelines
//! * `prefetch` — tiles that the producer prefetches to L2 for loads of the consumers
//! * `producer_slice` — the control flow and scalars that the producer needs for its loads
//! * `stage_count` — the number of stages of each pipeline

pub mod aux_loads;
pub mod cluster_multicast;
pub mod data_partition;
pub mod epilogue_smem_reuse;
pub mod joined_operands;
pub mod operand_axes;
pub mod pingpong;
pub mod pipeline_assignment;
pub mod plan;
pub mod prefetch;
pub mod producer_slice;
pub mod stage_count;
