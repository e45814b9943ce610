//! The element types of the kernels.

use cutlet::element::{Float, MmaInput, bf16, f16};

/// f32, f16, bf16: computed with in f32.
pub trait Number: Float + MmaInput<Self, f32> {}
impl Number for f32 {}
impl Number for f16 {}
impl Number for bf16 {}
