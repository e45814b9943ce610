//! Tests of `cutlet_kernels::numbers`.

mod fft;
mod hadamard;
mod quantize;
mod random;
