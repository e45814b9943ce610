//! Measurement: benchmarks and interleaved comparisons.

pub(super) mod bench;
pub(super) mod interleaved;
pub(super) mod state_copies;
