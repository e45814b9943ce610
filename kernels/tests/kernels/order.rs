//! Tests of `cutlet_kernels::order`.

mod radix_sort;
