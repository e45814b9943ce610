//! Tests of `cutlet_kernels::linalg`.
