//! Instrumentation: assumptions become asserts, accesses are recorded, and preconditions of a
//! launch leave the kernel.

mod access_log;
pub(super) mod assume_to_assert;
mod elements;
pub(super) mod preconditions;
pub(super) mod record_accesses;
pub(super) mod record_writes;
