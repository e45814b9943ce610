//! Functions in the ring: powers of a fixed base, inverses, and one-way tags.
//!
//! * `exp2(x)` is `g^x` for a unit `g`: `exp2(x + y) = exp2(x) * exp2(y)`. The low bits of `x`
//!   select factors, the others are the variable of a 2-adic power series.
//! * The inverse of `m * 2^k` with odd `m` is `m^-1 * (2 * HALF)^k`. It depends on the known bits
//!   of `m` alone, and the inverse of a product is the product of the inverses.
//! * A tag multiplies, flips bits that depend on the op, and multiplies again.
//!
//! All are functions of the low bits: the low 16 bits of a result depend on the low 16 bits of the
//! operands alone.

use super::ring::{HALF, TAG_FACTORS, exp2_coefficient, exp2_of_bit, low_bits, tag_of, wrapping_power};
use super::state::Exact;
use crate::ir::{Opcode, Value};
use crate::util::collect::CollectVec as _;

/// Number of low bits of an exponent that select factors.
const SELECTING_BITS: u32 = 4;

impl Exact<'_> {
    pub fn exp2(&mut self, x: Value) -> Value {
        let mask = self.ring.mask();
        let factors: Vec<u64> = (0..SELECTING_BITS).map(exp2_of_bit).collect_vec();
        let product = self.power_of_bits(x, &factors);
        let rest = self.shift_right(x, SELECTING_BITS);
        let coefficients: Vec<u64> =
            (0..64).map(|k| exp2_coefficient(k, SELECTING_BITS) & mask).take_while(|&c| c != 0).collect_vec();
        let (last, lower) = coefficients.split_last().expect("the first coefficient is 1");
        let mut sum = self.constant(x, *last);
        for &coefficient in lower.iter().rev() {
            sum = self.mul(sum, rest);
            sum = self.add_constant(sum, coefficient);
        }
        self.mul(product, sum)
    }

    /// Emits the product of the factors whose bits of `x` are set.
    pub fn power_of_bits(&mut self, x: Value, factors: &[u64]) -> Value {
        let mut product = None;
        for (bit, factor) in (0..).zip(factors) {
            let bit = self.shift_right(x, bit);
            let bit = self.and_constant(bit, 1);
            let step = self.mul_constant(bit, factor.wrapping_sub(1));
            let step = self.add_constant(step, 1);
            product = Some(product.map_or(step, |product| self.mul(product, step)));
        }
        product.expect("a factor")
    }

    pub fn inverse(&mut self, x: Value) -> Value {
        let bits = self.ring.bits();
        let mut odd = x;
        let mut zeros = self.constant(x, 0);
        for step in (0..bits.ilog2()).rev().map(|bit| 1u32 << bit) {
            let low = self.and_constant(odd, low_bits(step));
            let is_zero = self.is_equal_to(low, 0);
            let shifted = self.shift_right(odd, step);
            let counted = self.add_constant(zeros, step.into());
            odd = self.select(is_zero, shifted, odd);
            zeros = self.select(is_zero, counted, zeros);
        }
        // Newton's iteration, from five correct bits on.
        let mut inverse = self.mul_constant(odd, 3);
        inverse = self.xor_constant(inverse, 2);
        let mut correct = 5;
        while correct < bits {
            let product = self.mul(odd, inverse);
            let two = self.constant(x, 2);
            let correction = self.sub(two, product);
            inverse = self.mul(inverse, correction);
            correct *= 2;
        }
        let factors: Vec<u64> =
            (0..bits.ilog2()).map(|bit| wrapping_power(HALF.wrapping_mul(2), 1 << bit)).collect_vec();
        let power = self.power_of_bits(zeros, &factors);
        self.mul(inverse, power)
    }

    /// Emits the tag of an op of one operand.
    pub fn tag(&mut self, code: Opcode, x: Value) -> Value {
        let product = self.mul_constant(x, TAG_FACTORS[0]);
        let flipped = self.xor_constant(product, tag_of(code.spec().name));
        self.mul_constant(flipped, TAG_FACTORS[1])
    }

    /// Emits the tag of an op of two operands.
    pub fn tag_of_two(&mut self, code: Opcode, x: Value, y: Value) -> Value {
        let inner = self.tag(code, y);
        let x = self.mul_constant(x, TAG_FACTORS[2]);
        let sum = self.add(x, inner);
        self.tag(code, sum)
    }
}
