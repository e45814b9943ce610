//! Codes in i32 elements, extracted from words to the low or high bits.

use crate::util::collect::CollectVec as _;
use std::collections::BTreeSet;

use crate::dtype::DType;
use crate::ir::{Attr, ConstData, Opcode, Type, Value};
use crate::ops::support::expr_builder::ExprBuilder;
use crate::tile::{Place, Trace, ValueHandle};

/// The codes of a tile.
#[derive(Clone, Copy, Debug)]
pub enum Bits {
    /// i32, in the shape of the tile: the codes in the low bits, zero-extended.
    Codes(ValueHandle),
    /// i32, with the elements of a group along one more axis. `low` is the word with the first bit
    /// of each element. `high` is the word with the rest if elements cross words, and 0 for the
    /// other elements. `unit` is the number of bits of a word.
    Words { low: ValueHandle, high: Option<ValueHandle>, unit: u32 },
}

/// Shift amounts of the elements of a group, for both words of each element.
struct Shifts {
    left: Vec<u32>,
    right: Vec<u32>,
    high: Vec<u32>,
}

impl Trace {
    /// The extents of a tile of codes.
    pub(super) fn shape_of_bits(&self, bits: Bits) -> Vec<i64> {
        match bits {
            Bits::Codes(raw) => self.shape(raw),
            Bits::Words { low, .. } => {
                let mut shape = self.shape(low);
                let elements = shape.pop().unwrap_or(1);
                if let Some(groups) = shape.last_mut() {
                    *groups *= elements;
                }
                shape
            }
        }
    }

    /// A constant that varies along the last axis.
    pub(super) fn pattern(&mut self, numbers: &[u32], dtype: DType, shape: &[i64]) -> Value {
        let patterns: Vec<u64> = numbers.iter().map(|&number| number.into()).collect_vec();
        self.pattern_of_bits(&patterns, dtype, shape)
    }

    /// Constant of bit patterns that varies along the last axis, as [`Trace::pattern`].
    pub(super) fn pattern_of_bits(&mut self, numbers: &[u64], dtype: DType, shape: &[i64]) -> Value {
        if numbers.iter().all(|number| *number == numbers[0]) {
            return self.splat(dtype, numbers[0], shape);
        }
        let mut thin = vec![1; shape.len()];
        thin[shape.len() - 1] = numbers.len() as i64;
        let data = ConstData::Dense(numbers.to_vec().into());
        let ty = self.builder.module.intern(Type::tile(dtype, thin));
        let constant = self.emit(Opcode::Constant, &[], vec![Attr::Value(data)], vec![], &[ty])[0];
        self.stretch(constant, shape)
    }

    /// Shifts the words of each element to one position and joins them.
    fn gathered(&mut self, low: Value, high: Option<Value>, shifts: &Shifts) -> Value {
        let shape = self.builder.module.shape(low).to_vec();
        let mut moved = low;
        if shifts.left.iter().any(|&n| n != 0) {
            let amounts = self.pattern(&shifts.left, DType::I32, &shape);
            moved = ExprBuilder::new(self, DType::I32, false, &shape).shl(moved, amounts);
        }
        if shifts.right.iter().any(|&n| n != 0) {
            let amounts = self.pattern(&shifts.right, DType::I32, &shape);
            moved = ExprBuilder::new(self, DType::I32, false, &shape).shr(moved, amounts);
        }
        let Some(high) = high else { return moved };
        let amounts = self.pattern(&shifts.high, DType::I32, &shape);
        let mut c = ExprBuilder::new(self, DType::I32, false, &shape);
        let rest = c.shl(high, amounts);
        c.or(moved, rest)
    }

    /// Reshapes a value, if necessary.
    pub(super) fn merged(&mut self, value: Value, shape: &[i64]) -> Value {
        let dtype = self.builder.module.dtype(value);
        match self.builder.module.shape(value) == shape {
            true => value,
            false => self.put(Opcode::Reshape, &[value], vec![], dtype, shape),
        }
    }

