//! Element types on the host: their Rust types, and the operations of each class.
//!
//! [`Element`] is the table of types. The class traits ([`Number`], [`Float`], [`Int`], …) define
//! the operations of a tile of such a type, so that a wrong element type is a compile error.
//! [`crate::float_codec`] has the exact conversions of the small floats. This file is independent
//! of tiles and ops.

use std::fmt::{self, Debug};

pub use half::{bf16, f16};

use crate::dtype::DType;
use crate::ir::Rounding;
use crate::sealed::Sealed;
use crate::types::float_codec;

use self::bytes::ElementBytes;

mod bytes {
    use crate::sealed::Sealed;

    /// Memory of an element: arrays are read and written as these types, which have the size of
    /// their elements.
    ///
    /// # Safety
    /// A value has no padding. `Pattern` has the size and the alignment of `Self`, and its bytes
    /// are a value of `Self` if `is_value` returns true.
    pub unsafe trait ElementBytes: Sealed + Sized {
        /// Any bytes of the size of one element.
        type Pattern: bytemuck::Pod;

        /// Returns true if these bytes are a value.
        fn is_value(_: &Self::Pattern) -> bool {
            true
        }
    }
}

/// A type of elements of tiles and arrays.
///
/// One host value has one element, also if memory packs several into a byte (`f4e2m1fn`) or widens
/// them.
///
/// This trait is sealed: unsafe code relies on its constants.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn doubled<T: Element>(x: Tile<T, 1>) -> Tile<T, 1> {
///     ct::cat([x, x], 0) // whatever the elements are
/// }
/// ct::assert!(doubled(ct::astile([true, false])).eq(ct::astile([true, false, true, false])));
/// # });
/// ```
pub trait Element: ElementBytes + Copy + Debug + PartialEq + Send + Sync + 'static {
    /// Element type of the IR. Integers of both signs share one.
    const DTYPE: DType;
    /// True for integer types with a sign, false for floats and bool.
    const SIGNED: bool;
    /// Name in messages: `u32`, `bf16`, `f8e4m3fn`.
    const NAME: &'static str;

    /// Returns the value as f64: exact, except for 64-bit integers beyond 2^53. Bool is 0 or 1.
    fn to_f64(self) -> f64;

    /// Returns the nearest value, ties to even. Integers truncate toward zero and saturate; NaN
    /// becomes 0. `f8e8m0fnu` rounds toward zero. Bool is `value != 0`.
    fn from_f64(value: f64) -> Self;

    /// Returns the bit pattern in the representation of the IR (see [`crate::ir::ConstData`]).
    fn to_bits(self) -> u64;

    /// Returns the value with this bit pattern in the low bits; the inverse of
    /// [`Element::to_bits`].
    fn from_bits(bits: u64) -> Self;
}

/// Types with arithmetic: the integers (not bool) and the [`Float`] types.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn twice<T: Number>(x: Tile<T, 1>) -> Tile<T, 1> {
///     x + x
/// }
/// ct::assert!(twice(ct::astile([1, 2])).eq(ct::astile([2, 4])) & twice(ct::astile([0.5f32, 1.0])).eq(ct::astile([1.0, 2.0])));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "there is no arithmetic on `{Self}`",
    note = "arithmetic works on f16, bf16, f32, f64 and the integers; `.cast::<f32>()` first"
)]
pub trait Number: Comparable {}

/// Floats with arithmetic and mathematical functions: f16, bf16, f32, f64.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn norm<T: Float>(x: Tile<T, 1>) -> Tile<T, 1> {
///     (x * x).sum(0).sqrt()
/// }
/// ct::assert!(norm(ct::astile([3.0f64, 4.0])).eq(5.0));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "this operation needs a float tile, and `{Self}` is not f16, bf16, f32 or f64",
    note = "convert first: `.cast::<f32>()`; \
            see docs/common_errors.md"
)]
pub trait Float: Signed + AnyFloat {}

