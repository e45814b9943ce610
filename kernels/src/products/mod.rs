//! Matrix products.

pub mod epilogue;
pub mod gguf;
mod matmul;
pub mod packed;
pub mod prologue;
pub mod quantized;
mod scaled;

pub use matmul::{Configuration, Factor, Matmul, Precision, Share, Workspace, matmul};
pub use scaled::Float8;