    /// Returns the codes in the low bits, zero-extended, or `None` after an error.
    pub(super) fn low_bits(&mut self, place: Place, bits: Bits, width: u32) -> Option<Value> {
        let shape = self.shape_of_bits(bits);
        let (low, high, unit) = match bits {
            Bits::Codes(raw) => return self.check_usable(raw, place),
            Bits::Words { low, high, unit } => (low, high, unit),
        };
        let low = self.check_usable(low, place)?;
        let high = high.and_then(|high| self.check_usable(high, place));
        let elements = *self.builder.module.shape(low).last()? as u32;
        let starts: Vec<u32> = (0..elements).map(|element| element * width % unit).collect_vec();
        let rests = starts.iter().map(|start| if start + width > unit { unit - start } else { 0 });
        let shifts = Shifts { left: vec![0; starts.len()], high: rests.collect_vec(), right: starts };
        let value = self.gathered(low, high, &shifts);
        let value = self.merged(value, &shape);
        if elements == 1 && width == unit {
            return Some(value);
        }
        let mut c = ExprBuilder::new(self, DType::I32, false, &shape);
        let mask = c.bits((1 << width) - 1);
        Some(c.and(value, mask))
    }

    /// Returns the codes with minimal shifts, such that their bits are below `room`, and the offset
    /// of each code of a group. The shape is that of the tile, or has one more axis of the elements
    /// of a group. The other bits are unspecified.
    ///
    /// Shifts by whole bytes are preferred: a permutation of bytes has the codes of two halves.
    /// With `uniform`, all offsets are equal, if that needs one other shift of each word.
    pub(super) fn loose_bits(
        &mut self,
        place: Place,
        bits: Bits,
        (width, uniform): (u32, bool),
        room: u32,
    ) -> Option<(Value, Vec<u32>)> {
        let (low, high, unit) = match bits {
            Bits::Codes(raw) => return Some((self.check_usable(raw, place)?, vec![0])),
            Bits::Words { low, high, unit } => (low, high, unit),
        };
        let low = self.check_usable(low, place)?;
        let high = high.and_then(|high| self.check_usable(high, place));
        let elements = *self.builder.module.shape(low).last()? as u32;
        let starts: Vec<u32> = (0..elements).map(|element| element * width % unit).collect_vec();
        let up = (room - width) / width * width;
        let shifted: BTreeSet<u32> =
            starts.iter().map(|start| (start + 8 - up % 8) % 8).filter(|&rest| rest > 0).collect();
        if uniform && high.is_none() && elements > 1 && shifted.len() <= 1 {
            let [left, right] = [|start: u32, up: u32| up.saturating_sub(start), u32::saturating_sub]
                .map(|of| starts.iter().map(|&start| of(start, up)).collect_vec());
            let shifts = Shifts { left, right, high: vec![0; starts.len()] };
            return Some((self.gathered(low, high, &shifts), vec![up; starts.len()]));
        }
        let mut shifts = Shifts { left: Vec::new(), right: Vec::new(), high: Vec::new() };
        let mut offsets = Vec::new();
        let mut base = 0;
        for start in starts {
            let is_split = start + width > unit;
            if is_split || start < base || start - base + width > room {
                let byte = start / 8 * 8;
                base = if is_split || start - byte + width > room { start } else { byte };
            }
            shifts.left.push(0);
            shifts.right.push(base);
            shifts.high.push(if is_split { unit - start } else { 0 });
            offsets.push(start - base);
        }
        Some((self.gathered(low, high, &shifts), offsets))
    }

    /// Returns the codes in the high bits, or `None` after an error. The low bits are unspecified.
    pub(super) fn high_bits(&mut self, place: Place, bits: Bits, width: u32) -> Option<Value> {
        let shape = self.shape_of_bits(bits);
        let (low, high, unit) = match bits {
            Bits::Codes(raw) => {
                let codes = self.check_usable(raw, place)?;
                let mut c = ExprBuilder::new(self, DType::I32, false, &shape);
                let amount = c.bits((32 - width).into());
                return Some(c.shl(codes, amount));
            }
            Bits::Words { low, high, unit } => (low, high, unit),
        };
        let low = self.check_usable(low, place)?;
        let high = high.and_then(|high| self.check_usable(high, place));
        let elements = *self.builder.module.shape(low).last()? as u32;
        let starts: Vec<u32> = (0..elements).map(|element| element * width % unit).collect_vec();
        let up = |start: &u32| (32 - width).saturating_sub(*start);
        let down = |start: &u32| start.saturating_sub(32 - width);
        let rest = |start: &u32| if start + width > unit { 32 - width + unit - start } else { 0 };
        let shifts = Shifts {
            left: starts.iter().map(up).collect_vec(),
            right: starts.iter().map(down).collect_vec(),
            high: starts.iter().map(rest).collect_vec(),
        };
        let value = self.gathered(low, high, &shifts);
        Some(self.merged(value, &shape))
    }
}
