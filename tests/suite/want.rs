//! Expected values of elements, and their comparison with results.

use cutlet::element::Element;

use crate::data::format_of;
use crate::format::{Format, Real, Round, same};

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
        match self {
            Want::Bits(bits) | Want::SameBits(bits) if got.to_bits() == bits => return true,
            Want::Open => return true,
            _ => {}
        }
        let number = got.to_f64();
        let format = format_of(T::DTYPE);
        match self {
            Want::Bits(bits) if format.is_some() && T::from_bits(bits).to_f64().is_nan() => number.is_nan(),
            Want::Bits(_) | Want::SameBits(_) => false,
            Want::Rounded(value, round) => match format {
                Some(format) => same(number, format.round(value, round)),
                None => number == value.near,
            },
            Want::Near { value, ulps } => {
                let format = format.unwrap_or(Format::F64);
                format.is_near(number, value, ulps * format.ulp(value))
            }
            Want::Within { value, error } => format.unwrap_or(Format::F64).is_near(number, value, error),
            Want::AnyZero => number == 0.0,
            Want::SumOf(value) => number == value,
            Want::OneOf(values) => values.iter().any(|&value| same(number, value)),
            Want::Open => true,
        }
    }
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
