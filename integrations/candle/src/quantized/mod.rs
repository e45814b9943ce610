//! Products with quantised weights.

mod matmul;
mod weight;

pub use matmul::QuantizedMatmul;
pub use weight::{Bits, QuantizedWeight};
