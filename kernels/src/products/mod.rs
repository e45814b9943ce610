//! Matrix products.

pub mod gguf;
pub mod quantized;
