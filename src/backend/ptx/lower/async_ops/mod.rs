//! Asynchronous copies and MMAs, and the synchronization of producer, consumers and clusters.
//!
//! * Input: steps of pipelines, channels and MMA groups.
//! * Output: `cp.async`, TMA loads and stores, mbarrier operations.
//! * Order: `tma_coords` is the base of `issue_multicast` and `tma_store`; `tma_pipeline` is the
//!   producer. `try_wait`, `consumer_release`, `mma_in_flight`, `aux_load` and `pingpong` are for
//!   consumers. `cp_async` is for kernels without a producer.
//! * The folder knows no op of `compute`, and no control flow.

pub mod aux_load;
pub mod cluster_exchange;
pub mod consumer_release;
pub mod cp_async;
pub mod data_partition;
pub mod issue_multicast;
pub mod mma_in_flight;
pub mod pingpong;
pub mod tma_coords;
pub mod tma_pipeline;
pub mod tma_store;
pub mod try_wait;
