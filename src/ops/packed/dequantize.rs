//! Dequantization: conversion of codes to elements of tiles.
//!
//! * Integers become floats with the exponent whose unit in the last place is 1. The code is the
//!   mantissa, and the power of two is subtracted.
//! * Floats have their fields shifted to those of the wider format. One product corrects the bias
//!   and also normalizes subnormal numbers.

use super::bits::Bits;
use super::word_packing::Coded;
use crate::dtype::DType;
use crate::ir::{Attr, Opcode, Overflow, Rounding, Value};
use crate::ops::elementwise::convert::{Kind, convert};
use crate::ops::support::expr_builder::ExprBuilder;
use crate::tile::{Place, Trace};
use crate::types::float_codec;
use crate::types::packed_formats::NarrowFormat;

/// Exponent and mantissa bits of a float of 16 or 32 bits.
fn fields(dtype: DType) -> (u32, u32) {
    match dtype {
        DType::F16 => (5, 10),
        DType::BF16 => (8, 7),
        _ => (8, 23),
    }
}

impl Trace {
    /// Converts codes to elements of another type. Returns `None` after an error.
    pub(super) fn unpacked(
        &mut self,
        place: Place,
        bits: Bits,
        coded: Coded,
        target: Kind,
        shape: &[i64],
    ) -> Option<Value> {
        let (dtype, value) = match coded.format {
            NarrowFormat::Float { exponent, mantissa } => {
                // Five exponent bits exceed the range of f16.
                let dtype = match target.dtype {
                    DType::F16 if exponent <= 4 => DType::F16,
                    DType::BF16 => DType::BF16,
                    _ => DType::F32,
                };
                let left = self.high_bits(place, bits, coded.bits)?;
                (dtype, self.float_of(left, exponent, mantissa, dtype, shape))
            }
            NarrowFormat::Element(dtype) => {
                let codes = self.low_bits(place, bits, coded.bits)?;
                (dtype, self.reread(codes, DType::I8, dtype, shape))
            }
            NarrowFormat::UInt(_) | NarrowFormat::Int(_) => {
                let signed = matches!(coded.format, NarrowFormat::Int(_));
                match target.dtype {
                    DType::F16 | DType::BF16 | DType::F32 if coded.bits <= fields(target.dtype).1 => {
                        let (_, room) = fields(target.dtype);
                        let is_half = target.dtype != DType::F32;
                        let (codes, offsets) = self.loose_bits(place, bits, (coded.bits, is_half), room)?;
                        let counted = self.counted(codes, &offsets, (coded.bits, signed), target.dtype);
                        (target.dtype, self.merged(counted, shape))
                    }
                    _ if signed => {
                        let left = self.high_bits(place, bits, coded.bits)?;
                        let mut c = ExprBuilder::new(self, DType::I32, true, shape);
                        let amount = c.bits((32 - coded.bits).into());
                        (DType::I32, c.sar(left, amount))
                    }
                    _ => (DType::I32, self.low_bits(place, bits, coded.bits)?),
                }
            }
        };
        Some(convert(self, value, Kind { dtype, signed: true }, target, shape))
    }

    /// Reinterprets patterns in the low bits of i32 elements as another type.
    fn reread(&mut self, words: Value, int: DType, dtype: DType, shape: &[i64]) -> Value {
        let patterns = match int {
            DType::I32 => words,
            _ => self.put(Opcode::TruncI, &[words], vec![Attr::Overflow(Overflow::None)], int, shape),
        };
        if int == dtype { patterns } else { self.put(Opcode::Bitcast, &[patterns], vec![], dtype, shape) }
    }

    /// Converts integer codes to floats. Each code has an offset of bits in its word.
    fn counted(&mut self, words: Value, offsets: &[u32], (bits, signed): (u32, bool), dtype: DType) -> Value {
        let (exponent, mantissa) = fields(dtype);
        let shape = &self.builder.module.shape(words).to_vec()[..];
        // 2^mantissa, whose unit in the last place is 1. A signed code counts from its smallest
        // value.
        let one = (u64::from(mantissa) + (1 << (exponent - 1)) - 1) << mantissa;
        let least = if signed { 1u64 << (bits - 1) } else { 0 };
        let of = |pattern: &dyn Fn(u32) -> u64| offsets.iter().map(|&up| pattern(up)).collect::<Vec<u64>>();
        let mask = self.pattern_of_bits(&of(&|up| ((1 << bits) - 1) << up), DType::I32, shape);
        let uniform = offsets[0];
        let is_uniform = offsets.iter().all(|&up| up == uniform);
        // With one offset, the exponent is smaller, so that the unit of the code is 1.
        let one = if is_uniform { one - (u64::from(uniform) << mantissa) } else { one };
        let anchor = self.pattern_of_bits(&of(&|up| one ^ least << up), DType::I32, shape);
        let mut c = ExprBuilder::new(self, DType::I32, false, shape);
        let codes = c.and(words, mask);
        let floats = c.xor(codes, anchor);
        let value = self.reread(floats, if dtype == DType::F32 { DType::I32 } else { DType::I16 }, dtype, shape);
        if is_uniform {
            let mut c = ExprBuilder::new(self, dtype, true, shape);
            let start = c.bits(one | least << uniform);
            return c.sub(value, start);
        }
        // An offset multiplies the code by a power of two, which the product removes.
        let number = |x: f64| float_codec::encode(dtype, x, Rounding::NearestEven);
        let start = |up| 2f64.powi(mantissa as i32) + (least << up) as f64;
        let scale = self.pattern_of_bits(&of(&|up| number(2f64.powi(-(up as i32)))), dtype, shape);
        let start = self.pattern_of_bits(&of(&|up| number(-start(up) * 2f64.powi(-(up as i32)))), dtype, shape);
        ExprBuilder::new(self, dtype, true, shape).fma(value, scale, start)
    }

    /// Converts the code in the high bits to a float.
    fn float_of(&mut self, left: Value, exponent: u32, mantissa: u32, dtype: DType, shape: &[i64]) -> Value {
        let (wide_exponent, wide_mantissa) = fields(dtype);
        let width = 1 + wide_exponent + wide_mantissa;
        let mut c = ExprBuilder::new(self, DType::I32, true, shape);
        // The arithmetic shift fills the missing exponent bits with copies of the sign, which the
        // mask clears.
        let down = c.bits((32 - width + wide_exponent - exponent).into());
        let moved = c.sar(left, down);
        let magnitude = ((1u64 << (exponent + mantissa)) - 1) << (wide_mantissa - mantissa);
        let mask = c.bits(1 << (width - 1) | magnitude);
        let words = c.and(moved, mask);
        let value = self.reread(words, if dtype == DType::F32 { DType::I32 } else { DType::I16 }, dtype, shape);
        let bias = |bits: u32| (1i32 << (bits - 1)) - 1;
        let mut c = ExprBuilder::new(self, dtype, true, shape);
        let scale = c.number(2f64.powi(bias(wide_exponent) - bias(exponent)));
        c.mul(value, scale)
    }
}
