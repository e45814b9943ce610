//! Tests of `cutlet_kernels::norms`.
