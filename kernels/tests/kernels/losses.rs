//! Tests of `cutlet_kernels::losses`.
