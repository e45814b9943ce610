//! Interpreter loop: executes the ops of one tile block in order.
//!
//! Input: a prepared program and the memory of its arrays. Output: the memory after the block.
//! `machine` has the state of a tile block. `dispatch` calls the function of an op in `ops`, and
//! `block` executes the blocks of ops and the ops with regions. `stepper` executes single ops.
//! `cluster_exchange` has the tiles in transit between the blocks of a cluster.

pub(super) mod block;
pub(super) mod cluster_exchange;
pub(super) mod dispatch;
pub(super) mod last_use;
pub(super) mod loop_limit;
pub(super) mod machine;
pub(super) mod op_family;
pub(super) mod slot;
#[cfg(any(test, feature = "_suite"))]
pub(super) mod stepper;
pub(super) mod value;
