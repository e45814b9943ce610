//! Exact conversion between bit patterns of the float element types and f64.
//!
//! All formats share one codec, which a `Format` row parameterizes: exponent bits, mantissa bits,
//! bias, and the meaning of the top codes. Patterns are those of [`crate::ir::ConstData`]: the low
//! bits of a word; tf32 is an f32 pattern whose low 13 bits are zero. This file only depends on the
//! element types and rounding modes.
//!
//! Overflow is that of the hardware. For the IEEE formats (f16, bf16, f32, tf32, f64), IEEE 754
//! defines it by the rounding mode. The 8- and 4-bit formats saturate to the largest finite value,
//! also for infinities.

use crate::dtype::DType;
use crate::ir::{Padding, Rounding};

/// Meaning of the codes with an all-ones exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopCodes {
    /// Infinity and NaNs. Conversions can return infinity.
    Ieee,
    /// Infinity and NaNs. Conversions saturate to the largest finite value.
    IeeeSaturating,
    /// Numbers, except that the code of all ones is NaN.
    OneNan,
    /// Numbers.
    Numbers,
}

/// A binary floating-point format.
#[derive(Clone, Copy, Debug)]
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    signed: bool,
    top: TopCodes,
    /// Pattern of a conversion of NaN (before `pad_bits`).
    nan: u64,
    /// Zero bits below the pattern in its word (tf32 uses the upper bits of an f32).
    pad_bits: u32,
}

const fn ieee(exponent_bits: u32, mantissa_bits: u32, nan: u64) -> Format {
    let bias = (1 << (exponent_bits - 1)) - 1;
    Format { exponent_bits, mantissa_bits, bias, signed: true, top: TopCodes::Ieee, nan, pad_bits: 0 }
}

impl Format {
    /// Returns the row of a float type; `None` for integers. f8E8M0FNU has no mantissa, no zero and
    /// no sign: its two functions are separate.
    const fn of(dtype: DType) -> Option<Format> {
        Some(match dtype {
            DType::F16 => ieee(5, 10, 0x7fff),
            DType::BF16 => ieee(8, 7, 0x7fff),
            DType::F32 => ieee(8, 23, 0x7fc0_0000),
            DType::TF32 => Format { pad_bits: 13, ..ieee(8, 10, 0x3_ffff) },
            DType::F64 => ieee(11, 52, 0x7ff8_0000_0000_0000),
            DType::F8E4M3FN => Format { top: TopCodes::OneNan, ..ieee(4, 3, 0x7f) },
            DType::F8E5M2 => Format { top: TopCodes::IeeeSaturating, ..ieee(5, 2, 0x7f) },
            DType::F8E5M3FNU => Format { top: TopCodes::OneNan, signed: false, ..ieee(5, 3, 0xff) },
            // NaN converts to the largest value (PTX cvt to e2m1x2).
            DType::F4E2M1FN => Format { top: TopCodes::Numbers, ..ieee(2, 1, 0x7) },
            DType::F8E8M0FNU | DType::I1 | DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
                return None;
            }
        })
    }

    /// Returns the mask of the exponent and mantissa fields.
    const fn magnitude_mask(&self) -> u64 {
        (1 << (self.exponent_bits + self.mantissa_bits)) - 1
    }

    /// Returns the magnitude of infinity, for formats with infinity.
    const fn infinity(&self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }

    /// Returns the largest finite magnitude.
    const fn max_finite(&self) -> u64 {
        match self.top {
            TopCodes::Ieee | TopCodes::IeeeSaturating => self.infinity() - 1,
            TopCodes::OneNan => self.magnitude_mask() - 1,
            TopCodes::Numbers => self.magnitude_mask(),
        }
    }

    const fn sign_bit(&self) -> u64 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }
}

/// A nonzero finite number `± significand · 2^exponent`, exact or *jammed*: bits below the lowest
/// one are folded into it as a 1. So each rounding to at most 120 bits is correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exact {
    pub negative: bool,
    /// Invariant: not zero.
    pub significand: u128,
    pub exponent: i32,
}

