//! Float arithmetic with directed rounding: the exact result, then one rounding.
//!
//! Operands are f64, which represents all element types exactly. A fused multiply-add of 16-bit
//! floats also uses this file, to round only once.

use crate::dtype::DType;
use crate::ir::Rounding;
use crate::types::float_codec::{self, Exact, shift_right_jam};

/// Result before rounding.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unrounded {
    /// Nonzero and finite.
    Number(Exact),
    /// A signed zero, an infinity or a NaN.
    Special(f64),
    /// Zero as the sum of two numbers of opposite sign: negative when rounding down, else positive.
    Cancelled,
}
use Unrounded::{Cancelled, Number, Special};

impl Unrounded {
    /// Returns the bit pattern in `dtype`.
    pub fn round(self, dtype: DType, rounding: Rounding) -> u64 {
        match self {
            Number(value) => float_codec::round(dtype, value, rounding),
            Special(value) => float_codec::encode(dtype, value, rounding),
            Cancelled => float_codec::encode(dtype, if rounding == Rounding::NegInf { -0.0 } else { 0.0 }, rounding),
        }
    }

    fn of(value: f64) -> Unrounded {
        if value.is_finite() && value != 0.0 { Number(Exact::of(value)) } else { Special(value) }
    }
}

pub(crate) fn add(a: f64, b: f64) -> Unrounded {
    sum(Unrounded::of(a), Unrounded::of(b))
}

pub(crate) fn sub(a: f64, b: f64) -> Unrounded {
    add(a, -b)
}

pub(crate) fn mul(a: f64, b: f64) -> Unrounded {
    match (Unrounded::of(a), Unrounded::of(b)) {
        (Number(x), Number(y)) => Number(Exact {
            negative: x.negative != y.negative,
            significand: x.significand * y.significand,
            exponent: x.exponent + y.exponent,
        }),
        _ => Special(a * b),
    }
}

pub(crate) fn div(a: f64, b: f64) -> Unrounded {
    match (Unrounded::of(a), Unrounded::of(b)) {
        (Number(x), Number(y)) => {
            // A dividend of 127 bits and a divisor of at most 53 bits have a quotient of at least
            // 74 bits.
            let x = with_top_bit(x, 126);
            let jam = u128::from(!x.significand.is_multiple_of(y.significand));
            let significand = (x.significand / y.significand) | jam;
            Number(Exact { negative: x.negative != y.negative, significand, exponent: x.exponent - y.exponent })
        }
        _ => Special(a / b),
    }
}

pub(crate) fn sqrt(a: f64) -> Unrounded {
    match Unrounded::of(a) {
        Number(x) if !x.negative => {
            // The exponent must be even. The root of at least 125 bits has 63 bits.
            let x = with_top_bit(x, 124);
            let x = if x.exponent % 2 == 0 { x } else { with_top_bit(x, 125) };
            let root = x.significand.isqrt();
            let jam = u128::from(root * root != x.significand);
            Number(Exact { negative: false, significand: root | jam, exponent: x.exponent / 2 })
        }
        _ => Special(a.sqrt()),
    }
}

pub(crate) fn fma(a: f64, b: f64, c: f64) -> Unrounded {
    sum(mul(a, b), Unrounded::of(c))
}

/// Returns the same number with its highest bit at `position`. Callers ensure that no bit is lost.
fn with_top_bit(x: Exact, position: u32) -> Exact {
    let shift = position - x.significand.ilog2();
    Exact { significand: x.significand << shift, exponent: x.exponent - shift as i32, ..x }
}

fn sum(x: Unrounded, y: Unrounded) -> Unrounded {
    match (x, y) {
        (Number(x), Number(y)) => sum_numbers(x, y),
        (Special(0.0), Special(0.0)) => {
            let (Special(x), Special(y)) = (x, y) else { unreachable!() };
            if x.is_sign_negative() == y.is_sign_negative() { Special(x) } else { Cancelled }
        }
        (Special(0.0), other) | (other, Special(0.0)) => other,
        (Special(x), Special(y)) => Special(x + y),
        (Special(x), _) | (_, Special(x)) => Special(x),
        (Cancelled, _) | (_, Cancelled) => unreachable!("not an operand"),
    }
}

