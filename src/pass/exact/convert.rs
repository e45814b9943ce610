//! Conversions between patterns of floats and elements of the ring.

use super::ring::{Encoding, HALF, INFINITE_EXPONENT, low_bits, wrapping_power};
use super::state::Exact;
use super::types::pattern_type;
use crate::dtype::DType;
use crate::ir::{CmpPred, Elem, Opcode, Sign, Value};
use crate::util::collect::CollectVec as _;

/// Fields of a pattern: bits of the fraction and of the exponent, and the bias.
fn format_of(dtype: DType) -> Option<(u32, u32, i32)> {
    match dtype {
        DType::F16 => Some((10, 5, 15)),
        DType::BF16 => Some((7, 8, 127)),
        DType::F32 | DType::TF32 => Some((23, 8, 127)),
        DType::F64 => Some((52, 11, 1023)),
        _ => None,
    }
}

impl Exact<'_> {
    /// Emits the element of the ring of a pattern from memory.
    pub fn embed(&mut self, pattern: Value, dtype: DType) -> Value {
        let encoding = Encoding::of(dtype);
        let mask = encoding.mask();
        let bits = self.resize(pattern, self.ring.0, Sign::Unsigned);
        let magnitude = self.and_constant(bits, mask);
        let flipped = self.xor_constant(magnitude, encoding.flip);
        let product = self.mul_constant(flipped, encoding.first);
        let product = self.and_constant(product, mask);
        let high = self.shift_right(product, encoding.shift);
        let scattered = self.xor(product, high);
        let product = self.mul_constant(scattered, encoding.second);
        let product = self.and_constant(product, mask);
        let unsigned = self.xor_constant(product, encoding.offset);
        if !encoding.is_signed {
            return unsigned;
        }
        let sign = self.shift_right(bits, encoding.magnitude_bits);
        let minus = self.negate(sign);
        let flipped = self.xor(unsigned, minus);
        let signed = self.add(flipped, sign);
        let is_negative_zero = self.is_equal_to(bits, mask + 1);
        let smallest = self.constant(bits, !mask);
        self.select(is_negative_zero, smallest, signed)
    }

    /// Emits the pattern in memory of an element of the ring, of which the low bits are stored.
    pub fn unembed(&mut self, element: Value, dtype: DType) -> Value {
        let encoding = Encoding::of(dtype);
        let mask = encoding.mask();
        let (mut magnitude, mut sign) = (element, None);
        if encoding.is_signed {
            let bit = self.shift_right(element, encoding.magnitude_bits);
            let bit = self.and_constant(bit, 1);
            let minus = self.negate(bit);
            let flipped = self.xor(element, minus);
            magnitude = self.add(flipped, bit);
            sign = Some(bit);
        }
        let scattered = self.xor_constant(magnitude, encoding.offset);
        let product = self.mul_constant(scattered, encoding.inverses[1]);
        let product = self.and_constant(product, mask);
        let mut gathered = product;
        for shift in encoding.gathering_shifts() {
            let high = self.shift_right(gathered, shift);
            gathered = self.xor(gathered, high);
        }
        let product = self.mul_constant(gathered, encoding.inverses[0]);
        let product = self.and_constant(product, mask);
        let mut bits = self.xor_constant(product, encoding.flip);
        if let Some(bit) = sign {
            let count = self.constant(bit, encoding.magnitude_bits.into());
            let bit = self.shift_left(bit, count);
            bits = self.or(bits, bit);
        }
        self.resize(bits, pattern_type(dtype), Sign::Unsigned)
    }

    /// Emits a float whose pattern is that of an element in memory, for messages.
    pub fn printable(&mut self, element: Value, dtype: DType) -> Value {
        let bits = self.unembed(element, dtype);
        let shape = self.ops.shape(bits);
        self.ops.emit_one(Opcode::Bitcast, &[bits], vec![], Elem::Num(dtype), &shape)
    }

    /// Emits the element of the ring of a scalar argument, by the rule of constants. `None` if the
    /// float type has no arithmetic.
    pub fn argument(&mut self, float: Value) -> Option<Value> {
        let dtype = self.ops.module.dtype(float);
        let (fraction_bits, exponent_bits, bias) = format_of(dtype)?;
        let bits = self.ops.emit_one(Opcode::Bitcast, &[float], vec![], Elem::Num(pattern_type(dtype)), &[]);
        let bits = self.resize(bits, self.ring.0, Sign::Unsigned);
        let fraction = self.and_constant(bits, low_bits(fraction_bits));
        let exponent = self.shift_right(bits, fraction_bits);
        let exponent = self.and_constant(exponent, low_bits(exponent_bits));
        let sign = self.shift_right(bits, fraction_bits + exponent_bits);
        let is_negative = self.is_equal_to(sign, 1);
        // Subnormal numbers have the exponent of the smallest normal one, and no hidden bit.
        let one = self.constant(bits, 1);
        let hidden = self.extremum(Opcode::MinI, exponent, one);
        let count = self.constant(bits, fraction_bits.into());
        let hidden = self.shift_left(hidden, count);
        let significand = self.or(fraction, hidden);
        let field = self.extremum(Opcode::MaxI, exponent, one);
        let power = self.add_constant(field, i64::from(-bias - fraction_bits as i32) as u64);
        let magnitude = self.scaled(significand, power, fraction_bits + bias as u32);
        let infinite_from = ((bias + INFINITE_EXPONENT) as u64).min(low_bits(exponent_bits));
        let least = self.constant(exponent, infinite_from);
        let is_infinite = self.compare(CmpPred::Ge, Sign::Signed, exponent, least);
        let negative = self.negate(magnitude);
        let finite = self.select(is_negative, negative, magnitude);
        let (low, high) = (self.ring.negative_infinity(), self.ring.infinity());
        let [low, high] = [low, high].map(|number| self.constant(bits, number));
        let infinity = self.select(is_negative, low, high);
        Some(self.select(is_infinite, infinity, finite))
    }

    /// Emits `significand * 2^power`, where negative powers of 2 are powers of `HALF`, and `power`
    /// is at least `-deepest`.
    fn scaled(&mut self, significand: Value, power: Value, deepest: u32) -> Value {
        let bits = self.ring.bits();
        let zero = self.constant(power, 0);
        let left = self.extremum(Opcode::MaxI, power, zero);
        let most = self.constant(power, u64::from(bits) - 1);
        let is_outside = self.compare(CmpPred::Gt, Sign::Signed, left, most);
        let within = self.extremum(Opcode::MinI, left, most);
        let shifted = self.shift_left(significand, within);
        let large = self.select(is_outside, zero, shifted);
        let negative = self.negate(power);
        let (mut odd, mut count) = (significand, self.extremum(Opcode::MaxI, negative, zero));
        for step in (0..bits.ilog2()).rev().map(|bit| 1u32 << bit) {
            let low = self.and_constant(odd, low_bits(step));
            let is_even = self.is_equal_to(low, 0);
            let least = self.constant(count, step.into());
            let is_deep = self.compare(CmpPred::Ge, Sign::Signed, count, least);
            let both = self.and(is_even, is_deep);
            let [shifted, less] = [self.shift_right(odd, step), self.sub(count, least)];
            odd = self.select(both, shifted, odd);
            count = self.select(both, less, count);
        }
        let factors: Vec<u64> = (0..=deepest.ilog2()).map(|bit| wrapping_power(HALF, 1 << bit)).collect_vec();
        let fraction = self.power_of_bits(count, &factors);
        let small = self.mul(odd, fraction);
        let is_small = self.compare(CmpPred::Lt, Sign::Signed, power, zero);
        self.select(is_small, small, large)
    }
}