/// Integers, not bool.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn low_bit<T: Int>(x: Tile<T, 1>) -> Tile<T, 1> {
///     x & (x ^ (x - T::from_f64(1.0)))
/// }
/// ct::assert!(low_bit(ct::astile([12u8, 7])).eq(ct::astile([4, 1])));
/// # });
/// ```
#[diagnostic::on_unimplemented(message = "this operation needs an integer tile, and `{Self}` is not an integer")]
pub trait Int: Number + Bits {}

/// Types with a sign: signed integers and [`Float`] types.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn opposite<T: Signed>(x: Tile<T, 1>) -> Tile<T, 1> {
///     -x
/// }
/// ct::assert!(opposite(ct::astile([1i8, -2])).eq(ct::astile([-1, 2])));
/// # });
/// ```
#[diagnostic::on_unimplemented(message = "`{Self}` has no negative values")]
pub trait Signed: Number {}

/// Types with bitwise operations: the integers and bool.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn differ<T: Bits>(x: Tile<T, 1>, y: Tile<T, 1>) -> Tile<T, 1> {
///     x ^ y
/// }
/// ct::assert!(differ(ct::astile([true, false]), ct::astile([true, true])).eq(ct::astile([false, true])));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "bitwise operations need integers or bool, not `{Self}`",
    note = "`.bitcast::<u32>()` reads the bits of a float as an integer"
)]
pub trait Bits: Comparable {}

/// Types whose elements can be compared: [`Number`] types and bool.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn same<T: Comparable>(x: Tile<T, 1>, y: Tile<T, 1>) -> Scalar<bool> {
///     x.eq(y).all(0).item()
/// }
/// ct::assert!(same(ct::astile([1, 2]), ct::arange_from(2, 1, 1)));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` tiles cannot be compared",
    note = "comparisons work on f16, bf16, f32, f64, integers and bool; `.cast::<f32>()` first"
)]
pub trait Comparable: ByteSized {}

/// All floating-point types, including those without arithmetic (tf32 and the 8- and 4-bit floats).
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn rounded<T: AnyFloat>(x: Tile<f32, 1>) -> Tile<f32, 1> {
///     x.cast_with::<T>(Rounding::NearestEven).cast::<f32>()
/// }
/// ct::assert!(rounded::<f8e4m3fn>(ct::astile([1.01, 448.0])).eq(ct::astile([1.0, 448.0])));
/// # });
/// ```
#[diagnostic::on_unimplemented(message = "`{Self}` is not a floating-point type")]
pub trait AnyFloat: Element {}

/// Element types whose size is a number of whole bytes: all but the packed 4-bit float.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn first<T: ByteSized>(x: Tile<T, 1>) -> Scalar<T> {
///     x.get(0)
/// }
/// ct::assert!(first(ct::astile([7u16, 9])).eq(7));
/// # });
/// ```
#[diagnostic::on_unimplemented(message = "a single `{Self}` cannot be handled: four-bit elements come in pairs")]
pub trait ByteSized: Element {}

/// A left operand of `mma`, for a type of the right operand and of the accumulator.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn square<T: ct::element::MmaInput<T, f32>>(a: Tile<T, 2>) -> Tile<f32, 2> {
///     ct::mma(a, a, ct::zeros(a.shape()))
/// }
/// ct::assert!(square(ct::full([16, 16], f16::ONE)).eq(16.0));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "there is no matrix multiply of `{Self}` with `{Rhs}` into `{Acc}`",
    note = "f16 -> f16 or f32, bf16 -> f32, tf32 -> f32, f32 -> f32, f64 -> f64, f8e4m3fn and f8e5m2 -> f16 or f32, \
            i8 and u8 in any mix -> i32; nothing is converted implicitly: use `.cast`; \
            see docs/common_errors.md"
)]
pub trait MmaInput<Rhs: Element, Acc: Element>: Element {}

