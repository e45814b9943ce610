//! Element types of tested arrays: their values in a reference, special values, and their text.

use crate::util::collect::CollectVec as _;
use std::fmt::Debug;

use crate::element::{Element, bf16, f8e4m3fn, f8e5m2, f16};

/// Permitted difference between a result and its reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::test) struct Tolerance {
    /// Multiple of the magnitude of the reference.
    pub relative: f64,
    /// Number that is added to it.
    pub absolute: f64,
}

impl Tolerance {
    /// Returns true if a number is near to a reference. NaN is near to NaN, an infinity to itself.
    fn holds(self, got: f64, want: f64) -> bool {
        got == want
            || (got.is_nan() && want.is_nan())
            || (got.is_finite() && want.is_finite() && (got - want).abs() <= self.absolute + self.relative * want.abs())
    }
}

/// An element type of the arrays of a property: floats of 8 to 64 bits, integers, bool.
///
/// This trait is sealed.
///
/// ```
/// use cutlet::test::TestElement;
/// assert_eq!(<cutlet::f16 as TestElement>::widen(cutlet::f16::ONE), 1.0);
/// assert_eq!(<i8 as TestElement>::widen(-3), -3i64);
/// ```
pub trait TestElement: Element {
    /// The type of its values in a reference: f64 for floats, i64 for integers (u64 for u64), bool.
    type Wide: Copy + Debug + Default + PartialEq + 'static;

    /// Returns the value in a reference.
    fn widen(self) -> Self::Wide;

    /// Returns the value of the reference rounded to the type, as bits; `None` if no value of the
    /// type equals it.
    #[doc(hidden)]
    fn narrow(wide: Self::Wide) -> Option<u64>;

    /// Unit in the last place of 1; 0 for integers.
    #[doc(hidden)]
    const ULP: f64;

    /// Returns the least and the greatest finite value.
    #[doc(hidden)]
    fn extremes() -> [Self; 2];

    /// Text of a finite value in Rust.
    #[doc(hidden)]
    fn literal(self) -> String;
}

/// Returns true if `got` is near to `want`, both as values of the type.
pub(in crate::test) fn is_near<T: TestElement>(got: T, want: T, tolerance: Option<Tolerance>) -> bool {
    if T::ULP == 0.0 && tolerance.is_none() {
        return got == want;
    }
    let tolerance = tolerance.unwrap_or_else(|| default_tolerance(T::ULP));
    tolerance.holds(got.to_f64(), want.to_f64())
}

/// Returns the permitted difference from a finite value.
pub(in crate::test) fn allowed<T: TestElement>(want: f64, tolerance: Option<Tolerance>) -> f64 {
    let tolerance = tolerance.unwrap_or_else(|| default_tolerance(T::ULP));
    tolerance.absolute + tolerance.relative * want.abs()
}

/// Returns the tolerance of a float type: some roundings of numbers of its magnitude.
fn default_tolerance(ulp: f64) -> Tolerance {
    // A sum of 100 rounded numbers differs by some 10 units in f32. Types of 16 bits and less are
    // the result of one rounding, of a number that is computed in f32.
    let units = if ulp < 1e-4 { 64.0 } else { 2.0 };
    Tolerance { relative: units * ulp, absolute: units * ulp }
}

/// Special values of a type: NaN, infinities, -0 and the smallest subnormal numbers of floats.
pub(in crate::test) fn specials<T: TestElement>() -> Vec<T> {
    if T::ULP == 0.0 {
        return Vec::new();
    }
    let mut values: Vec<T> =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0].into_iter().map(T::from_f64).collect_vec();
    values.push(T::from_bits(1));
    values
}

/// Contents of fresh memory and of the padding around arrays: NaN for floats, else a pattern. The
/// two variants differ, so that a result that depends on them differs.
pub(in crate::test) fn poison<T: TestElement>(variant: usize) -> T {
    if T::ULP != 0.0 {
        return if variant == 0 { T::from_f64(f64::NAN) } else { T::from_f64(-77.0) };
    }
    if size_of::<T>() == 1 && !T::SIGNED && T::DTYPE == crate::dtype::DType::I1 {
        return T::from_bits(u64::from(variant == 0));
    }
    let pattern: u64 = if variant == 0 { 0x5b5b_5b5b_5b5b_5b5b } else { 0xa4a4_a4a4_a4a4_a4a4 };
    T::from_bits(pattern & (u64::MAX >> (64 - T::DTYPE.bits().min(64))))
}