impl Exact {
    /// Returns the parts of a finite nonzero number.
    pub fn of(value: f64) -> Exact {
        debug_assert!(value.is_finite() && value != 0.0);
        let bits = value.to_bits();
        let (field, mantissa) = ((bits >> 52) as i32 & 0x7ff, bits & ((1 << 52) - 1));
        let significand = if field == 0 { mantissa } else { mantissa | 1 << 52 };
        Exact { negative: value.is_sign_negative(), significand: significand as u128, exponent: field.max(1) - 1075 }
    }

    /// Returns the parts of a nonzero integer.
    pub fn of_integer(value: i128) -> Exact {
        debug_assert!(value != 0);
        Exact { negative: value < 0, significand: value.unsigned_abs(), exponent: 0 }
    }

    /// Returns the position of the highest bit: the exponent in scientific notation.
    pub fn log2(self) -> i32 {
        self.exponent + self.significand.ilog2() as i32
    }
}

/// Returns `value >> shift` with the dropped bits jammed into the lowest bit.
pub(crate) fn shift_right_jam(value: u128, shift: u32) -> u128 {
    match shift {
        0 => value,
        1..=127 => value >> shift | u128::from(value << (128 - shift) != 0),
        _ => u128::from(value != 0),
    }
}

/// Returns true if the magnitude increases by one unit. `odd` is the parity of the kept part, and
/// `tail` has the two bits below it: half bit, sticky bit.
fn rounds_up(rounding: Rounding, negative: bool, odd: bool, tail: u128) -> bool {
    match rounding {
        Rounding::NearestEven | Rounding::Approx | Rounding::Full => tail == 3 || tail == 2 && odd,
        Rounding::NearestAway => tail >= 2,
        Rounding::Zero | Rounding::IntToZero => false,
        Rounding::NegInf => negative && tail != 0,
        Rounding::PosInf => !negative && tail != 0,
    }
}

/// Returns true if overflow on this side results in infinity.
fn overflows_to_infinity(rounding: Rounding, negative: bool) -> bool {
    match rounding {
        Rounding::NearestEven | Rounding::NearestAway | Rounding::Approx | Rounding::Full => true,
        Rounding::Zero | Rounding::IntToZero => false,
        Rounding::NegInf => negative,
        Rounding::PosInf => !negative,
    }
}

/// Rounds a nonzero number once to a pattern of `dtype` (a float type).
///
/// # Panics
/// If `dtype` is an integer type (a defect of the caller).
pub(crate) fn round(dtype: DType, value: Exact, rounding: Rounding) -> u64 {
    if dtype == DType::F8E8M0FNU {
        return round_e8m0(value, rounding);
    }
    round_to(&Format::of(dtype).expect("a float type"), value, rounding)
}

fn round_to(format: &Format, value: Exact, rounding: Rounding) -> u64 {
    let mantissa_bits = format.mantissa_bits as i32;
    // The unit in the last place. Subnormal numbers have that of the smallest normal number.
    let min_log2 = 1 - format.bias;
    let log2 = value.log2().max(min_log2);
    let unit = log2 - mantissa_bits;
    // The rounding needs two bits below the unit, so the significand is in quarter units.
    let shift = unit - 2 - value.exponent;
    let quarters = match shift {
        ..=0 => value.significand << -shift,
        _ => shift_right_jam(value.significand, shift as u32),
    };
    let kept = (quarters >> 2) as u64;
    let up = rounds_up(rounding, value.negative, kept & 1 == 1, quarters & 3);
    // The hidden bit of a normal number adds one to the exponent field, and so does a carry out of
    // the mantissa.
    let magnitude = (((log2 - min_log2) as u64) << mantissa_bits).wrapping_add(kept + up as u64);
    let magnitude = if log2 - min_log2 >= 1 << format.exponent_bits || magnitude > format.max_finite() {
        overflow(format, value.negative, rounding)
    } else {
        magnitude
    };
    place(format, value.negative, magnitude)
}

fn overflow(format: &Format, negative: bool, rounding: Rounding) -> u64 {
    match format.top {
        TopCodes::Ieee if overflows_to_infinity(rounding, negative) => format.infinity(),
        _ => format.max_finite(),
    }
}

/// Returns the word of a sign and a magnitude. Without a sign bit, negative numbers become 0.
fn place(format: &Format, negative: bool, magnitude: u64) -> u64 {
    match (negative, format.signed) {
        (true, true) => (format.sign_bit() | magnitude) << format.pad_bits,
        (true, false) => 0,
        (false, _) => magnitude << format.pad_bits,
    }
}

