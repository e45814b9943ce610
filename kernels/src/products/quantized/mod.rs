//! Products with quantised weights.

mod bits;
mod kernels;
mod matmul;

pub use bits::Bits;
pub use matmul::{Product, Tiles};
