//! Shared memory: where buffers are placed, and how a TMA box is laid out in one.
//!
//! Input: sizes and alignments of buffers; the layout and the shape of a tile. Output: offsets; the
//! words that each thread accesses. `allocation` and `tma_box` do not depend on each other.
//!
//! The folder does not know schedules, nor instructions.

pub mod allocation;
pub mod tma_box;
