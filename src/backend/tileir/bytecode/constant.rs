//! Element data of constants and globals: the bytes of a dense value or of one element.

use crate::util::collect::CollectVec as _;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::wire::{Decoder, damaged};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{ConstData, Elem, MAX_TILE_ELEMENTS, Type};

/// Returns the bytes of one element. Bools are packed instead.
const fn element_bytes(dtype: DType) -> usize {
    match dtype {
        DType::TF32 => 3,
        // One 4-bit element per byte.
        other => (other.bits() as usize).div_ceil(8),
    }
}

/// Converts a pattern to the file: tf32 is an f32 pattern in the IR, and 19 bits in bytecode.
pub(super) const fn to_file_bits(dtype: DType, bits: u64) -> u64 {
    match dtype {
        DType::TF32 => bits >> 13,
        _ => bits,
    }
}

pub(super) const fn from_file_bits(dtype: DType, bits: u64) -> u64 {
    let bits = bits & (u64::MAX >> (64 - dtype.bits()));
    match dtype {
        DType::TF32 => bits << 13,
        _ => bits,
    }
}

/// Returns element type and number of elements of a tile of numbers; `None` for other types, or an
/// excessive number.
pub(super) fn dense_type(ty: &Type) -> Option<(DType, usize)> {
    let (elem, shape) = ty.as_tile()?;
    let Elem::Num(dtype) = elem else { return None };
    let count = shape.iter().try_fold(1u64, |n, &e| n.checked_mul(u64::try_from(e).ok()?))?;
    (count > 0 && count <= MAX_TILE_ELEMENTS).then_some((dtype, count as usize))
}

/// Returns the bytes of a constant.
pub(crate) fn encode(dtype: DType, data: &ConstData) -> Vec<u8> {
    let element = |bits: u64| to_file_bits(dtype, bits).to_le_bytes().into_iter().take(element_bytes(dtype));
    match data {
        ConstData::Splat(bits) if dtype == DType::I1 => vec![if bits & 1 == 1 { 0xFF } else { 0 }],
        ConstData::Dense(all) if dtype == DType::I1 => {
            let pack = |part: &[u64]| part.iter().enumerate().fold(0, |byte, (i, bit)| byte | ((bit & 1) as u8) << i);
            all.chunks(8).map(pack).collect_vec()
        }
        ConstData::Splat(bits) => element(*bits).collect_vec(),
        ConstData::Dense(all) => all.iter().flat_map(|&bits| element(bits)).collect_vec(),
    }
}

/// Constants of a file that is read. Each one is decoded once per element type and count.
pub(super) struct ConstReader<'f> {
    entries: Vec<Decoder<'f>>,
    decoded: FxHashMap<(usize, DType, usize), ConstData>,
}

impl<'f> ConstReader<'f> {
    pub fn new(entries: Vec<Decoder<'f>>) -> ConstReader<'f> {
        ConstReader { entries, decoded: FxHashMap::default() }
    }

    /// Reads the index of a constant, and returns its data as `count` elements of `dtype`.
    pub fn read(&mut self, input: &mut Decoder<'_>, ty: &Type) -> Result<ConstData> {
        let at = input.offset();
        let index = input.varint()?;
        let entry = usize::try_from(index).ok().filter(|&i| i < self.entries.len());
        let entry =
            entry.ok_or_else(|| damaged(at, format!("constant {index} of {} constants", self.entries.len())))?;
        let (dtype, count) = dense_type(ty).ok_or_else(|| damaged(at, "a constant of a type that has no data"))?;
        if let Some(known) = self.decoded.get(&(entry, dtype, count)) {
            return Ok(known.clone());
        }
        let mut bytes = self.entries[entry];
        let size = bytes.count(1, "bytes of a constant")?;
        let data_at = bytes.offset();
        let bytes = bytes.take(size)?;
        let data = decode(dtype, count, bytes)
            .ok_or_else(|| damaged(data_at, format!("{size} bytes are no constant of {count} elements of {dtype}")))?;
        self.decoded.insert((entry, dtype, count), data.clone());
        Ok(data)
    }
}

fn decode(dtype: DType, count: usize, bytes: &[u8]) -> Option<ConstData> {
    let words: Vec<u64> = if dtype == DType::I1 {
        // One byte is one value for all elements, unless it can be a packed one.
        if bytes.len() == 1 && (count == 1 || count > 8) {
            return Some(ConstData::Splat((bytes[0] != 0).into()));
        }
        if bytes.len() != count.div_ceil(8) {
            return None;
        }
        (0..count).map(|i| u64::from(bytes[i / 8] >> (i % 8) & 1)).collect_vec()
    } else {
        let unit = element_bytes(dtype);
        if bytes.len() != unit && bytes.len() != unit.checked_mul(count)? {
            return None;
        }
        let word = |part: &[u8]| part.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        bytes.chunks(unit).map(|part| from_file_bits(dtype, word(part))).collect_vec()
    };
    match words.split_first() {
        Some((&first, rest)) if rest.iter().all(|w| *w == first) => Some(ConstData::Splat(first)),
        _ => Some(ConstData::Dense(Arc::from(words))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(dtype: DType, words: &[u64]) {
        let data = ConstData::Dense(Arc::from(words));
        assert_eq!(decode(dtype, words.len(), &encode(dtype, &data)), Some(data), "{dtype}");
    }

    #[test]
    fn every_type_reads_back() {
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::I4) {
            let one = from_file_bits(dtype, 1);
            round_trip(dtype, &[one, 0, 0, one]);
            let splat = ConstData::Splat(one);
            for count in [1, 8, 1024] {
                assert_eq!(decode(dtype, count, &encode(dtype, &splat)), Some(splat.clone()), "{dtype} x {count}");
            }
        }
        round_trip(DType::I1, &[1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn known_bytes() {
        let one = u64::from(1f32.to_bits());
        assert_eq!(encode(DType::TF32, &ConstData::Splat(one)), [0x00, 0xFC, 0x01]);
        assert_eq!(encode(DType::I1, &ConstData::Dense(Arc::from([1, 0, 1, 1]))), [0b1101]);
        assert_eq!(encode(DType::I16, &ConstData::Splat(0xFFFE)), [0xFE, 0xFF]);
        assert_eq!(decode(DType::I32, 4, &[0; 8]), None);
        assert_eq!(decode(DType::I1, 16, &[0; 16]), None);
    }
}