/// Returns a power of two, 2^(pattern - 127). The sign is ignored, and magnitudes below the
/// smallest one become the smallest.
fn round_e8m0(value: Exact, rounding: Rounding) -> u64 {
    let log2 = value.log2();
    let below = value.significand ^ (1 << value.significand.ilog2());
    let half = 1u128 << value.significand.ilog2() >> 1;
    let up = match rounding {
        Rounding::Zero | Rounding::NegInf | Rounding::IntToZero => false,
        Rounding::PosInf => below != 0,
        Rounding::NearestEven | Rounding::NearestAway | Rounding::Approx | Rounding::Full => half != 0 && below >= half,
    };
    (log2 + up as i32 + 127).clamp(0, 254) as u64
}

/// Returns the exact value of a bit pattern of a float type.
///
/// f64 represents all formats. NaNs become NaNs of f64.
///
/// ```
/// use cutlet::dtype::DType;
/// assert_eq!(cutlet::float_codec::decode(DType::F8E4M3FN, 0x7e), 448.0);
/// assert_eq!(cutlet::float_codec::decode(DType::F16, 0xc000), -2.0);
/// ```
///
/// # Panics
/// If `dtype` is an integer type (a defect of the caller).
pub fn decode(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F64 => return f64::from_bits(bits),
        DType::F32 | DType::TF32 => return f32::from_bits(bits as u32) as f64,
        DType::BF16 => return f32::from_bits((bits as u32) << 16) as f64,
        DType::F8E8M0FNU => return if bits & 0xff == 0xff { f64::NAN } else { power_of_two(bits as i32 - 127) },
        _ => {}
    }
    decode_from(&Format::of(dtype).expect("a float type"), bits)
}

fn decode_from(format: &Format, bits: u64) -> f64 {
    let magnitude = bits & format.magnitude_mask();
    let (field, mantissa) = (magnitude >> format.mantissa_bits, magnitude & ((1 << format.mantissa_bits) - 1));
    let unit = power_of_two((field.max(1) as i32) - format.bias - format.mantissa_bits as i32);
    let value = match format.top {
        TopCodes::Ieee | TopCodes::IeeeSaturating if magnitude == format.infinity() => f64::INFINITY,
        _ if magnitude > format.max_finite() => f64::NAN,
        _ if field == 0 => mantissa as f64 * unit,
        _ => (mantissa + (1 << format.mantissa_bits)) as f64 * unit,
    };
    if format.signed && bits & format.sign_bit() != 0 { -value } else { value }
}

/// Returns 2^exponent for exponents of normal f64 numbers.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Returns the bits of elements outside of an array.
pub(crate) fn padding_bits(dtype: DType, padding: Padding) -> u64 {
    let value = match padding {
        Padding::Zero => return 0,
        Padding::NegZero => -0.0,
        Padding::NaN => f64::NAN,
        Padding::PosInf => f64::INFINITY,
        Padding::NegInf => f64::NEG_INFINITY,
    };
    encode(dtype, value, Rounding::NearestEven)
}

/// Returns the bit pattern of `value` in a float type, rounded once.
///
/// `Approx` and `Full` round to nearest even, `IntToZero` rounds to zero. f8E8M0FNU has no sign and
/// no zero: it represents the magnitude, and zero becomes its smallest number.
///
/// ```
/// use cutlet::{dtype::DType, ir::Rounding};
/// assert_eq!(cutlet::float_codec::encode(DType::F16, 1.0, Rounding::NearestEven), 0x3c00);
/// assert_eq!(cutlet::float_codec::encode(DType::F8E5M2, 1e9, Rounding::NearestEven), 0x7b);
/// ```
///
/// # Panics
/// If `dtype` is an integer type (a defect of the caller).
pub fn encode(dtype: DType, value: f64, rounding: Rounding) -> u64 {
    match dtype {
        DType::F64 => return value.to_bits(),
        DType::F32 if rounding == Rounding::NearestEven => return (value as f32).to_bits() as u64,
        DType::F8E8M0FNU if value.is_nan() => return 0xff,
        DType::F8E8M0FNU if value.is_infinite() => return 0xfe,
        DType::F8E8M0FNU if value == 0.0 => return 0,
        _ => {}
    }
    match Format::of(dtype) {
        Some(format) => encode_to(&format, value, rounding),
        // The scale format, after NaN, infinity and zero.
        None => round(dtype, Exact::of(value), rounding),
    }
}

