//! Atomic ops on elements and tiles of arrays, and locks.

mod atomic_methods;
pub(super) mod atomic_reduce;
pub(super) mod atomic_rmw;
pub(super) mod spin_lock;
