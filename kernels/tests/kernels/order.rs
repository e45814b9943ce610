//! Tests of `cutlet_kernels::order`.
