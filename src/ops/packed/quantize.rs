//! Quantization: elements of tiles rounded to a narrow type.

use super::word_packing::Coded;
use crate::dtype::DType;
use crate::ir::{Attr, CmpOrder, CmpPred, Opcode, Rounding, Sign, Value};
use crate::ops::elementwise::convert::{Kind, convert};
use crate::ops::support::expr_builder::ExprBuilder;
use crate::tile::Trace;
use crate::types::packed_formats::NarrowFormat;

const F32: Kind = Kind { dtype: DType::F32, signed: true };
const I32: Kind = Kind { dtype: DType::I32, signed: true };

impl Trace {
    /// Returns the codes of the nearest numbers of a format, in the low bits of i32 elements,
    /// zero-extended.
    pub(super) fn codes_of(&mut self, x: Value, source: Kind, coded: Coded, shape: &[i64]) -> Value {
        match coded.format {
            NarrowFormat::UInt(bits) => self.integer_codes(x, source, [0, (1 << bits) - 1], bits, shape),
            NarrowFormat::Int(bits) => {
                let half = 1 << (bits - 1);
                self.integer_codes(x, source, [-half, half - 1], bits, shape)
            }
            NarrowFormat::Float { exponent, mantissa } => {
                let single = self.single(x, source, shape);
                self.float_codes(single, exponent, mantissa, shape)
            }
            NarrowFormat::Element(dtype) => {
                let value = convert(self, x, source, Kind { dtype, signed: false }, shape);
                let bytes = self.put(Opcode::Bitcast, &[value], vec![], DType::I8, shape);
                self.put(Opcode::ExtI, &[bytes], vec![Attr::Sign(Sign::Unsigned)], DType::I32, shape)
            }
        }
    }

    /// Clamps a value to two numbers, in its own type, so that nothing wraps.
    fn integer_codes(&mut self, x: Value, source: Kind, ends: [i64; 2], bits: u32, shape: &[i64]) -> Value {
        let (mut value, mut kind) = match source.dtype.is_float() {
            true => (convert(self, x, source, I32, shape), I32),
            false => (x, source),
        };
        if kind.dtype.bits() < 32 {
            (value, kind) = (convert(self, value, kind, I32, shape), I32);
        }
        let sign = Attr::Sign(if kind.signed { Sign::Signed } else { Sign::Unsigned });
        for (end, code) in ends.into_iter().zip([Opcode::MaxI, Opcode::MinI]) {
            if code == Opcode::MinI || kind.signed {
                let mask = u64::MAX >> (64 - kind.dtype.bits());
                let end = self.splat(kind.dtype, end as u64 & mask, shape);
                value = self.put(code, &[value, end], vec![sign.clone()], kind.dtype, shape);
            }
        }
        let value = convert(self, value, kind, I32, shape);
        let mut c = ExprBuilder::new(self, DType::I32, true, shape);
        let mask = c.bits((1 << bits) - 1);
        c.and(value, mask)
    }

    /// Converts the values to f32 such that a second rounding is equal to a single one.
    fn single(&mut self, x: Value, source: Kind, shape: &[i64]) -> Value {
        if source.dtype != DType::F64 {
            // Integers that f32 cannot represent exceed the range of all narrow floats.
            return convert(self, x, source, F32, shape);
        }
        let ftof =
            |t: &mut Trace, x, rounding, to| t.put(Opcode::FToF, &[x], vec![Attr::Rounding(rounding)], to, shape);
        // Rounding to odd: the last bit is set if the result is inexact.
        let short = ftof(self, x, Rounding::Zero, DType::F32);
        let back = ftof(self, short, Rounding::NearestEven, DType::F64);
        let order = Attr::CmpOrder(CmpOrder::Ordered);
        let lost = self.put(Opcode::CmpF, &[back, x], vec![Attr::CmpPred(CmpPred::Ne), order], DType::I1, shape);
        let word = self.put(Opcode::Bitcast, &[short], vec![], DType::I32, shape);
        let last = self.put(Opcode::ExtI, &[lost], vec![Attr::Sign(Sign::Unsigned)], DType::I32, shape);
        let word = self.put(Opcode::OrI, &[word, last], vec![], DType::I32, shape);
        self.put(Opcode::Bitcast, &[word], vec![], DType::F32, shape)
    }

    /// Rounds f32 to nearest even. Larger numbers saturate, and NaN becomes the largest number.
    fn float_codes(&mut self, single: Value, exponent: u32, mantissa: u32, shape: &[i64]) -> Value {
        let bias = (1i64 << (exponent - 1)) - 1;
        let dropped = 23 - mantissa;
        let most = (1u64 << (exponent + mantissa)) - 1;
        let power_of_two = |log2: i64| ((log2 + 127) as u64) << 23;
        let word = self.put(Opcode::Bitcast, &[single], vec![], DType::I32, shape);
        let mut c = ExprBuilder::new(self, DType::I32, false, shape);
        let (all_but_sign, one) = (c.bits(0x7fff_ffff), c.bits(1));
        let magnitude = c.and(word, all_but_sign);
        // Normal results: the fields are rounded in place, and the exponent is converted to the
        // smaller bias.
        let (cut, half) = (c.bits(dropped.into()), c.bits((1 << (dropped - 1)) - 1));
        let kept = c.shr(magnitude, cut);
        let odd = c.and(kept, one);
        let rounded = c.addi(magnitude, half);
        let rounded = c.addi(rounded, odd);
        let kept = c.shr(rounded, cut);
        let shorter = c.bits(((127 - bias) as u64) << mantissa);
        let normal = c.subi(kept, shorter);
        // Subnormal results: a sum whose unit in the last place is the smallest subnormal number.
        let anchor = power_of_two(1 - bias - i64::from(mantissa) + 23);
        let mut floats = ExprBuilder::new(self, DType::F32, true, shape);
        let start = floats.bits(anchor);
        let size = floats.abs(single);
        let sum = floats.add(size, start);
        let sum = self.put(Opcode::Bitcast, &[sum], vec![], DType::I32, shape);
        let mut c = ExprBuilder::new(self, DType::I32, false, shape);
        let start = c.bits(anchor);
        let subnormal = c.subi(sum, start);
        let (least, largest, nan) = (c.bits(power_of_two(1 - bias)), c.bits(most), c.bits(0x7f80_0000));
        let small = c.is(CmpPred::Lt, magnitude, least);
        let code = c.select(small, subnormal, normal);
        let is_more = c.is(CmpPred::Gt, code, largest);
        let code = c.select(is_more, largest, code);
        let (to_sign, sign_bit) = (c.bits((31 - exponent - mantissa).into()), c.bits(most + 1));
        let sign = c.shr(word, to_sign);
        let sign = c.and(sign, sign_bit);
        let code = c.or(code, sign);
        let is_nan = c.is(CmpPred::Gt, magnitude, nan);
        c.select(is_nan, largest, code)
    }
}
