//! Memory of the interpreter: arrays of the host, views, and the accesses of tiles.
//!
//! Input: addresses, views and masks. Output: words of elements, or an error for an access outside
//! of its array.

pub(super) mod access;
pub(super) mod global;
pub(super) mod host_memory;
pub(super) mod provenance;
pub(super) mod tile_budget;
pub(super) mod view;
