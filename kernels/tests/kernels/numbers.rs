//! Tests of `cutlet_kernels::numbers`.

mod e5m6;
mod fft;
mod hadamard;
mod quantize;
mod random;
