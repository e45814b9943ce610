//! Tests of `cutlet_kernels::numbers`.