fn encode_to(format: &Format, value: f64, rounding: Rounding) -> u64 {
    let negative = value.is_sign_negative();
    if value.is_nan() {
        format.nan << format.pad_bits
    } else if value == 0.0 {
        place(format, negative, 0)
    } else if value.is_infinite() {
        place(format, negative, if format.top == TopCodes::Ieee { format.infinity() } else { format.max_finite() })
    } else {
        round_to(format, Exact::of(value), rounding)
    }
}

/// Returns a format of fewer than 8 bits with a sign and the bias of IEEE 754, whose codes are all
/// numbers.
const fn narrow(exponent_bits: u32, mantissa_bits: u32) -> Format {
    let most = (1 << (exponent_bits + mantissa_bits)) - 1;
    Format { top: TopCodes::Numbers, ..ieee(exponent_bits, mantissa_bits, most) }
}

/// Returns the value of a code of a float with a sign bit and these exponent and mantissa bits,
/// whose codes are all numbers.
pub(crate) fn decode_narrow(exponent_bits: u32, mantissa_bits: u32, code: u64) -> f64 {
    decode_from(&narrow(exponent_bits, mantissa_bits), code)
}

/// Returns the code of the nearest number of a format as in [`decode_narrow`], ties to even. Large
/// numbers saturate, NaN becomes the largest number.
pub(crate) fn encode_narrow(exponent_bits: u32, mantissa_bits: u32, value: f64) -> u64 {
    encode_to(&narrow(exponent_bits, mantissa_bits), value, Rounding::NearestEven)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    const MODES: [Rounding; 5] =
        [Rounding::NearestEven, Rounding::Zero, Rounding::NegInf, Rounding::PosInf, Rounding::NearestAway];
    const SMALL: [DType; 7] =
        [DType::F16, DType::BF16, DType::F8E4M3FN, DType::F8E5M2, DType::F8E5M3FNU, DType::F4E2M1FN, DType::F8E8M0FNU];

    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = (*state ^ (*state >> 29)).wrapping_mul(0xbf58476d1ce4e5b9);
        x ^ (x >> 32)
    }

    #[test]
    fn decode_agrees_with_half() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (decode(DType::F16, bits as u64), f16::from_bits(bits).to_f64());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "f16 {bits:#06x}");
            let (ours, theirs) = (decode(DType::BF16, bits as u64), bf16::from_bits(bits).to_f64());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "bf16 {bits:#06x}");
        }
    }

    #[test]
    fn decode_of_small_formats() {
        let e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (code, &value) in e2m1.iter().enumerate() {
            assert_eq!(decode(DType::F4E2M1FN, code as u64), value);
            assert_eq!(decode(DType::F4E2M1FN, code as u64 + 8).to_bits(), (-value).to_bits());
        }
        let known = [
            (DType::F8E4M3FN, 0x01, 2f64.powi(-9)),
            (DType::F8E4M3FN, 0x08, 2f64.powi(-6)),
            (DType::F8E4M3FN, 0x38, 1.0),
            (DType::F8E4M3FN, 0x3c, 1.5),
            (DType::F8E4M3FN, 0x7e, 448.0),
            (DType::F8E4M3FN, 0xfe, -448.0),
            (DType::F8E5M2, 0x01, 2f64.powi(-16)),
            (DType::F8E5M2, 0x3c, 1.0),
            (DType::F8E5M2, 0x7b, 57344.0),
            (DType::F8E5M2, 0xfc, f64::NEG_INFINITY),
            (DType::F8E5M3FNU, 0x01, 2f64.powi(-17)),
            (DType::F8E5M3FNU, 0x78, 1.0),
            (DType::F8E5M3FNU, 0xfe, 114688.0),
            (DType::F8E8M0FNU, 0x00, 2f64.powi(-127)),
            (DType::F8E8M0FNU, 0x7f, 1.0),
            (DType::F8E8M0FNU, 0xfe, 2f64.powi(127)),
            (DType::TF32, 0x3f80_2000, 1.0 + 2f64.powi(-10)),
        ];
        for (dtype, code, value) in known {
            assert_eq!(decode(dtype, code), value, "{dtype} {code:#x}");
        }
        for (dtype, code) in [
            (DType::F8E4M3FN, 0x7f),
            (DType::F8E4M3FN, 0xff),
            (DType::F8E5M2, 0x7d),
            (DType::F8E5M2, 0xff),
            (DType::F8E5M3FNU, 0xff),
            (DType::F8E8M0FNU, 0xff),
        ] {
            assert!(decode(dtype, code).is_nan(), "{dtype} {code:#x}");
        }
    }

    #[test]
    fn every_code_survives_every_mode() {
        for dtype in SMALL {
            for code in 0..1u64 << dtype.bits() {
                let value = decode(dtype, code);
                for mode in MODES {
                    let back = encode(dtype, value, mode);
                    if value.is_nan() {
                        assert!(decode(dtype, back).is_nan(), "{dtype} {code:#x}");
                    } else if !(value.is_infinite() && dtype == DType::F8E5M2) {
                        assert_eq!(back, code, "{dtype} {mode:?}");
                    }
                }
            }
        }
    }

    /// Definition of rounding by search: the neighbours of `value` among the finite numbers of a
    /// format.
    fn by_search(values: &[f64], value: f64, mode: Rounding) -> f64 {
        let above = values.partition_point(|&v| v < value);
        if above < values.len() && values[above] == value {
            return value;
        }
        let (low, high) = match (above.checked_sub(1).map(|i| values[i]), values.get(above)) {
            (Some(low), Some(&high)) => (low, high),
            (Some(only), None) => return only,
            (None, Some(&only)) => return only,
            (None, None) => unreachable!(),
        };
        // Codes count magnitudes upward from zero, whose code is 0.
        let is_even =
            |v: f64| values.iter().filter(|w| (0.0..v.abs()).contains(&w.abs()) && (**w >= 0.0)).count() % 2 == 0;
        match mode {
            Rounding::NegInf => low,
            Rounding::PosInf => high,
            Rounding::Zero => {
                if value < 0.0 {
                    high
                } else {
                    low
                }
            }
            _ if value - low != high - value => {
                if value - low < high - value {
                    low
                } else {
                    high
                }
            }
            Rounding::NearestAway => {
                if value < 0.0 {
                    low
                } else {
                    high
                }
            }
            _ if is_even(low) => low,
            _ => high,
        }
    }

    #[test]
    fn small_formats_round_like_a_search() {
        for dtype in [DType::F8E4M3FN, DType::F8E5M2, DType::F8E5M3FNU, DType::F4E2M1FN] {
            let mut values: Vec<f64> =
                (0..1u64 << dtype.bits()).map(|c| decode(dtype, c)).filter(|v| v.is_finite()).collect();
            values.sort_by(f64::total_cmp);
            values.dedup_by(|a, b| *a == *b);
            let mut probes: Vec<f64> = values.windows(2).map(|w| (w[0] + w[1]) / 2.0).collect();
            probes.extend(probes.clone().iter().flat_map(|p| [p.next_up(), p.next_down()]));
            let mut state = 7;
            probes.extend((0..500).map(|_| {
                let v = f64::from_bits(random(&mut state));
                if v.is_finite() { v } else { 3.0 }
            }));
            let largest = values[values.len() - 1];
            probes.extend((0..2000).map(|_| (random(&mut state) as f64 / 2f64.powi(63) - 1.0) * largest * 1.1));
            for value in probes {
                for mode in MODES {
                    let expected = by_search(&values, value, mode);
                    let ours = decode(dtype, encode(dtype, value, mode));
                    assert_eq!(ours, expected, "{dtype} {value:e} {mode:?}");
                }
            }
        }
    }

    #[test]
    fn wide_formats_round_between_neighbours() {
        let mut state = 1;
        for dtype in [DType::F16, DType::BF16, DType::TF32, DType::F32] {
            let step = if dtype == DType::TF32 { 1 << 13 } else { 1 };
            let infinity = encode(dtype, f64::INFINITY, Rounding::NearestEven);
            for _ in 0..20_000 {
                let code = random(&mut state) % infinity / step * step;
                let (low, next) = (decode(dtype, code), code + step);
                // The number after the largest one is infinity, but the tie is at the position of
                // the next finite number.
                let high = if next == infinity { 2.0 * low - decode(dtype, code - step) } else { decode(dtype, next) };
                let middle = (low + high) / 2.0;
                let even = if (code / step).is_multiple_of(2) { code } else { next };
                assert_eq!(encode(dtype, middle, Rounding::NearestEven), even, "{dtype} {middle:e}");
                assert_eq!(encode(dtype, middle, Rounding::NearestAway), next);
                assert_eq!(encode(dtype, middle.next_down(), Rounding::NearestAway), code);
                assert_eq!(encode(dtype, middle.next_up(), Rounding::NearestEven), next);
                let sign = encode(dtype, -0.0, Rounding::Zero);
                for inside in [low.next_up(), middle, high.next_down()] {
                    assert_eq!(encode(dtype, inside, Rounding::Zero), code, "{dtype} {inside:e}");
                    assert_eq!(encode(dtype, inside, Rounding::NegInf), code);
                    assert_eq!(encode(dtype, inside, Rounding::PosInf), next);
                    assert_eq!(encode(dtype, -inside, Rounding::Zero), sign | code);
                    assert_eq!(encode(dtype, -inside, Rounding::NegInf), sign | next);
                    assert_eq!(encode(dtype, -inside, Rounding::PosInf), sign | code);
                }
            }
        }
    }

    #[test]
    fn f64_sums_round_once() {
        let mut state = 3;
        for _ in 0..100_000 {
            let x = f64::from_bits(random(&mut state) & !(0x7ff << 52) | (1023 + random(&mut state) % 40 - 20) << 52);
            assert_eq!(encode(DType::F32, x, Rounding::NearestEven), (x as f32).to_bits() as u64);
            assert_eq!(round(DType::F32, Exact::of(x), Rounding::NearestEven), (x as f32).to_bits() as u64);
            assert_eq!(round(DType::F64, Exact::of(x), Rounding::PosInf), x.to_bits());
            let single = x as f32;
            assert_eq!(
                encode(DType::F16, single as f64, Rounding::NearestEven),
                f16::from_f32(single).to_bits() as u64
            );
            assert_eq!(
                encode(DType::BF16, single as f64, Rounding::NearestEven),
                bf16::from_f32(single).to_bits() as u64
            );
        }
        for tiny in [f64::from_bits(1), f64::MIN_POSITIVE / 4.0, -f64::from_bits(3)] {
            assert_eq!(round(DType::F64, Exact::of(tiny), Rounding::NearestEven), tiny.to_bits());
        }
    }

    #[test]
    fn scales_take_the_magnitude() {
        for (value, down, up) in
            [(1.5, 0x7f, 0x80), (-1.5, 0x7f, 0x80), (1.0, 0x7f, 0x7f), (0.0, 0, 0), (1e-60, 0, 0), (1e60, 0xfe, 0xfe)]
        {
            assert_eq!(encode(DType::F8E8M0FNU, value, Rounding::Zero), down, "{value}");
            assert_eq!(encode(DType::F8E8M0FNU, value, Rounding::PosInf), up, "{value}");
        }
        assert_eq!(encode(DType::F8E8M0FNU, f64::NAN, Rounding::Zero), 0xff);
    }

    #[test]
    fn overflow_and_specials() {
        use Rounding::{NearestEven, NegInf, PosInf, Zero};
        let cases = [
            (DType::F8E4M3FN, 1e9, NearestEven, 0x7e),
            (DType::F8E4M3FN, f64::NEG_INFINITY, NearestEven, 0xfe),
            (DType::F8E5M2, f64::INFINITY, NearestEven, 0x7b),
            (DType::F4E2M1FN, -1e9, NearestEven, 0xf),
            (DType::F4E2M1FN, f64::NAN, NearestEven, 0x7),
            (DType::F16, 65519.0, NearestEven, 0x7bff),
            (DType::F16, 65520.0, NearestEven, 0x7c00),
            (DType::F16, 1e9, Zero, 0x7bff),
            (DType::F16, 1e9, NegInf, 0x7bff),
            (DType::F16, -1e9, NegInf, 0xfc00),
            (DType::F16, 1e-300, PosInf, 0x0001),
            (DType::F16, -0.0, NearestEven, 0x8000),
            (DType::F8E5M3FNU, -3.0, NearestEven, 0),
        ];
        for (dtype, value, mode, code) in cases {
            assert_eq!(encode(dtype, value, mode), code, "{dtype} {value} {mode:?}");
        }
    }
}
