//! Expected values of elements, and their comparison with results.

use cutlet::element::Element;

use crate::data::format_of;
use crate::format::{Format, Real, Round};

/// Expected value of an element.
#[derive(Clone, Copy, Debug)]
pub enum Want {
    /// These bits; for a NaN any NaN.
    Bits(u64),
    /// These bits, also of a NaN.
    SameBits(u64),
    /// This number rounded to the element type, and nothing else (but any NaN for a NaN).
    Rounded(Real, Round),
    /// A number this many units in the last place away at most.
    Near { value: f64, ulps: f64 },
    /// A number this far away at most.
    Within { value: f64, error: f64 },
    /// Either zero: the sign is not defined here.
    AnyZero,
    /// An exact sum; a zero may have either sign, for that depends on the order of the terms.
    SumOf(f64),
    /// One of two numbers.
    OneOf([f64; 2]),
    /// Any value: the result is unspecified.
    Open,
}

impl Want {
    /// Returns the expectation of exactly this value.
    pub fn exactly<T: Element>(value: T) -> Want {
        Want::Bits(value.to_bits())
    }

    /// Returns the expectation of this number, rounded to nearest even.
    pub fn nearest(value: f64) -> Want {
        Want::Rounded(Real::exact(value), Round::NearestEven)
    }

    /// Returns true if a result is the expected value.
    pub fn accepts<T: Element>(self, got: T) -> bool {
        let number = got.to_f64();
        let format = format_of(T::DTYPE);
        match self {
            Want::Bits(bits) if format.is_some() && T::from_bits(bits).to_f64().is_nan() => number.is_nan(),
            Want::Bits(bits) | Want::SameBits(bits) => got.to_bits() == bits,
            Want::Rounded(value, round) => match format {
                Some(format) => same(number, format.round(value, round)),
                None => number == value.near,
            },
            Want::Near { value, ulps } => {
                let format = format.unwrap_or(Format::F64);
                near(number, value, ulps * format.ulp(value), format)
            }
            Want::Within { value, error } => near(number, value, error, format.unwrap_or(Format::F64)),
            Want::AnyZero => number == 0.0,
            Want::SumOf(value) => number == value,
            Want::OneOf(values) => values.iter().any(|&value| same(number, value)),
            Want::Open => true,
        }
    }
}

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn near(got: f64, want: f64, error: f64, format: Format) -> bool {
    if same(got, want) || got == want {
        return true;
    }
    if got.is_infinite() {
        // Right if a number within the error overflows.
        let reach = want.abs() + error + format.ulp(want) / 2.0;
        return got.is_sign_positive() == want.is_sign_positive() && reach > format.largest();
    }
    (got - want).abs() <= error
}

impl std::fmt::Display for Want {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Want::Bits(bits) | Want::SameBits(bits) => write!(f, "bits {bits:#x}"),
            Want::Rounded(value, round) => write!(f, "{:e} rounded {round:?}", value.near),
            Want::Near { value, ulps } => write!(f, "{value:e} within {ulps} ulp"),
            Want::Within { value, error } => write!(f, "{value:e} within {error:e}"),
            Want::AnyZero => write!(f, "a zero"),
            Want::SumOf(value) => write!(f, "{value:e}"),
            Want::OneOf([a, b]) => write!(f, "{a:e} or {b:e}"),
            Want::Open => write!(f, "anything"),
        }
    }
}
