//! Caches of compiled kernels: in memory by specialisation ([`memory`]), on disk by content ([`disk`]).
//! A trace is part of a key where the type of a kernel does not say everything ([`trace`]).
//!
//! Know keys and values, not how a kernel is compiled or run.

pub(crate) mod disk;
pub(crate) mod memory;
pub(crate) mod trace;
