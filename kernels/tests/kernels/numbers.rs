//! Tests of `cutlet_kernels::numbers`.

mod fft;
