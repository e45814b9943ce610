//! Guarantees of unsafe code that users cannot claim: an element that is wider than its type.

use cutlet::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Wide([u32; 8]);

// SAFETY: plain numbers.
unsafe impl bytemuck::Zeroable for Wide {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Wide {}

impl Element for Wide {
    const DTYPE: cutlet::dtype::DType = cutlet::dtype::DType::F32;
    const SIGNED: bool = false;
    const NAME: &'static str = "wide";
    fn to_f64(self) -> f64 {
        0.0
    }
    fn from_f64(_: f64) -> Self {
        Wide([0; 8])
    }
    fn to_bits(self) -> u64 {
        7
    }
    fn from_bits(_: u64) -> Self {
        Wide([0; 8])
    }
}

fn main() {}
