//! Verifier of schedules: result type and pipeline events.
//!
//! * `async_order` — no read before the wait, no release before the last read
//! * `barriers` — every required barrier is there and none is redundant
//! * `data_partition` — every consumer group computes its own rows alone
//! * `mma_partition` — every MMA has its planned instruction and split
//! * `order_barriers` — every ordered section ends in its body and has the steps that it orders
//! * `pingpong` — equal stage counts, no carried values, no side effects elsewhere
//! * `privatized` — verifies privatized atomics
//! * `program` — every op once, operands defined, pipelines balanced
//! * `stage_layout` — verifies the layout of pipeline stages against the MMA descriptors
//! * `steps` — strip-mined sequences, copies, loop-carried MMAs, unrolling
//! * `tma_store` — boxes cover the tile once, buffers are disjoint
//! * `try_wait` — each asks for the stage that its channel acquires next

pub mod async_order;
pub mod barriers;
pub mod data_partition;
pub mod mma_partition;
pub mod order_barriers;
pub mod pingpong;
pub mod privatized;
pub mod program;
pub mod stage_layout;
pub mod steps;
pub mod tma_store;
pub mod try_wait;

use crate::ir::OpId;

/// What is wrong with a schedule: a sentence.
pub type VerifyResult = Result<(), String>;

/// A place on the way of a partition through the pipelines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineEvent {
    /// The next stage of a pipeline, for a channel.
    Stage(usize, u32),
    Enter(OpId),
    Else,
    Leave,
}