/// A left operand of `matmul`, for a type of the right operand; they determine the accumulator
/// type.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn square<T: ct::element::MatmulInput<T>>(a: Tile<T, 2>) -> Tile<T::Acc, 2> {
///     ct::matmul(a, a)
/// }
/// ct::assert!(square(ct::full([16, 16], 2i8)).eq(64));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "there is no matrix multiply of `{Self}` with `{Rhs}`",
    note = "both operands have the same element type (i8 and u8 may be mixed); nothing is converted implicitly"
)]
pub trait MatmulInput<Rhs: Element>: MmaInput<Rhs, Self::Acc> {
    /// f32 for floats of up to 32 bits, f64 for f64, i32 for integers.
    type Acc: Number;
}

/// An operand of `mma_scaled`, for a type of its scales.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// use cutlet::element::ScaledInput;
/// assert_eq!(<f8e4m3fn as ScaledInput<f8e8m0fnu>>::BLOCKS, [32]);
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "there is no scaled matrix multiply of `{Self}` with scales `{Scale}`",
    note = "f8e4m3fn and f8e5m2 with f8e8m0fnu; f4e2m1fn with f8e8m0fnu, f8e4m3fn or f8e5m3fnu"
)]
pub trait ScaledInput<Scale: Element>: Element {
    /// Permitted numbers of elements along k that share a scale.
    const BLOCKS: &'static [usize];
}
impl ScaledInput<f8e8m0fnu> for f8e4m3fn {
    const BLOCKS: &'static [usize] = &[32];
}
impl ScaledInput<f8e8m0fnu> for f8e5m2 {
    const BLOCKS: &'static [usize] = &[32];
}
impl ScaledInput<f8e8m0fnu> for f4e2m1fn {
    const BLOCKS: &'static [usize] = &[16, 32];
}
impl ScaledInput<f8e5m3fnu> for f4e2m1fn {
    const BLOCKS: &'static [usize] = &[16, 32];
}
impl ScaledInput<f8e4m3fn> for f4e2m1fn {
    const BLOCKS: &'static [usize] = &[16];
}

/// Numeric conversion to `U`, for each pair of element types.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn halves<T: Element + ct::element::CastTo<f32>>(x: Tile<T, 1>) -> Tile<f32, 1> {
///     x.cast::<f32>() * 0.5
/// }
/// ct::assert!(halves(ct::astile([1u8, 3])).eq(ct::astile([0.5, 1.5])));
/// # });
/// ```
pub trait CastTo<U: Element>: Element {}
impl<T: Element, U: Element> CastTo<U> for T {}

/// Reinterpretation of the bits as another type of the same width.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn bits<T: Element + ct::element::BitcastTo<u32>>(x: Tile<T, 1>) -> Tile<u32, 1> {
///     x.bitcast::<u32>()
/// }
/// ct::assert!(bits(ct::astile([1.0f32, -1.0])).eq(ct::astile([0x3f80_0000, 0xbf80_0000])));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "the bits of `{Self}` cannot be read as `{U}`",
    note = "`bitcast` needs two types of the same width, neither of them bool, tf32 or f4e2m1fn; \
            for a conversion of the value use `.cast`"
)]
pub trait BitcastTo<U: Element>: Element {}

