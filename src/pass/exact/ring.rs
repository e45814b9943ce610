//! Ring of exact mode: integers modulo a power of two, the numbers of a kernel in it, and the
//! encodings of float patterns in memory.
//!
//! * A constant or scalar argument `m * 2^e` with odd `m` is `m << e`, and `m * HALF^-e` if `e` is
//!   negative. Integers are therefore themselves, and products of fractions are products.
//! * A pattern in memory is mapped by a bijection ([`Encoding`]) with 0 -> 0, 1 -> 1 and
//!   `-x` -> negative. It is affine multiplications around one xor-shift.

use crate::dtype::DType;
use crate::types::float_codec;

/// Element that replaces 2^-1 in fractions. Any odd number is valid.
pub const HALF: u64 = 0x9e37_79b9_7f4a_7c15;
/// A quarter of the 2-adic logarithm of `exp2(1)`. Any odd number is valid.
const RATE: u64 = 0xd1b5_4a32_d192_ed03;
/// Odd factors of one-way tags.
pub const TAG_FACTORS: [u64; 3] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xff51_afd7_ed55_8ccd];
/// Magnitude from which on a number is an infinity: substitutes such as `f32::MIN` are infinities.
pub const INFINITE_EXPONENT: i32 = 99;

/// The ring of a module: its integer type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ring(pub DType);

impl Ring {
    pub fn bits(self) -> u32 {
        self.0.bits()
    }

    pub fn mask(self) -> u64 {
        low_bits(self.bits())
    }

    /// Returns the element of infinity, the largest in the signed order.
    pub fn infinity(self) -> u64 {
        self.mask() >> 1
    }

    /// Returns the element of negative infinity, the smallest in the signed order.
    pub fn negative_infinity(self) -> u64 {
        self.infinity() + 1
    }

    /// Returns the element of a number of the kernel. NaN is infinity.
    pub fn number(self, value: f64) -> u64 {
        if value.is_nan() || value.abs() >= 2f64.powi(INFINITE_EXPONENT) {
            return if value < 0.0 { self.negative_infinity() } else { self.infinity() };
        }
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & low_bits(52));
        let significand = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        if significand == 0 {
            return 0;
        }
        let zeros = significand.trailing_zeros();
        let (odd, power) = (significand >> zeros, exponent.max(1) - 1075 + zeros as i32);
        let magnitude = match u32::try_from(power) {
            Ok(shift) => odd.checked_shl(shift).unwrap_or(0),
            Err(_) => odd.wrapping_mul(wrapping_power(HALF, power.unsigned_abs())),
        };
        (if value < 0.0 { magnitude.wrapping_neg() } else { magnitude }) & self.mask()
    }
}

/// Returns a word whose `count` low bits are set.
pub fn low_bits(count: u32) -> u64 {
    u64::MAX.checked_shr(64 - count).unwrap_or(0)
}

pub fn wrapping_power(base: u64, exponent: u32) -> u64 {
    (0..32).rev().fold(1u64, |power, bit| {
        let square = power.wrapping_mul(power);
        if exponent >> bit & 1 == 1 { square.wrapping_mul(base) } else { square }
    })
}

/// Returns the inverse of an odd number modulo 2^64, by Newton's iteration.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd.wrapping_mul(3) ^ 2, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// Returns the coefficient of `x^k` of `exp2(x << shift)`, a 2-adic power series:
/// `(4 * RATE << shift)^k / k!` modulo 2^64.
pub fn exp2_coefficient(k: u32, shift: u32) -> u64 {
    let odd = (1..=u64::from(k)).fold(1u64, |product, i| product.wrapping_mul(i >> i.trailing_zeros()));
    let power = (2 + shift) * k - (k - k.count_ones());
    let unit = wrapping_power(RATE, k).wrapping_mul(inverse(odd));
    unit.checked_shl(power).unwrap_or(0)
}

/// Returns `exp2(1 << shift)`.
pub fn exp2_of_bit(shift: u32) -> u64 {
    (0..64).fold(0u64, |sum, k| sum.wrapping_add(exp2_coefficient(k, shift)))
}

/// Returns a word that differs by op.
pub fn tag_of(name: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Bijection between the patterns of a float type and the integers of the same width.
///
/// The magnitude `m` becomes `y = (scatter((m ^ flip) * first) * second) ^ offset`, with
/// `scatter(v) = v ^ (v >> shift)`. A pattern with a sign bit becomes `-y`, and negative zero the
/// most negative integer.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    /// Bits of the pattern without the sign.
    pub magnitude_bits: u32,
    pub is_signed: bool,
    pub shift: u32,
    pub flip: u64,
    pub offset: u64,
    pub first: u64,
    pub second: u64,
    /// Inverses of `first` and `second`.
    pub inverses: [u64; 2],
}

