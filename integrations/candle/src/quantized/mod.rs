//! Products with quantised weights.

mod bits;
mod kernels;
mod matmul;
mod weight;

pub use bits::Bits;
pub use matmul::QuantizedMatmul;
pub use weight::QuantizedWeight;