/// Text of a value in Rust, with NaN and infinities.
pub(in crate::test) fn text<T: TestElement>(value: T) -> String {
    let name = path::<T>();
    let number = value.to_f64();
    if T::ULP == 0.0 || number.is_finite() {
        value.literal()
    } else if number.is_nan() {
        if T::ULP < 0.05 { format!("{name}::NAN") } else { format!("{name}::from_f32(f32::NAN)") }
    } else if T::ULP < 0.05 {
        format!("{name}::{}INFINITY", if number < 0.0 { "NEG_" } else { "" })
    } else {
        format!("{name}::from_f32(f32::{}INFINITY)", if number < 0.0 { "NEG_" } else { "" })
    }
}

/// Path of the type in a program.
pub(in crate::test) fn path<T: TestElement>() -> String {
    match T::NAME {
        name @ ("f16" | "bf16" | "f8e4m3fn" | "f8e5m2") => format!("ct::{name}"),
        name => name.to_owned(),
    }
}

macro_rules! integers {
    ($($name:ident as $wide:ident)+) => {$(
        impl TestElement for $name {
            type Wide = $wide;
            const ULP: f64 = 0.0;

            fn extremes() -> [$name; 2] {
                [$name::MIN, $name::MAX]
            }

            fn widen(self) -> $wide {
                self.into()
            }

            fn narrow(wide: $wide) -> Option<u64> {
                $name::try_from(wide).ok().map(Element::to_bits)
            }

            fn literal(self) -> String {
                format!("{self}{}", stringify!($name))
            }
        }
    )+};
}
integers!(i8 as i64 i16 as i64 i32 as i64 i64 as i64 u8 as i64 u16 as i64 u32 as i64 u64 as u64);

macro_rules! floats {
    ($($name:ident $ulp:expr, $least:expr, $most:expr, $literal:literal;)+) => {$(
        impl TestElement for $name {
            type Wide = f64;
            const ULP: f64 = $ulp;

            fn extremes() -> [$name; 2] {
                [$least, $most]
            }

            fn widen(self) -> f64 {
                self.to_f64()
            }

            fn narrow(wide: f64) -> Option<u64> {
                Some(Element::to_bits(<$name as Element>::from_f64(wide)))
            }

            fn literal(self) -> String {
                format!($literal, self.to_f64())
            }
        }
    )+};
}
floats! {
    f64 f64::EPSILON, f64::MIN, f64::MAX, "{:?}f64";
    f32 f32::EPSILON as f64, f32::MIN, f32::MAX, "{:?}f32";
    f16 9.765625e-4, f16::MIN, f16::MAX, "ct::f16::from_f64({:?})";
    bf16 7.8125e-3, bf16::MIN, bf16::MAX, "ct::bf16::from_f64({:?})";
    f8e4m3fn 0.125, f8e4m3fn::from_bits(0xfe), f8e4m3fn::from_bits(0x7e), "ct::f8e4m3fn::from_f32({:?})";
    f8e5m2 0.25, f8e5m2::from_bits(0xfb), f8e5m2::from_bits(0x7b), "ct::f8e5m2::from_f32({:?})";
}

impl TestElement for bool {
    type Wide = bool;
    const ULP: f64 = 0.0;

    fn extremes() -> [bool; 2] {
        [false, true]
    }

    fn widen(self) -> bool {
        self
    }

    fn narrow(wide: bool) -> Option<u64> {
        Some(wide.into())
    }

    fn literal(self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_values() {
        let subnormal = f32::from_bits(1);
        let texts = [text(1.5f32), text(f32::NAN), text(-3i8), text(true), text(f16::NEG_INFINITY), text(-0.0f64)];
        assert_eq!(texts, ["1.5f32", "f32::NAN", "-3i8", "true", "ct::f16::NEG_INFINITY", "-0.0f64"]);
        assert_eq!(text(subnormal).trim_end_matches("f32").parse(), Ok(subnormal));
    }

    #[test]
    fn special_values_are_special() {
        assert!(specials::<f16>().iter().any(|x| x.is_nan()) && specials::<f16>().contains(&f16::from_bits(1)));
        assert!(specials::<i32>().is_empty());
        for variant in [0, 1] {
            assert_eq!(poison::<u8>(variant), [0x5b, 0xa4][variant]);
            assert_eq!(poison::<bool>(variant), variant == 0);
        }
        assert!(poison::<f32>(0).is_nan() && poison::<f8e4m3fn>(1).to_f64() < -70.0);
    }

    #[test]
    fn numbers_are_compared_by_their_type() {
        assert!(is_near(1.0f32, 1.000_001, None) && !is_near(1.0f32, 1.0001, None));
        assert!(is_near(f32::NAN, f32::NAN, None) && !is_near(f32::NAN, 1.0, None));
        assert!(!is_near(f32::INFINITY, f32::MAX, None) && !is_near(f32::MAX, f32::INFINITY, None));
        assert!(!is_near(3i32, 4, None) && is_near(3i32, 4, Some(Tolerance { relative: 0.0, absolute: 1.0 })));
        assert_eq!(<i8 as TestElement>::narrow(300), None);
    }
}
