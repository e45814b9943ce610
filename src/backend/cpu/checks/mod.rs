//! Checks of the interpreter on request: bounds, overflow, poison and data races.
//!
//! Input: the accesses and values of the ops. Output: an error with the op's place. The checks use
//! the memory and the values of the interpreter, and never its dispatch.

pub(super) mod arithmetic;
pub(super) mod assume;
pub(super) mod options;
pub(super) mod outside;
pub(super) mod poison;
pub(super) mod poison_sources;
pub(super) mod race_detector;
