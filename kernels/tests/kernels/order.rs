//! Tests of `cutlet_kernels::order`.

mod prefix;
mod radix_sort;
mod segmented_sort;
mod selection;
