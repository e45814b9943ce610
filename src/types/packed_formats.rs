//! Packed element types of 1 to 8 bits: the formats, their values on the host, and their packed
//! form.
//!
//! They are not element types of the IR. Kernels load them from packed arrays and unpack them in
//! registers ([`crate::ops`]). This file is independent of tiles and devices.

use std::fmt;

use crate::element::{Element, f4e2m1fn, f8e4m3fn, f8e5m2, f8e5m3fnu, f8e8m0fnu};
use crate::sealed::Sealed;
use crate::types::float_codec;

/// Interpretation of the bits of a [`Narrow`] type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NarrowFormat {
    /// Integer in two's complement of this number of bits.
    Int(u32),
    /// Unsigned integer of this number of bits.
    UInt(u32),
    /// Float with a sign bit, exponent and mantissa bits, the bias 2^(exponent - 1) - 1 and
    /// subnormal numbers. All codes are numbers: there are no infinities and no NaN.
    Float {
        /// Exponent bits, 1 to 5.
        exponent: u32,
        /// Mantissa bits, 1 to 5.
        mantissa: u32,
    },
    /// Element type of 8 bits that the IR has as well.
    Element(crate::dtype::DType),
}

/// A type of 1 to 8 bits in packed arrays: [`IntN`], [`UIntN`], [`FloatN`], and the element types
/// of tiles with 4 and 8 bits (`i8`, `u8`, [`f8e4m3fn`], [`f8e5m2`], [`f8e8m0fnu`], [`f8e5m3fnu`],
/// [`f4e2m1fn`]).
///
/// This trait is sealed: code of kernels supports these formats only.
///
/// ```
/// use cutlet::packed::{Narrow, f6e3m2, i4};
/// assert_eq!(f6e3m2::from_value(3.3).to_value(), 3.5);
/// assert_eq!(f6e3m2::from_value(1e9).to_value(), 28.0); // saturates
/// assert_eq!((i4::from_value(-100.0).to_value(), i4::from_value(6.9).to_value()), (-8.0, 6.0));
/// assert_eq!((i4::from_value(-1.0).code(), i4::BITS, i4::NAME), (0b1111, 4, "i4"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of packed arrays",
    note = "packed arrays hold `UIntN<B>`, `IntN<B>` (u1 to u7, i1 to i7), `FloatN<E, M>` (f3e1m1 to f7e1m5), and the types of \
            8 bits"
)]
pub trait Narrow: Sealed + Copy + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// Interpretation of the bits.
    const FORMAT: NarrowFormat;
    /// Number of bits.
    const BITS: u32;
    /// Name in messages: `u4`, `f6e3m2`.
    const NAME: &'static str;

    /// Returns the bits in the low part of a byte.
    fn code(self) -> u8;

    /// Returns the value with these bits; higher ones are dropped.
    fn from_code(code: u8) -> Self;

    /// Returns the exact value.
    fn to_value(self) -> f64;

    /// Returns the nearest number; of two equally near ones, that with the even code. Integers
    /// truncate toward zero, as `as` does. Large numbers become the largest number. NaN becomes 0
    /// as an integer, and the largest number of a float without NaN.
    fn from_value(value: f64) -> Self;
}

/// An integer of `B` bits, 1 to 7, in two's complement: `IntN<1>` is 0 or -1. One value per byte on
/// the host, packed in arrays.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct IntN<const B: u32>(i8);

/// An unsigned integer of `B` bits, 1 to 7. One value per byte on the host, packed in arrays.
///
/// ```
/// use cutlet::packed::{UIntN, u3};
/// assert_eq!((u3::new(7), u3::new(8)), (Some(UIntN::MAX), None));
/// assert_eq!((u3::saturating(100).get(), u3::saturating(-1).get()), (7, 0));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct UIntN<const B: u32>(u8);

/// A float of 3 to 7 bits: a sign, `E` exponent bits and `M` mantissa bits, with the bias 2^(E-1) -
/// 1 and subnormal numbers, without infinities and NaN. One value per byte on the host, packed in
/// arrays.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct FloatN<const E: u32, const M: u32>(u8);

