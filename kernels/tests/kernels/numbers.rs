//! Tests of `cutlet_kernels::numbers`.

mod fft;
mod quantize;
mod random;
