//! Lowering: Tile IR ops on tiles become instructions of one thread.
//!
//! Input: a planned kernel, i.e. a verified module, the layouts of its values and the schedule.
//! Output: the PTX text, with what a launch needs ([`Compiled`](super::compiled::Compiled)).
//!
//! 1. `driver` starts and finishes the function, and `partitions` lowers each partition.
//! 2. `dispatch` calls one lowering function for each step; `control_flow`, `unroll` and
//!    `strip_mine` lower the steps with regions.
//! 3. `compute`, `async_ops` and `memory` lower ops by family.
//! 4. `state` materializes values in the layouts of their users and synchronizes threads.
//!
//! A tile is a list of operands, one for each register of its layout ([`Tile`]). Scalars (rank 0)
//! are computed by every thread. They are equal in all threads, so branches on them are uniform and
//! barriers inside loops are safe.
//!
//! The folder does not decide: layouts, stages, barriers and buffers are part of its input.
//! `code_size` rejects kernels that are too long for the assembler.

mod async_ops;
mod code_size;
mod compute;
mod control_flow;
mod dispatch;
mod driver;
mod loop_counter;
mod memory;
mod named_barriers;
mod partitions;
mod state;
mod strip_mine;
mod unroll;

pub use driver::{emit, lower};
pub use state::core::{Lowered, Lowering};
use state::values::Tile;
