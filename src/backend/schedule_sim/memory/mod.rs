//! Memory of the simulated CTA: pipeline stages, staging buffers, copies in flight and barriers.
//!
//! Input: the accesses of the warps. Output: elements of tiles, or a fault of the schedule. Nothing
//! here knows the steps.

pub(super) mod async_copy;
pub(super) mod barrier_race;
pub(super) mod operand_view;
pub(super) mod shared_state;
pub(super) mod stage;
pub(super) mod tma_box;
pub(super) mod tma_pipeline;