/// Adds two numbers at the scale of the larger one. Only a much smaller number loses bits to the
/// jam, and then at most one leading bit can cancel.
fn sum_numbers(x: Exact, y: Exact) -> Unrounded {
    let (large, small) = if x.log2() >= y.log2() { (x, y) } else { (y, x) };
    let large = with_top_bit(large, 125);
    let shift = large.exponent - small.exponent;
    let aligned = match shift {
        ..=0 => small.significand << -shift,
        _ => shift_right_jam(small.significand, shift as u32),
    };
    let (negative, significand) = if large.negative == small.negative {
        (large.negative, large.significand + aligned)
    } else if large.significand >= aligned {
        (large.negative, large.significand - aligned)
    } else {
        (small.negative, aligned - large.significand)
    };
    if significand == 0 { Cancelled } else { Number(Exact { negative, significand, exponent: large.exponent }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Rounding::{NearestEven, NegInf, PosInf, Zero};

    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = (*state ^ (*state >> 29)).wrapping_mul(0xbf58476d1ce4e5b9);
        x ^ (x >> 32)
    }

    /// Returns a random pattern; half of them have similar exponents.
    fn operand(state: &mut u64) -> f64 {
        let bits = random(state);
        match bits % 8 {
            0 => f64::from_bits(random(state)),
            1 => f64::from_bits(random(state) >> 12),
            2 => [0.0, -0.0, f64::INFINITY, f64::NAN, f64::NEG_INFINITY, 1.0][(bits >> 8) as usize % 6],
            _ => f64::from_bits(random(state) & !(0x7ff << 52) | (1023 - 60 + (bits >> 8) % 120) << 52),
        }
    }

    #[test]
    fn nearest_even_is_the_hosts() {
        let mut state = 11;
        let same = |ours: u64, host: f64| ours == host.to_bits() || f64::from_bits(ours).is_nan() && host.is_nan();
        for _ in 0..200_000 {
            let (a, b, c) = (operand(&mut state), operand(&mut state), operand(&mut state));
            let f64_bits = |x: Unrounded| x.round(DType::F64, NearestEven);
            assert!(same(f64_bits(add(a, b)), a + b), "{a:e} + {b:e}");
            assert!(same(f64_bits(sub(a, b)), a - b), "{a:e} - {b:e}");
            assert!(same(f64_bits(mul(a, b)), a * b), "{a:e} * {b:e}");
            assert!(same(f64_bits(div(a, b)), a / b), "{a:e} / {b:e}");
            assert!(same(f64_bits(sqrt(a)), a.sqrt()), "sqrt {a:e}");
            assert!(same(f64_bits(fma(a, b, c)), a.mul_add(b, c)), "{a:e} * {b:e} + {c:e}");
            let near = -(a * b);
            assert!(same(f64_bits(fma(a, b, near)), a.mul_add(b, near)), "{a:e} * {b:e} + {near:e}");
            let (x, y, z) = (a as f32, b as f32, c as f32);
            let single = fma(x as f64, y as f64, z as f64).round(DType::F32, NearestEven);
            let host = x.mul_add(y, z);
            assert!(single == host.to_bits() as u64 || host.is_nan(), "f32 {x:e} * {y:e} + {z:e}");
        }
    }

    #[test]
    fn directed_modes_bracket_the_nearest() {
        let mut state = 5;
        for _ in 0..50_000 {
            let (a, b) = (operand(&mut state), operand(&mut state));
            for (value, nearest) in [(add(a, b), a + b), (mul(a, b), a * b), (div(a, b), a / b)] {
                let [down, up, zero] = [NegInf, PosInf, Zero].map(|mode| f64::from_bits(value.round(DType::F64, mode)));
                if nearest.is_nan() {
                    assert!(down.is_nan() && up.is_nan());
                    continue;
                }
                assert!(down <= nearest && nearest <= up, "{a:e} {b:e}: {down:e} {nearest:e} {up:e}");
                assert!(down == up || up == down.next_up(), "{a:e} {b:e}: {down:e} {up:e}");
                assert_eq!(zero, if down < 0.0 { up } else { down });
            }
        }
        assert_eq!(add(1.0, -1.0).round(DType::F32, NegInf), 0x8000_0000);
        assert_eq!(add(1.0, -1.0).round(DType::F32, PosInf), 0);
        assert_eq!(add(1.0, 1e-300).round(DType::F32, PosInf), 0x3f80_0001);
        assert_eq!(div(1.0, 3.0).round(DType::F32, PosInf), (1f32 / 3.0).to_bits() as u64);
    }
}
