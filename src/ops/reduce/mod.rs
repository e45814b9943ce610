//! Reductions, scans, arguments of extremes, and sorting.

pub(super) mod argmax;
pub(super) mod combiner;
pub(super) mod reduce;
pub(super) mod scan;
pub(super) mod sort;
pub(super) mod sorting_network;
