//! Element types of the IR: width and class, without signedness.
//!
//! [`crate::element`] maps Rust types to element types. [`crate::float_codec`] has the conversions
//! of the small floats. This file is independent of the back ends.

use std::fmt;

/// An element type of Tile IR. Integers have no sign; ops define how they read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum DType {
    I1,
    I4,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    TF32,
    F64,
    F8E4M3FN,
    F8E5M2,
    F8E8M0FNU,
    F4E2M1FN,
    F8E5M3FNU,
}

impl DType {
    /// All element types.
    pub const ALL: [DType; 16] = {
        use DType::*;
        [I1, I4, I8, I16, I32, I64, F16, BF16, F32, TF32, F64, F8E4M3FN, F8E5M2, F8E8M0FNU, F4E2M1FN, F8E5M3FNU]
    };

    /// Returns the width of the value in bits (tf32: 19, bool: 1).
    pub const fn bits(self) -> u32 {
        use DType::*;
        match self {
            I1 => 1,
            I4 | F4E2M1FN => 4,
            I8 | F8E4M3FN | F8E5M2 | F8E8M0FNU | F8E5M3FNU => 8,
            I16 | F16 | BF16 => 16,
            TF32 => 19,
            I32 | F32 => 32,
            I64 | F64 => 64,
        }
    }

    /// Returns the bits of one element in memory (tf32: 32, bool: 8, 4-bit types: 4).
    pub const fn storage_bits(self) -> u32 {
        match self {
            DType::I1 => 8,
            DType::TF32 => 32,
            other => other.bits(),
        }
    }

    /// Returns the bytes of `count` contiguous elements in memory; `None` if the number exceeds
    /// `usize`.
    ///
    /// ```
    /// use cutlet::dtype::DType;
    /// assert_eq!(DType::I4.bytes_of(5), Some(3));
    /// assert_eq!(DType::F32.bytes_of(usize::MAX / 2), None);
    /// ```
    pub const fn bytes_of(self, count: usize) -> Option<usize> {
        match self.storage_bits() as usize {
            bits if bits < 8 => Some(count.div_ceil(8 / bits)),
            bits => count.checked_mul(bits / 8),
        }
    }

    /// Returns true for i1 to i64.
    pub const fn is_int(self) -> bool {
        matches!(self, DType::I1 | DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// Returns true for all floating-point types.
    pub const fn is_float(self) -> bool {
        !self.is_int()
    }

    /// Returns true for the types with arithmetic: f16, bf16, f32, f64.
    pub const fn is_base_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// Returns the name in Tile IR text.
    pub const fn name(self) -> &'static str {
        use DType::*;
        match self {
            I1 => "i1",
            I4 => "i4",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            TF32 => "tf32",
            F64 => "f64",
            F8E4M3FN => "f8E4M3FN",
            F8E5M2 => "f8E5M2",
            F8E8M0FNU => "f8E8M0FNU",
            F4E2M1FN => "f4E2M1FN",
            F8E5M3FNU => "fnv8E5M3FNU",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