macro_rules! newtype_float {
    ($(#[$meta:meta])* $name:ident($storage:ty), $dtype:ident, $default_rounding:ident) => {
        $(#[$meta])*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name($storage);

        impl $name {
            /// Returns the nearest value. On overflow, it saturates or becomes infinite, as the
            /// conversion of the hardware does.
            pub fn from_f32(value: f32) -> Self {
                <Self as Element>::from_f64(value.into())
            }

            /// Returns the value as f32, exactly.
            pub fn to_f32(self) -> f32 {
                self.to_f64() as f32
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f64() == other.to_f64()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                self.to_f64().partial_cmp(&other.to_f64())
            }
        }

        impl Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Debug::fmt(&self.to_f64(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f64(), f)
            }
        }

        impl From<$name> for f32 {
            fn from(value: $name) -> f32 {
                value.to_f32()
            }
        }

        impl AnyFloat for $name {}
        // SAFETY: zero bytes are a value.
        unsafe impl bytemuck::Zeroable for $name {}
        // SAFETY: `repr(transparent)` around a number, any bytes of which are a value.
        unsafe impl bytemuck::Pod for $name {}
        // SAFETY: as above.
        unsafe impl ElementBytes for $name {
            type Pattern = $storage;
        }

        impl Sealed for $name {}
        impl Element for $name {
            const DTYPE: DType = DType::$dtype;
            const SIGNED: bool = false;
            const NAME: &'static str = stringify!($name);

            fn to_f64(self) -> f64 {
                float_codec::decode(DType::$dtype, self.to_bits())
            }
            fn from_f64(value: f64) -> Self {
                Self::from_bits(float_codec::encode(DType::$dtype, value, Rounding::$default_rounding))
            }
            fn to_bits(self) -> u64 {
                newtype_float!(@bits $dtype self.0)
            }
            fn from_bits(bits: u64) -> Self {
                newtype_float!(@from $dtype $name bits)
            }
        }
    };
    // Elements in memory may have other bits set, which are ignored.
    (@bits TF32 $value:expr) => { ($value.to_bits() & 0xFFFF_E000).into() };
    (@bits F4E2M1FN $value:expr) => { ($value & 0xf).into() };
    (@bits $dtype:ident $value:expr) => { $value.into() };
    (@from TF32 $name:ident $bits:expr) => { $name(f32::from_bits($bits as u32 & 0xFFFF_E000)) };
    (@from F4E2M1FN $name:ident $bits:expr) => { $name($bits as u8 & 0xf) };
    (@from $dtype:ident $name:ident $bits:expr) => { $name($bits as u8) };
}

newtype_float! {
    /// TensorFloat-32: 8 exponent and 10 mantissa bits, represented as an f32 whose low 13 bits are
    /// zero. It is for matrix products; other operations need a conversion.
    tf32(f32), TF32, NearestEven
}
newtype_float! {
    /// 8-bit float with 4 exponent and 3 mantissa bits: finite up to ±448, with NaN, without
    /// infinity.
    f8e4m3fn(u8), F8E4M3FN, NearestEven
}
newtype_float! {
    /// 8-bit float with 5 exponent and 2 mantissa bits: up to ±57344, with NaN and infinity.
    f8e5m2(u8), F8E5M2, NearestEven
}
newtype_float! {
    /// 8-bit scale: a power of two from 2^-127 to 2^127, no sign, no zero, with NaN.
    f8e8m0fnu(u8), F8E8M0FNU, Zero
}
newtype_float! {
    /// 8-bit scale: 5 exponent and 3 mantissa bits without a sign, up to 114688, with NaN, without
    /// infinity. Negative numbers become 0. Through `tileir` it exists on sm_107 only.
    f8e5m3fnu(u8), F8E5M3FNU, NearestEven
}
newtype_float! {
    /// 4-bit float: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. On the host one value per byte
    /// (in the low bits); in device memory two per byte, the first one in the low bits.
    f4e2m1fn(u8), F4E2M1FN, NearestEven
}

macro_rules! native_int {
    ($($name:ident $dtype:ident $signed:literal $unsigned:ident;)+) => {$(
        impl Sealed for $name {}
        impl Element for $name {
            const DTYPE: DType = DType::$dtype;
            const SIGNED: bool = $signed;
            const NAME: &'static str = stringify!($name);

            fn to_f64(self) -> f64 {
                self as f64
            }
            fn from_f64(value: f64) -> Self {
                value as $name
            }
            fn to_bits(self) -> u64 {
                (self as $unsigned).into()
            }
            fn from_bits(bits: u64) -> Self {
                bits as $name
            }
        }
        // SAFETY: any bytes are a number.
        unsafe impl ElementBytes for $name {
            type Pattern = $name;
        }
        impl Number for $name {}
        impl Int for $name {}
        impl Bits for $name {}
        impl Comparable for $name {}
    )+};
}

native_int! {
    i8 I8 true u8;
    i16 I16 true u16;
    i32 I32 true u32;
    i64 I64 true u64;
    u8 I8 false u8;
    u16 I16 false u16;
    u32 I32 false u32;
    u64 I64 false u64;
}

macro_rules! native_float {
    ($($name:ident $dtype:ident $bits:ident $to:expr, $from:expr;)+) => {$(
        impl Sealed for $name {}
        impl Element for $name {
            const DTYPE: DType = DType::$dtype;
            const SIGNED: bool = false;
            const NAME: &'static str = stringify!($name);

            fn to_f64(self) -> f64 {
                $to(self)
            }
            fn from_f64(value: f64) -> Self {
                $from(value)
            }
            fn to_bits(self) -> u64 {
                <$name>::to_bits(self).into()
            }
            fn from_bits(bits: u64) -> Self {
                <$name>::from_bits(bits as $bits)
            }
        }
        // SAFETY: a float has the layout of its bits, any of which are a value.
        unsafe impl ElementBytes for $name {
            type Pattern = $bits;
        }
        impl Number for $name {}
        impl AnyFloat for $name {}
        impl Signed for $name {}
        impl Comparable for $name {}
    )+};
}

native_float! {
    f16 F16 u16 f16::to_f64, |value| f16::from_bits(float_codec::encode(DType::F16, value, Rounding::NearestEven) as u16);
    bf16 BF16 u16 bf16::to_f64, |value| bf16::from_bits(float_codec::encode(DType::BF16, value, Rounding::NearestEven) as u16);
    f32 F32 u32 f64::from, |value| value as f32;
    f64 F64 u64 f64::from, f64::from;
}

// One implementation per line, so that the compiler's list of float types is short and readable.
impl Float for f16 {}
impl Float for bf16 {}
impl Float for f32 {}
impl Float for f64 {}

impl Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::I1;
    const SIGNED: bool = false;
    const NAME: &'static str = "bool";

    fn to_f64(self) -> f64 {
        self.into()
    }
    fn from_f64(value: f64) -> bool {
        value != 0.0
    }
    fn to_bits(self) -> u64 {
        self.into()
    }
    fn from_bits(bits: u64) -> bool {
        bits & 1 != 0
    }
}

