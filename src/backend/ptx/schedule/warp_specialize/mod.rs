//! Warp specialization: division of a kernel into a producer and its consumers.
//!
//! Input: facts of `analysis`. Output: pipelines, channels and TMA loads of `ir/pipelines`.
//!
//! * `aux_loads` — small tiles loaded into the stage of an MMA operand
//! * `cluster_multicast` — loads that both CTAs of a cluster can share
//! * `data_partition` — consumer groups that each compute a share of the rows
//! * `epilogue_smem_reuse` — a TMA store stages its tile in a free pipeline stage
//! * `pingpong` — two consumer groups alternate the iterations of a persistent loop
//! * `pipeline_assignment` — which channels share a pipeline
//! * `plan` — which loads the producer issues, into which pipelines
//! * `producer_slice` — the control flow and scalars the producer needs for its loads
//! * `stage_count` — how many stages each pipeline gets

pub mod aux_loads;
pub mod cluster_multicast;
pub mod data_partition;
pub mod epilogue_smem_reuse;
pub mod pingpong;
pub mod pipeline_assignment;
pub mod plan;
pub mod producer_slice;
pub mod stage_count;