macro_rules! integers {
    ($($name:ident $repr:ident $least:expr, $most:expr;)+) => {$(
        impl<const B: u32> $name<B> {
            const WIDTH: u32 = {
                assert!(B >= 1 && B <= 7, "narrow integers have 1 to 7 bits; those of 8 are i8 and u8");
                B
            };

            /// The smallest value.
            pub const MIN: Self = $name($least(Self::WIDTH) as $repr);
            /// The largest value.
            pub const MAX: Self = $name($most(Self::WIDTH) as $repr);

            /// Returns the value if it is in range.
            pub const fn new(value: $repr) -> Option<Self> {
                if value < Self::MIN.0 || value > Self::MAX.0 { None } else { Some($name(value)) }
            }

            /// Returns the value, or the nearest end of the range.
            pub const fn saturating(value: i32) -> Self {
                let (least, most) = (Self::MIN.0 as i32, Self::MAX.0 as i32);
                $name(if value < least { least } else if value > most { most } else { value } as $repr)
            }

            /// Returns the value.
            pub const fn get(self) -> $repr {
                self.0
            }
        }

        impl<const B: u32> fmt::Debug for $name<B> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl<const B: u32> fmt::Display for $name<B> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl<const B: u32> Sealed for $name<B> {}
    )+};
}

const fn none(_bits: u32) -> i32 {
    0
}
const fn least(bits: u32) -> i32 {
    -(1 << (bits - 1))
}
const fn most(bits: u32) -> i32 {
    (1 << (bits - 1)) - 1
}
const fn ones(bits: u32) -> i32 {
    (1 << bits) - 1
}
integers! {
    IntN i8 least, most;
    UIntN u8 none, ones;
}

impl<const B: u32> Narrow for IntN<B> {
    const FORMAT: NarrowFormat = NarrowFormat::Int(Self::WIDTH);
    const BITS: u32 = Self::WIDTH;
    const NAME: &'static str = ["", "i1", "i2", "i3", "i4", "i5", "i6", "i7"][Self::WIDTH as usize];

    fn code(self) -> u8 {
        self.0 as u8 & ones(B) as u8
    }
    fn from_code(code: u8) -> Self {
        IntN((code << (8 - Self::WIDTH)) as i8 >> (8 - Self::WIDTH))
    }
    fn to_value(self) -> f64 {
        self.0.into()
    }
    fn from_value(value: f64) -> Self {
        Self::saturating(value as i32)
    }
}

impl<const B: u32> Narrow for UIntN<B> {
    const FORMAT: NarrowFormat = NarrowFormat::UInt(Self::WIDTH);
    const BITS: u32 = Self::WIDTH;
    const NAME: &'static str = ["", "u1", "u2", "u3", "u4", "u5", "u6", "u7"][Self::WIDTH as usize];

    fn code(self) -> u8 {
        self.0
    }
    fn from_code(code: u8) -> Self {
        UIntN(code & ones(Self::WIDTH) as u8)
    }
    fn to_value(self) -> f64 {
        self.0.into()
    }
    fn from_value(value: f64) -> Self {
        Self::saturating(value as i32)
    }
}

impl<const E: u32, const M: u32> FloatN<E, M> {
    const WIDTH: u32 = {
        assert!(
            E >= 1 && M >= 1 && 1 + E + M <= 7,
            "narrow floats have exponent and mantissa and at most 7 bits with the sign"
        );
        1 + E + M
    };

    /// The largest value.
    pub const MAX: Self = FloatN(ones(Self::WIDTH - 1) as u8);
    /// The smallest value.
    pub const MIN: Self = FloatN(ones(Self::WIDTH) as u8);

    /// Returns the nearest value, ties to even. Large numbers saturate, NaN becomes the largest
    /// value.
    pub fn from_f32(value: f32) -> Self {
        Self::from_value(value.into())
    }

    /// Returns the value as f32, exactly.
    pub fn to_f32(self) -> f32 {
        self.to_value() as f32
    }
}

impl<const E: u32, const M: u32> Sealed for FloatN<E, M> {}

impl<const E: u32, const M: u32> PartialEq for FloatN<E, M> {
    fn eq(&self, other: &Self) -> bool {
        self.to_value() == other.to_value()
    }
}

impl<const E: u32, const M: u32> PartialOrd for FloatN<E, M> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.to_value().partial_cmp(&other.to_value())
    }
}

