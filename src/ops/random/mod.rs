//! Random numbers: the Philox generator, distributions, and stochastic rounding.

pub(super) mod distributions;
pub(super) mod philox;
pub(super) mod stochastic_rounding;
