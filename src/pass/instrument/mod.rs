//! Instrumentation: assumptions become asserts, and preconditions of a launch leave the kernel.

pub(super) mod assume_to_assert;
pub(super) mod preconditions;
pub(super) mod record_accesses;
