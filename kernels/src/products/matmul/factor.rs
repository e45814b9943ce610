//! Element types of operands, and their products.

use cutlet as ct;
use cutlet::element::{Element, Float, bf16, f8e4m3fn, f8e5m2, f16, tf32};
use cutlet::prelude::*;

use super::precision::Precision;
use super::workspace::Sums;

/// Element types of the operands of products: f16, bf16, f32, f64, e4m3, e5m2, i8.
pub trait Factor: Element {
    /// The type of the accumulators: f32, f64, or i32 for i8.
    type Sum: Sums;
    /// The type that epilogues compute with: f32, or f64 for f64.
    type Value: Float;

    /// Adds the product of two tiles to the sums.
    fn multiply(a: Tile<Self, 2>, b: Tile<Self, 2>, sums: Tile<Self::Sum, 2>, how: Precision) -> Tile<Self::Sum, 2>;
}

macro_rules! factors {
    ($($name:ident $sum:ident $value:ident |$a:ident, $b:ident, $sums:ident| $full:expr, $fast:expr;)+) => {$(
        impl Factor for $name {
            type Sum = $sum;
            type Value = $value;

            fn multiply($a: Tile<$name, 2>, $b: Tile<$name, 2>, $sums: Tile<$sum, 2>, how: Precision) -> Tile<$sum, 2> {
                match how {
                    Precision::Full => $full,
                    Precision::Fast => $fast,
                }
            }
        }
    )+};
}
factors! {
    f16 f32 f32 |a, b, sums| ct::mma(a, b, sums), ct::mma(a, b, sums);
    bf16 f32 f32 |a, b, sums| ct::mma(a, b, sums), ct::mma(a, b, sums);
    f32 f32 f32 |a, b, sums| ct::mma(a, b, sums), ct::mma(a.cast::<tf32>(), b.cast::<tf32>(), sums);
    f64 f64 f64 |a, b, sums| ct::mma(a, b, sums), ct::mma(a, b, sums);
    f8e4m3fn f32 f32 |a, b, sums| ct::mma(a, b, sums), ct::mma_fast_acc(a, b, sums);
    f8e5m2 f32 f32 |a, b, sums| ct::mma(a, b, sums), ct::mma_fast_acc(a, b, sums);
    i8 i32 f32 |a, b, sums| ct::mma(a, b, sums), ct::mma(a, b, sums);
}
