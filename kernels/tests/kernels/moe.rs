//! Tests of `cutlet_kernels::moe`.
