//! Bit casts between elements of any type and 64-bit words, for code that is generic in the type.
//! ([`Tile::bitcast`](crate::Tile::bitcast) requires a known type.)

use super::operand::{elementwise, value};
use crate::dtype::DType;
use crate::element::ByteSized;
use crate::ir::Opcode;
use crate::ops::elementwise::convert::{Kind, convert};
use crate::tile::{Tile, caller_location};

/// The type with the bits of `T`, and the unsigned integer of its width. (The bits of tf32 are
/// those of an f32.)
fn kinds(dtype: DType) -> (DType, Kind) {
    let read = if dtype == DType::TF32 { DType::F32 } else { dtype };
    let bits = match read.bits() {
        1 => DType::I1,
        8 => DType::I8,
        16 => DType::I16,
        32 => DType::I32,
        _ => DType::I64,
    };
    (read, Kind { dtype: bits, signed: false })
}

const WORD: Kind = Kind { dtype: DType::I64, signed: false };

/// The bits of each element, with zeros above.
#[track_caller]
pub(crate) fn to_words<T: ByteSized, const R: usize>(tile: Tile<T, R>) -> Tile<u64, R> {
    elementwise(caller_location(), "to_words", &[value(tile)], |t, v, shape| {
        let (read, bits) = kinds(T::DTYPE);
        let x = convert(t, v[0], Kind::of::<T>(), Kind { dtype: read, signed: T::SIGNED }, shape);
        let x = if read == bits.dtype { x } else { t.put(Opcode::Bitcast, &[x], vec![], bits.dtype, shape) };
        convert(t, x, bits, WORD, shape)
    })
}

/// The elements whose bits are the low ones of each word; those above are zeros.
#[track_caller]
pub(crate) fn from_words<T: ByteSized, const R: usize>(words: Tile<u64, R>) -> Tile<T, R> {
    elementwise(caller_location(), "from_words", &[value(words)], |t, v, shape| {
        let (read, bits) = kinds(T::DTYPE);
        let x = convert(t, v[0], WORD, bits, shape);
        let x = if read == bits.dtype { x } else { t.put(Opcode::Bitcast, &[x], vec![], read, shape) };
        convert(t, x, Kind { dtype: read, signed: T::SIGNED }, Kind::of::<T>(), shape)
    })
}
