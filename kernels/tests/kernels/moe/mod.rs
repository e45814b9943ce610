//! Tests of `cutlet_kernels::moe`.

mod activation;
mod alignment;
mod layer;
mod router;
