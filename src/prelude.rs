//! Types and traits of most kernels: `use cutlet::prelude::*;`, in addition to `use cutlet as ct;`.

#[doc(no_inline)]
pub use crate::element::{
    AnyFloat, Bits, ByteSized, Comparable, Element, Float, Int, Number, Signed, bf16, f4e2m1fn, f8e4m3fn, f8e5m2,
    f8e5m3fnu, f8e8m0fnu, f16, tf32,
};
pub use crate::ir::{Padding, Rounding};
pub use crate::kernel::Constant;
pub use crate::launch::ArrayExpr;
pub use crate::ops::{Operand, ScalarRange};
pub use crate::tile::{Array, ArrayMut, Scalar, Tile, TileLike};
