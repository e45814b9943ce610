//! Tests of `cutlet_kernels::images`.
