//! Tests of the order of memory accesses.
