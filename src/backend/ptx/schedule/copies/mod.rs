//! Copies by `cp.async` that threads issue in an earlier iteration (multistage copies).
//!
//! * `copy_addresses`: the ops that compute the addresses of a copy.
//! * `thread_private`: the copies that a thread reads itself.

pub mod copy_addresses;
pub mod thread_private;
