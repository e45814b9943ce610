//! Tests of `cutlet_kernels::losses`.

mod cross_entropy;
mod grpo;
mod linear;
mod others;