impl Bits for bool {}
// SAFETY: a bool is a byte, which is 0 or 1.
unsafe impl ElementBytes for bool {
    type Pattern = u8;

    fn is_value(pattern: &u8) -> bool {
        *pattern <= 1
    }
}
impl Comparable for bool {}

macro_rules! impl_for {
    ($trait:ident: $($name:ident)+) => { $(impl $trait for $name {})+ };
}
impl_for!(Signed: i8 i16 i32 i64);
impl_for!(ByteSized: i8 i16 i32 i64 u8 u16 u32 u64 bool f16 bf16 f32 f64 tf32 f8e4m3fn f8e5m2 f8e8m0fnu f8e5m3fnu);

macro_rules! mma_pairs {
    ($($lhs:ident $rhs:ident => $natural:ident $(, $other:ident)?;)+) => {$(
        impl MmaInput<$rhs, $natural> for $lhs {}
        impl MatmulInput<$rhs> for $lhs { type Acc = $natural; }
        $(impl MmaInput<$rhs, $other> for $lhs {})?
    )+};
}
mma_pairs! {
    f16 f16 => f32, f16;
    bf16 bf16 => f32;
    tf32 tf32 => f32;
    f32 f32 => f32;
    f64 f64 => f64;
    f8e4m3fn f8e4m3fn => f32, f16;
    f8e5m2 f8e5m2 => f32, f16;
    i8 i8 => i32;
    i8 u8 => i32;
    u8 i8 => i32;
    u8 u8 => i32;
}

macro_rules! bitcast_group {
    ($($name:ident)+) => { bitcast_group!(@each [$($name)+] [$($name)+]); };
    (@each [$($from:ident)+] $all:tt) => { $(bitcast_group!(@one $from $all);)+ };
    (@one $from:ident [$($to:ident)+]) => { $(impl BitcastTo<$to> for $from {})+ };
}
bitcast_group!(i8 u8 f8e4m3fn f8e5m2 f8e8m0fnu f8e5m3fnu);
bitcast_group!(i16 u16 f16 bf16);
bitcast_group!(i32 u32 f32);
bitcast_group!(i64 u64 f64);
