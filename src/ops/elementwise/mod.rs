//! Elementwise ops: arithmetic, comparisons, conversions and mathematical functions.

pub(super) mod arithmetic;
pub(super) mod bit_permute;
pub(super) mod bits;
pub(super) mod compare;
pub(super) mod convert;
pub(super) mod fast_divisor;
pub(super) mod int_division;
pub(super) mod map;
pub(super) mod math;
pub(super) mod pack_bytes;
pub(super) mod powi;
pub(super) mod round;
pub(super) mod unchecked;
pub(super) mod wrapping;
