//! Tests of `cutlet_kernels::recurrent`.
