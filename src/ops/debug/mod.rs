//! Assumptions, asserts, printing, requirements of a launch, and inline PTX.

pub(super) mod assume;
pub(super) mod format;
pub(super) mod inline_ptx;
pub(super) mod print;
pub(super) mod require;
pub(super) mod rowwise;
