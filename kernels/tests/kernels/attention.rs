//! Tests of `cutlet_kernels::attention`.
