//! Verifier of schedules: result type and pipeline events.
//!
//! * `async_order` — no read before the wait, no release before the last read
//! * `barriers` — every required barrier is there and none is redundant
//! * `cluster_multicast` — both CTAs of a cluster need each multicast tile, in lockstep
//! * `data_partition` — every consumer group computes its own rows alone
//! * `double_buffers` — no slot is overwritten while MMAs in flight read it
//! * `operand_rows` — positions of the elements of a loaded tile in the operand of an MMA
//! * `order_barriers` — every ordered section ends in its sequence and has the steps that it orders
//! * `pingpong` — equal stage counts, no carried values, no side effects elsewhere
//! * `privatized` — verifies privatized atomics
//! * `program` — every op once, operands defined, pipelines balanced
//! * `stage_layout` — verifies the layout of pipeline stages against the MMA descriptors
//! * `steps` — strip-mined sequences, copies, loop-carried MMAs, unrolling; every MMA has its
//!   planned instruction and split
//! * `tma_store` — boxes cover the tile once, buffers are disjoint
//! * `try_wait` — each tests the stage that its channel acquires next

pub mod async_order;
pub mod barriers;
pub mod cluster_multicast;
pub mod data_partition;
pub mod double_buffers;
pub mod operand_rows;
pub mod order_barriers;
pub mod pingpong;
pub mod privatized;
pub mod program;
pub mod stage_layout;
pub mod steps;
pub mod tma_store;
pub mod try_wait;

use crate::ir::OpId;

/// Result of a verifier: the error is a sentence about the first fault.
pub type VerifyResult = Result<(), String>;

/// An event of a partition in the use of the pipelines, in program order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineEvent {
    /// Use of the next stage of a pipeline, for a channel.
    Stage(usize, u32),
    Enter(OpId),
    Else,
    Leave,
    /// End of the kernel, early or not.
    Return,
}
