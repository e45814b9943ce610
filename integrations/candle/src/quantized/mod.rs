//! Products with quantised weights.

mod matmul;
mod weight;

pub use cutlet_kernels::quantized::Bits;
pub use matmul::QuantizedMatmul;
pub use weight::QuantizedWeight;
