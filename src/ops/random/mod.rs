//! Random numbers: the Philox generator and distributions.

pub(super) mod distributions;
pub(super) mod philox;
