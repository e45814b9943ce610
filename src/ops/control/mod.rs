//! Control flow: loops, branches, early exits, the grid and its tile blocks.

pub(super) mod counted_loop;
pub(super) mod early_exit;
pub(super) mod grid;
pub(super) mod loop_range;
pub(super) mod loop_state;
pub(crate) mod loops;
pub(super) mod machine;
pub(super) mod programmatic_launch;
