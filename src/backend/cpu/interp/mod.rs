//! Interpreter loop: executes the ops of one tile block in order.
//!
//! Input: a prepared program and the memory of its arrays. Output: the memory after the block.
//! `block` owns the state of a block, `stepper` the current op, and `dispatch` calls the function
//! of an op in `ops`.

pub(super) mod block;
pub(super) mod dispatch;
pub(super) mod last_use;
pub(super) mod loop_limit;
pub(super) mod op_family;
pub(super) mod slot;
#[cfg(any(test, feature = "_suite"))]
pub(super) mod stepper;
pub(super) mod value;
