//! Tests of `cutlet_kernels::products`.