impl<const E: u32, const M: u32> fmt::Debug for FloatN<E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_value().fmt(f)
    }
}

impl<const E: u32, const M: u32> fmt::Display for FloatN<E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_value().fmt(f)
    }
}

/// Names of floats by exponent and mantissa bits, because a constant cannot be formatted.
const FLOATS: [[&str; 6]; 6] = [
    [""; 6],
    ["", "f3e1m1", "f4e1m2", "f5e1m3", "f6e1m4", "f7e1m5"],
    ["", "f4e2m1", "f5e2m2", "f6e2m3", "f7e2m4", ""],
    ["", "f5e3m1", "f6e3m2", "f7e3m3", "", ""],
    ["", "f6e4m1", "f7e4m2", "", "", ""],
    ["", "f7e5m1", "", "", "", ""],
];

impl<const E: u32, const M: u32> Narrow for FloatN<E, M> {
    const FORMAT: NarrowFormat = {
        let _ = Self::WIDTH;
        NarrowFormat::Float { exponent: E, mantissa: M }
    };
    const BITS: u32 = Self::WIDTH;
    const NAME: &'static str = {
        let _ = Self::WIDTH;
        FLOATS[E as usize][M as usize]
    };

    fn code(self) -> u8 {
        self.0
    }
    fn from_code(code: u8) -> Self {
        FloatN(code & ones(Self::WIDTH) as u8)
    }
    fn to_value(self) -> f64 {
        float_codec::decode_narrow(E, M, self.0.into())
    }
    fn from_value(value: f64) -> Self {
        let _ = Self::WIDTH;
        FloatN(float_codec::encode_narrow(E, M, value) as u8)
    }
}

macro_rules! elements {
    ($($name:ident $bits:literal $format:expr;)+) => {$(

        impl Narrow for $name {
            const FORMAT: NarrowFormat = $format;
            const BITS: u32 = $bits;
            const NAME: &'static str = <$name as Element>::NAME;

            fn code(self) -> u8 {
                Element::to_bits(self) as u8
            }
            fn from_code(code: u8) -> Self {
                <$name as Element>::from_bits(code.into())
            }
            fn to_value(self) -> f64 {
                self.to_f64()
            }
            fn from_value(value: f64) -> Self {
                Self::from_f64(value)
            }
        }
    )+};
}
elements! {
    i8 8 NarrowFormat::Int(8);
    u8 8 NarrowFormat::UInt(8);
    f4e2m1fn 4 NarrowFormat::Float { exponent: 2, mantissa: 1 };
    f8e4m3fn 8 NarrowFormat::Element(<f8e4m3fn as Element>::DTYPE);
    f8e5m2 8 NarrowFormat::Element(<f8e5m2 as Element>::DTYPE);
    f8e8m0fnu 8 NarrowFormat::Element(<f8e8m0fnu as Element>::DTYPE);
    f8e5m3fnu 8 NarrowFormat::Element(<f8e5m3fnu as Element>::DTYPE);
}

