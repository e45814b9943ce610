//! Tests of `cutlet_kernels::losses`.

mod cross_entropy;
<<<<<<< HEAD
mod grpo;
=======
mod linear;
mod others;
>>>>>>> main
