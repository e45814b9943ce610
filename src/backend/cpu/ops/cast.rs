//! Conversions between element types, by element.
//!
//! Float to integer truncates, saturates at the range of the integer and returns 0 for NaN, with
//! and without the flag of the op. So the result is always defined.

use crate::util::collect::CollectVec as _;
use bytemuck::allocation::cast_vec;

use super::float::{from_patterns, narrow, to_f64, widen};
use super::int;
use crate::backend::cpu::interp::value::{Word, Words, each_width, map};
use crate::dtype::DType;
use crate::ir::{Rounding, Sign};
use crate::types::float_codec::{self, Exact};

/// Widens or narrows integers.
pub(crate) fn int_to_int(from: DType, to: DType, sign: Sign, x: &Words) -> Words {
    int::write(to, &int::read(from, sign, x))
}

pub(crate) fn int_to_float(from: DType, to: DType, sign: Sign, x: &Words) -> Words {
    let values = int::read(from, sign, x);
    let signed = sign == Sign::Signed;
    match to {
        DType::F64 => Words::W64(cast_vec(map(&values, |v| if signed { v as i64 as f64 } else { v as f64 }))),
        // Conversion to f16 by way of f32 rounds only once: integers that f32 cannot represent are
        // outside of the range of f16.
        DType::F32 | DType::F16 => narrow(to, map(&values, |v| if signed { v as i64 as f32 } else { v as f32 })),
        _ => from_patterns(
            to,
            values.iter().map(|&v| match if signed { v as i64 as i128 } else { v as i128 } {
                0 => float_codec::encode(to, 0.0, Rounding::NearestEven),
                v => float_codec::round(to, Exact::of_integer(v), Rounding::NearestEven),
            }),
        ),
    }
}

pub(crate) fn float_to_int(from: DType, to: DType, sign: Sign, x: &Words) -> Words {
    let values = to_f64(from, x);
    let bits = to.bits();
    match sign {
        Sign::Signed => {
            let (low, high) = (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits));
            int::write(to, &map(&values, |v| (v as i64).clamp(low, high) as u64))
        }
        Sign::Unsigned => int::write(to, &map(&values, |v| (v as u64).min(u64::MAX >> (64 - bits)))),
    }
}

pub(crate) fn float_to_float(from: DType, to: DType, rounding: Rounding, x: &Words) -> Words {
    let single = |dtype| matches!(dtype, DType::F16 | DType::BF16 | DType::F32);
    let nearest = matches!(rounding, Rounding::NearestEven);
    match (from, to) {
        (_, DType::F64) => Words::W64(cast_vec(to_f64(from, x).into_owned())),
        (DType::F16 | DType::BF16 | DType::TF32, DType::F32) => narrow(to, widen(from, x).into_owned()),
        (DType::F64, DType::F32) if nearest => narrow(to, map(&to_f64(from, x), |v| v as f32)),
        _ if nearest && single(from) && single(to) => narrow(to, widen(from, x).into_owned()),
        _ => from_patterns(to, to_f64(from, x).iter().map(|&v| float_codec::encode(to, v, rounding))),
    }
}

/// Returns the bits of an element in a packed tile.
fn packed_bits(dtype: DType) -> u32 {
    if dtype == DType::I1 { 1 } else { dtype.storage_bits() }
}

/// Returns the bytes of a tile, little-endian. Elements narrower than a byte begin at the low bits.
pub(crate) fn pack(from: DType, x: &Words) -> Words {
    let bits = packed_bits(from);
    if bits >= 8 {
        let bytes = bits as usize / 8;
        return Words::W8(each_width!(x, list => {
            list.iter().flat_map(|w| w.to_u64().to_le_bytes().into_iter().take(bytes)).collect_vec()
        }));
    }
    let per_byte = 8 / bits as usize;
    let join = |part: &[u8]| part.iter().rev().fold(0u8, |byte, &w| byte << bits | w & ((1 << bits) - 1));
    Words::W8(u8::of(x).chunks(per_byte).map(join).collect_vec())
}

/// Inverse of [`pack`].
pub(crate) fn unpack(to: DType, x: &Words) -> Words {
    let bits = packed_bits(to);
    let bytes = u8::of(x);
    if bits >= 8 {
        let size = bits as usize / 8;
        let word = |chunk: &[u8]| chunk.iter().rev().fold(0u64, |word, &byte| word << 8 | byte as u64);
        return from_patterns(to, bytes.chunks(size).map(word));
    }
    let mask = (1u8 << bits) - 1;
    Words::W8(bytes.iter().flat_map(|&byte| (0..8 / bits).map(move |i| byte >> (i * bits) & mask)).collect_vec())
}