macro_rules! names {
    ($($(#[$meta:meta])* $name:ident = $ty:ty;)+) => {$(
        $(#[$meta])*
        #[allow(non_camel_case_types)]
        pub type $name = $ty;
    )+};
}
names! {
    /// 0 or -1.
    i1 = IntN<1>;
    /// -2 to 1.
    i2 = IntN<2>;
    /// -4 to 3.
    i3 = IntN<3>;
    /// -8 to 7.
    i4 = IntN<4>;
    /// -16 to 15.
    i5 = IntN<5>;
    /// -32 to 31.
    i6 = IntN<6>;
    /// -64 to 63.
    i7 = IntN<7>;
    /// 0 or 1.
    u1 = UIntN<1>;
    /// 0 to 3.
    u2 = UIntN<2>;
    /// 0 to 7.
    u3 = UIntN<3>;
    /// 0 to 15.
    u4 = UIntN<4>;
    /// 0 to 31.
    u5 = UIntN<5>;
    /// 0 to 63.
    u6 = UIntN<6>;
    /// 0 to 127.
    u7 = UIntN<7>;
    /// ±0, 1, 2, 3.
    f3e1m1 = FloatN<1, 1>;
    /// ±0 to 7 in steps of 1: sign and magnitude.
    f4e1m2 = FloatN<1, 2>;
    /// ±0, 0.5, 1, 1.5, 2, 3, 4, 6: the codes of [`f4e2m1fn`].
    f4e2m1 = FloatN<2, 1>;
    /// Sign and magnitude of up to 15 units of 1/2, as [`f4e1m2`].
    f5e1m3 = FloatN<1, 3>;
    /// Up to ±7.
    f5e2m2 = FloatN<2, 2>;
    /// Up to ±24.
    f5e3m1 = FloatN<3, 1>;
    /// Sign and magnitude.
    f6e1m4 = FloatN<1, 4>;
    /// Up to ±7.5.
    f6e2m3 = FloatN<2, 3>;
    /// Up to ±28.
    f6e3m2 = FloatN<3, 2>;
    /// Up to ±384.
    f6e4m1 = FloatN<4, 1>;
    /// Sign and magnitude.
    f7e1m5 = FloatN<1, 5>;
    /// Up to ±7.75.
    f7e2m4 = FloatN<2, 4>;
    /// Up to ±30.
    f7e3m3 = FloatN<3, 3>;
    /// Up to ±448.
    f7e4m2 = FloatN<4, 2>;
    /// Up to ±98304, which exceeds the range of f16.
    f7e5m1 = FloatN<5, 1>;
}

/// Packs a row of values into the bytes of a line, which are 0: the first value is in the low bits
/// of the first byte.
pub(crate) fn pack_row<F: Narrow>(values: &[F], line: &mut [u8]) {
    for (position, value) in values.iter().enumerate() {
        let at = position * F::BITS as usize;
        let code = u16::from(value.code()) << (at % 8);
        line[at / 8] |= code as u8;
        if code > 0xff {
            line[at / 8 + 1] |= (code >> 8) as u8;
        }
    }
}

/// Returns the first `row` values of a line: the inverse of [`pack_row`].
pub(crate) fn unpack_row<F: Narrow>(line: &[u8], row: usize) -> impl Iterator<Item = F> {
    (0..row).map(move |position| {
        let at = position * F::BITS as usize;
        let pair = u16::from(line[at / 8]) | u16::from(line.get(at / 8 + 1).copied().unwrap_or(0)) << 8;
        F::from_code((pair >> (at % 8)) as u8)
    })
}

/// Returns the number of bytes of `row` packed values.
pub(crate) const fn row_bytes<F: Narrow>(row: usize) -> usize {
    (row * F::BITS as usize).div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of a format by its definition, in the order of their codes.
    fn numbers(format: NarrowFormat) -> Vec<f64> {
        let float = |exponent: u32, mantissa: u32, code: u32| {
            let (fraction, field) = (code & ((1 << mantissa) - 1), code >> mantissa & ((1 << exponent) - 1));
            let bias = (1i32 << (exponent - 1)) - 1;
            let significand = f64::from(fraction) / f64::from(1 << mantissa) + f64::from(field.min(1));
            let magnitude = significand * 2f64.powi(field.max(1) as i32 - bias);
            if code >> (exponent + mantissa) == 1 { -magnitude } else { magnitude }
        };
        match format {
            NarrowFormat::UInt(bits) => (0..1u32 << bits).map(f64::from).collect(),
            NarrowFormat::Int(bits) => (0..1i32 << bits)
                .map(|code| f64::from(if code >> (bits - 1) == 1 { code - (1 << bits) } else { code }))
                .collect(),
            NarrowFormat::Float { exponent, mantissa } => {
                (0..2u32 << (exponent + mantissa)).map(|code| float(exponent, mantissa, code)).collect()
            }
            NarrowFormat::Element(_) => unreachable!("the codec tests those"),
        }
    }

    /// Returns the code of the nearest number, by search.
    fn by_search<F: Narrow>(numbers: &[f64], value: f64) -> u8 {
        let is_float = matches!(F::FORMAT, NarrowFormat::Float { .. });
        let value = match is_float {
            true if value.is_nan() => f64::INFINITY,
            false if value.is_nan() => 0.0,
            true => value,
            false => value.trunc(),
        };
        let largest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let value = value.clamp(least, largest);
        let fits = |code: &usize| !is_float || numbers[*code].is_sign_negative() == value.is_sign_negative();
        let rank = |code: usize| ((numbers[code] - value).abs(), code & 1);
        let best = (0..numbers.len()).filter(fits).min_by(|&a, &b| rank(a).partial_cmp(&rank(b)).unwrap());
        best.expect("a number of this sign") as u8
    }

    fn exhaustively<F: Narrow>() {
        let numbers = numbers(F::FORMAT);
        assert_eq!(numbers.len(), 1 << F::BITS, "{}", F::NAME);
        for (code, &number) in numbers.iter().enumerate() {
            let value = F::from_code(code as u8);
            assert_eq!(value.to_value().to_bits(), number.to_bits(), "{} {code:#b}", F::NAME);
            assert_eq!(value.code(), code as u8);
            assert_eq!(F::from_value(number).code(), code as u8, "{} {number}", F::NAME);
            // Higher bits are dropped.
            if F::BITS < 8 {
                assert_eq!(F::from_code(code as u8 | 0xff << F::BITS).code(), code as u8);
            }
        }
        let mut sorted = numbers.clone();
        sorted.sort_by(f64::total_cmp);
        let mut probes =
            vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 1e-300, -1e-300, f64::from_bits(1)];
        for pair in sorted.windows(2) {
            let middle = (pair[0] + pair[1]) / 2.0;
            probes.extend([middle, middle.next_up(), middle.next_down(), pair[0].next_up(), pair[1].next_down()]);
        }
        let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
        probes.extend([most + 0.5, most * 1.001, most * 2.0, least - 0.5, least * 1.001, -0.0]);
        for probe in probes {
            let ours = F::from_value(probe).code();
            assert_eq!(ours, by_search::<F>(&numbers, probe), "{} {probe:e}", F::NAME);
        }
    }

    macro_rules! each {
        ($each:ident: $($name:ident)+) => { $($each::<$name>();)+ };
    }

    #[test]
    fn every_code_and_every_midpoint() {
        each!(exhaustively: i1 i2 i3 i4 i5 i6 i7 i8 u1 u2 u3 u4 u5 u6 u7 u8);
        each!(exhaustively: f3e1m1 f4e1m2 f4e2m1 f5e1m3 f5e2m2 f5e3m1 f6e1m4 f6e2m3 f6e3m2 f6e4m1);
        each!(exhaustively: f7e1m5 f7e2m4 f7e3m3 f7e4m2 f7e5m1 f4e2m1fn);
    }

    #[test]
    fn names_are_those_of_the_types() {
        macro_rules! named {
            ($($name:ident)+) => { $(assert_eq!(<$name as Narrow>::NAME, stringify!($name));)+ };
        }
        named!(i1 i2 i3 i4 i5 i6 i7 i8 u1 u2 u3 u4 u5 u6 u7 u8 f8e4m3fn f8e5m2 f8e8m0fnu f8e5m3fnu f4e2m1fn);
        named!(f3e1m1 f4e1m2 f4e2m1 f5e1m3 f5e2m2 f5e3m1 f6e1m4 f6e2m3 f6e3m2 f6e4m1 f7e1m5 f7e2m4 f7e3m3 f7e4m2 f7e5m1);
        assert_eq!(format!("{} {:?} {}", i4::MIN, u3::MAX, f6e3m2::MAX), "-8 7 28");
        assert_eq!((f7e5m1::MAX.to_value(), f3e1m1::MIN.to_value()), (98304.0, -3.0));
    }

    #[test]
    fn rows_begin_at_whole_bytes() {
        let values: Vec<u3> = (0..20).map(|i| u3::from_code(i % 8)).collect();
        let mut bytes = [0; 8];
        assert_eq!(row_bytes::<u3>(10), 4);
        values.chunks(10).zip(bytes.chunks_mut(4)).for_each(|(row, line)| pack_row(row, line));
        // 0, 1, 2, … of three bits each, the first one in the low bits. Two bits of the fourth byte
        // are unused.
        assert_eq!(bytes[..4], [0b1000_1000, 0b1100_0110, 0b1111_1010, 0b0000_1000]);
        assert_eq!(bytes.chunks(4).flat_map(|line| unpack_row::<u3>(line, 10)).collect::<Vec<_>>(), values);
    }
}
