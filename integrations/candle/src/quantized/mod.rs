//! Products with quantised weights.

mod kernels;
mod matmul;
mod weight;

pub use matmul::QuantizedMatmul;
pub use weight::{Bits, QuantizedWeight};
