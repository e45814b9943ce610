//! Tests of `cutlet_kernels::moe`.

mod alignment;
mod layer;
mod router;
