//! Matrix products in the ring, as products of 8-bit digits.
//!
//! An element is the sum of its bytes, each shifted. The product of two elements modulo the ring is
//! the sum of the products of bytes whose shifts are inside of the ring: 10 products for 32 bits,
//! 36 for 64 bits. Each is an `mmai` of unsigned bytes, which the back ends have.

use super::state::{Exact, Site};
use crate::dtype::DType;
use crate::ir::{Attr, Elem, Opcode, Sign, Value};
use crate::util::collect::CollectVec as _;

impl Exact<'_> {
    pub fn mma(&mut self, site: &Site) -> Value {
        let [lhs, rhs, acc] = [0, 1, 2].map(|index| site.op.operands[index]);
        let digits = self.ring.bits() / 8;
        let left: Vec<Value> = (0..digits).map(|digit| self.digit(lhs, digit)).collect_vec();
        let right: Vec<Value> = (0..digits).map(|digit| self.digit(rhs, digit)).collect_vec();
        let mut sum = acc;
        for place in 0..digits {
            let pairs = (0..=place).map(|i| [left[i as usize], right[(place - i) as usize]]);
            sum = if self.ring.0 == DType::I32 {
                self.add_narrow(sum, place, pairs)
            } else {
                self.add_wide(sum, place, pairs)
            };
        }
        sum
    }

    /// Emits a byte of each element.
    fn digit(&mut self, element: Value, digit: u32) -> Value {
        let shifted = self.shift_right(element, 8 * digit);
        self.resize(shifted, DType::I8, Sign::Unsigned)
    }

    /// Adds the products of one shift. Sums of 32 bits wrap around as the ring does.
    fn add_narrow(&mut self, sum: Value, place: u32, pairs: impl Iterator<Item = [Value; 2]>) -> Value {
        if place == 0 {
            return pairs.fold(sum, |sum, [a, b]| self.mma_of_bytes(a, b, sum));
        }
        let zero = self.constant(sum, 0);
        let part = pairs.fold(zero, |part, [a, b]| self.mma_of_bytes(a, b, part));
        let count = self.constant(part, (8 * place).into());
        let part = self.shift_left(part, count);
        self.add(sum, part)
    }

    /// Adds the products of one shift. Each product has 16 bits, and its sum over k at most 32.
    fn add_wide(&mut self, mut sum: Value, place: u32, pairs: impl Iterator<Item = [Value; 2]>) -> Value {
        for [a, b] in pairs {
            let shape = self.ops.shape(sum);
            let zero = self.ops.number(DType::I32, 0);
            let zero = self.ops.splat_to(zero, &shape);
            let part = self.mma_of_bytes(a, b, zero);
            let part = self.resize(part, DType::I64, Sign::Unsigned);
            let count = self.constant(part, (8 * place).into());
            let part = self.shift_left(part, count);
            sum = self.add(sum, part);
        }
        sum
    }

    fn mma_of_bytes(&mut self, a: Value, b: Value, acc: Value) -> Value {
        let attrs = vec![Attr::SignLhs(Sign::Unsigned), Attr::SignRhs(Sign::Unsigned)];
        let shape = self.ops.shape(acc);
        self.ops.emit_one(Opcode::MmaI, &[a, b, acc], attrs, Elem::Num(DType::I32), &shape)
    }
}
