//! Measurement: benchmarks, interleaved comparisons, and ranges for profilers.

pub(super) mod bench;
pub(super) mod interleaved;
pub(super) mod nvtx;
pub(super) mod state_copies;
