//! Tiles from constants, ranges and values of the host.

pub(super) mod construct;
pub(super) mod from_host;