impl Encoding {
    /// Returns the encoding of a float type.
    pub fn of(dtype: DType) -> Encoding {
        let is_signed = !matches!(dtype, DType::F8E8M0FNU | DType::F8E5M3FNU);
        let magnitude_bits = dtype.storage_bits() - u32::from(is_signed);
        let mask = low_bits(magnitude_bits);
        let first = TAG_FACTORS[1] & mask;
        let one = float_codec::encode(dtype, 1.0, crate::ir::Rounding::NearestEven);
        // The products of 0 and 1 differ in the lowest set bit of 1. The shift moves it to bit 0.
        let shift = match one.trailing_zeros() {
            0 => magnitude_bits.div_ceil(2),
            zeros => zeros,
        };
        let scattered = |pattern: u64, flip: u64| {
            let product = (pattern ^ flip).wrapping_mul(first) & mask;
            product ^ product >> shift
        };
        // The images of 0 and 1 differ by an odd number, so that a factor makes them adjacent.
        let flips = (0u64..64).map(|i| HALF.wrapping_mul(2 * i + 1) >> 7 & mask);
        let flip = flips.into_iter().find(|&flip| (scattered(0, flip) ^ scattered(one, flip)) & 1 == 1);
        let flip = flip.expect("half of all words have this property");
        let (zero, one) = (scattered(0, flip), scattered(one, flip));
        let step = inverse(one.wrapping_sub(zero));
        let second = if zero & 1 == 0 { step } else { step.wrapping_neg() } & mask;
        let offset = zero.wrapping_mul(second) & mask;
        let inverses = [inverse(first) & mask, inverse(second) & mask];
        Encoding { magnitude_bits, is_signed, shift, flip, offset, first, second, inverses }
    }

    pub fn mask(&self) -> u64 {
        low_bits(self.magnitude_bits)
    }

    /// Returns the shifts of the xor-shifts that undo `scatter`, one after another.
    pub fn gathering_shifts(&self) -> impl Iterator<Item = u32> + use<> {
        let bits = self.magnitude_bits;
        std::iter::successors(Some(self.shift), |shift| Some(2 * shift)).take_while(move |&shift| shift < bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Ring = Ring(DType::I32);

    /// As `Exact::embed`.
    fn embedded(encoding: &Encoding, pattern: u64) -> u64 {
        let (mask, bit) = (encoding.mask(), pattern >> encoding.magnitude_bits);
        let product = (pattern & mask ^ encoding.flip).wrapping_mul(encoding.first) & mask;
        let y = ((product ^ product >> encoding.shift).wrapping_mul(encoding.second) & mask) ^ encoding.offset;
        if bit == 0 {
            y
        } else if y == 0 {
            !mask
        } else {
            y.wrapping_neg()
        }
    }

    #[test]
    fn encodings_are_bijections_that_keep_zero_one_and_signs() {
        use DType::{BF16, F4E2M1FN, F8E4M3FN, F8E5M2, F8E5M3FNU, F8E8M0FNU, F16, F32, F64};
        for dtype in [BF16, F4E2M1FN, F8E4M3FN, F8E5M2, F8E5M3FNU, F8E8M0FNU, F16] {
            let encoding = Encoding::of(dtype);
            let mut all: Vec<u64> = (0..1 << dtype.bits()).map(|pattern| embedded(&encoding, pattern)).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 1 << dtype.bits(), "{dtype}");
        }
        for dtype in [BF16, F4E2M1FN, F8E4M3FN, F8E5M2, F16, F32, F64] {
            let encoding = Encoding::of(dtype);
            let of =
                |value: f64| embedded(&encoding, float_codec::encode(dtype, value, crate::ir::Rounding::NearestEven));
            assert_eq!([of(0.0), of(1.0), of(-1.0)], [0, 1, u64::MAX], "{dtype}");
            assert_eq!(of(-1.5), of(1.5).wrapping_neg(), "{dtype}");
        }
    }

    #[test]
    fn numbers_are_multiplicative_and_integers_are_themselves() {
        for n in [0.0, 1.0, 2.0, 3.0, 1000.0, 65536.0] {
            assert_eq!(RING.number(n), n as u64);
            assert_eq!(RING.number(-n), (n as u64).wrapping_neg() & RING.mask());
        }
        let product = |a: f64, b: f64| RING.number(a).wrapping_mul(RING.number(b)) & RING.mask();
        for (a, b) in [(0.5, 0.25), (0.75, 0.375), (-0.1f32 as f64, 0.5), (3.0, 7.0)] {
            assert_eq!(product(a, b), RING.number(a * b), "{a} * {b}");
        }
        assert_eq!(RING.number(f64::NEG_INFINITY), 0x8000_0000);
        assert_eq!([f32::MIN.into(), -1e30].map(|number| RING.number(number)), [0x8000_0000; 2]);
        assert_eq!(RING.number(f64::INFINITY), 0x7fff_ffff);
    }

    #[test]
    fn the_power_series_is_a_homomorphism() {
        let power =
            |x: u64| (0..64).rev().fold(0u64, |sum, k| sum.wrapping_mul(x).wrapping_add(exp2_coefficient(k, 0)));
        assert_eq!(power(0), 1);
        assert_eq!(power(1), exp2_of_bit(0));
        assert_eq!(power(8), exp2_of_bit(3));
        for (x, y) in [(1, 1), (3, 4), (0x1234_5678_9abc, 77), (u64::MAX, 1)] {
            assert_eq!(power(x).wrapping_mul(power(y)), power(x.wrapping_add(y)), "{x} + {y}");
        }
    }
}
