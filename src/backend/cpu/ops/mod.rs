//! Ops on words of elements: arithmetic, conversions, matrix multiplication, atomics and printing.
//!
//! Input: tiles as lists of words. Output: tiles. An op knows neither the program nor the block
//! that executes it.

pub(super) mod atomic;
pub(super) mod cast;
pub(super) mod directed_rounding;
pub(super) mod float;
pub(super) mod int;
pub(super) mod mma;
pub(super) mod printf;
pub(super) mod shape;
