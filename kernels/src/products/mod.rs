//! Matrix products.

pub mod epilogue;
pub mod gguf;
mod matmul;
pub mod packed;
pub mod prologue;
pub mod quantized;

pub use matmul::{Configuration, Factor, Matmul, Precision, Share, matmul};
