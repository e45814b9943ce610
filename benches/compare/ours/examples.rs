//! The examples whose kernels are compared, as they are.

#![allow(dead_code, reason = "an example is a program; only its kernels are used here")]

#[path = "../../../examples/argmax.rs"]
pub mod argmax;
#[path = "../../../examples/attention.rs"]
pub mod attention;
#[path = "../../../examples/batched_matmul.rs"]
pub mod batched_matmul;
#[path = "../../../examples/dropout.rs"]
pub mod dropout;
#[path = "../../../examples/embedding.rs"]
pub mod embedding;
#[path = "../../../examples/fft.rs"]
pub mod fft;
#[path = "../../../examples/histogram.rs"]
pub mod histogram;
#[path = "../../../examples/layernorm.rs"]
pub mod layernorm;
#[path = "../../../examples/layernorm_backward.rs"]
pub mod layernorm_backward;
#[path = "../../../examples/matmul.rs"]
pub mod matmul;
#[path = "../../../examples/prefix_sum.rs"]
pub mod prefix_sum;
#[path = "../../../examples/quantized_matmul.rs"]
pub mod quantized_matmul;
#[path = "../../../examples/saxpy.rs"]
pub mod saxpy;
#[path = "../../../examples/softmax.rs"]
pub mod softmax;
#[path = "../../../examples/stencil.rs"]
pub mod stencil;
#[path = "../../../examples/transpose.rs"]
pub mod transpose;
#[path = "../../../examples/vadd.rs"]
pub mod vadd;
#[path = "../../../examples/vocabulary.rs"]
pub mod vocabulary;
#[path = "../../../examples/welford.rs"]
pub mod welford;
