//! The element types of the kernels.

use cutlet as ct;
use cutlet::element::{Float, MmaInput, bf16, f16};

/// f32, f16, bf16: computed with in f32.
pub trait Number: Float + MmaInput<Self, f32> {}
impl Number for f32 {}
impl Number for f16 {}
impl Number for bf16 {}

/// Runs a part of a kernel whose results have 16 bits with the fast functions of the hardware.
pub fn mode<T, X>(part: impl FnOnce() -> X) -> X {
    if size_of::<T>() == 2 { ct::with_mode(ct::FloatMode::fast(), part) } else { part() }
}
