//! Shared memory: the offsets of buffers, and the layout of TMA boxes in a buffer.
//!
//! Input: sizes and alignments of buffers; the layout and the shape of a tile. Output: offsets; the
//! words that each thread accesses. `allocation` and `tma_box` do not depend on each other.
//!
//! The folder does not depend on schedules or instructions.

pub mod allocation;
pub mod tma_box;
