//! 8- and 4-bit floats: codes to f32 and f32 to codes.
//!
//! e4m3 and e5m2 have instructions from sm_89 on; everything else is integer code. Conversions to a
//! small float round to nearest even and saturate (infinities too), as the instructions do.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use crate::dtype::DType;

/// A small format with sign, exponent and mantissa fields (unsigned: no sign field).
struct Format {
    mantissa_bits: u32,
    bias: i32,
    signed: bool,
    /// Maximum finite code without sign.
    max: i64,
    /// The only NaN code without sign; NaNs are converted to it.
    nan: i64,
    /// The format has a NaN with that code.
    has_nan: bool,
    /// Bits without sign.
    magnitude_bits: u32,
}

fn format(dtype: DType) -> Format {
    match dtype {
        DType::F8E4M3FN => {
            Format { mantissa_bits: 3, bias: 7, signed: true, max: 0x7e, nan: 0x7f, has_nan: true, magnitude_bits: 7 }
        }
        DType::F8E5M2 => {
            Format { mantissa_bits: 2, bias: 15, signed: true, max: 0x7b, nan: 0x7f, has_nan: false, magnitude_bits: 7 }
        }
        DType::F8E5M3FNU => {
            Format { mantissa_bits: 3, bias: 15, signed: false, max: 0xfe, nan: 0xff, has_nan: true, magnitude_bits: 8 }
        }
        DType::F4E2M1FN => {
            Format { mantissa_bits: 1, bias: 1, signed: true, max: 0x7, nan: 0x7, has_nan: false, magnitude_bits: 3 }
        }
        other => panic!("{other} is not a small float with a mantissa"),
    }
}

/// Returns the PTX type of a pair, if the target has instructions for it.
fn native(b: &Builder, dtype: DType) -> Option<Ty> {
    match dtype {
        _ if b.target.arch < 89 => None,
        DType::F8E4M3FN => Some(Ty::E4M3x2),
        DType::F8E5M2 => Some(Ty::E5M2x2),
        _ => None,
    }
}

fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Converts a code to f32, exactly.
pub(super) fn decode(b: &mut Builder, dtype: DType, code: Operand) -> Operand {
    if dtype == DType::F8E8M0FNU {
        return decode_e8m0(b, code);
    }
    if let Some(pair) = native(b, dtype) {
        let short = match code {
            Operand::Imm(_) => code,
            code => b.cvt(Ty::U16, Ty::U32, CvtRound::None, code),
        };
        let halves = b.cvt(Ty::F16x2, pair, CvtRound::Rn, short);
        let (low, _) = b.unpack(halves);
        return b.cvt(Ty::F32, Ty::F16, CvtRound::None, low);
    }
    if dtype == DType::F8E5M2 {
        // The upper byte of an f16.
        let bits = b.shl(Ty::B32, code, 8i64);
        let half = b.cvt(Ty::U16, Ty::U32, CvtRound::None, bits);
        return b.cvt(Ty::F32, Ty::F16, CvtRound::None, half);
    }
    let Format { mantissa_bits, bias, signed, nan, has_nan, magnitude_bits, .. } = format(dtype);
    let mask = (1i64 << magnitude_bits) - 1;
    let magnitude = if signed { b.and(Ty::B32, code, mask) } else { code };
    // Fields in place but with the small bias; the multiplication corrects it, also for subnormals.
    let fields = b.shl(Ty::B32, magnitude, 23 - mantissa_bits);
    let fields = b.bitcast(fields, RegClass::F32);
    let mut value = b.fmul(Ty::F32, fields, power_of_two(127 - bias));
    if has_nan {
        let is_nan = b.setp(Cmp::Eq, Ty::B32, magnitude, nan);
        value = b.select(RegClass::F32, is_nan, f32::NAN, value);
    }
    if !signed {
        return value;
    }
    let sign = b.and(Ty::B32, code, 1i64 << magnitude_bits);
    let sign = b.shl(Ty::B32, sign, 31 - magnitude_bits);
    let bits = b.bitcast(value, RegClass::B32);
    let bits = b.or(Ty::B32, bits, sign);
    b.bitcast(bits, RegClass::F32)
}

fn decode_e8m0(b: &mut Builder, code: Operand) -> Operand {
    let bits = b.shl(Ty::B32, code, 23i64);
    // 2^-127 is subnormal in f32; the code of all ones is NaN.
    let zero = b.setp(Cmp::Eq, Ty::B32, code, 0i64);
    let ones = b.setp(Cmp::Eq, Ty::B32, code, 0xffi64);
    let patched = b.or(Ty::Pred, zero, ones);
    let extra = b.select(RegClass::B32, patched, 0x40_0000i64, 0i64);
    let bits = b.or(Ty::B32, bits, extra);
    b.bitcast(bits, RegClass::F32)
}

/// Converts two codes to a pair of f16, if the target has an instruction for it.
pub(super) fn decode_pair(b: &mut Builder, dtype: DType, low: Operand, high: Operand) -> Option<Operand> {
    let pair = native(b, dtype)?;
    let word = b.join_bytes([low, high, low, high]);
    let (codes, _) = b.unpack(word);
    Some(b.cvt(Ty::F16x2, pair, CvtRound::Rn, codes))
}

/// Converts two f32 to their codes, if the target has an instruction for it.
pub fn encode_pair(b: &mut Builder, dtype: DType, low: Operand, high: Operand) -> Option<[Operand; 2]> {
    let pair = native(b, dtype)?;
    let mods = CvtMods { round: CvtRound::Rn, satfinite: true, ..CvtMods::default() };
    let half = b.cvt_pack(pair, mods, low, high);
    let word = b.cvt(Ty::U32, Ty::U16, CvtRound::None, half);
    let codes = [b.and(Ty::B32, word, 0xffi64), b.shr(Ty::U32, word, 8i64)];
    (0..).zip(codes).for_each(|(number, code)| b.note_byte(code, half, number));
    Some(codes)
}

/// Converts f32 to a code, rounded to nearest even.
pub(super) fn encode(b: &mut Builder, dtype: DType, x: Operand) -> Operand {
    if let Some(pair) = native(b, dtype) {
        let mods = CvtMods { round: CvtRound::Rn, satfinite: true, ..CvtMods::default() };
        let code = b.cvt_pack(pair, mods, x, 0f32);
        return b.cvt(Ty::U32, Ty::U16, CvtRound::None, code);
    }
    let Format { mantissa_bits, bias, signed, max, nan, magnitude_bits, .. } = format(dtype);
    let bits = b.bitcast(x, RegClass::B32);
    let magnitude = b.and(Ty::B32, bits, 0x7fff_ffffi64);
    let dropped = 23 - mantissa_bits;
    // Normal results: round the fields in place, then convert the exponent to the small bias.
    let odd = b.bfe(Ty::U32, magnitude, dropped, 1i64);
    let rounded = b.add(Ty::U32, magnitude, (1i64 << (dropped - 1)) - 1);
    let rounded = b.add(Ty::U32, rounded, odd);
    let fields = b.shr(Ty::U32, rounded, dropped);
    let normal = b.sub(Ty::U32, fields, i64::from(127 - bias) << mantissa_bits);
    // Subnormal results: an f32 sum whose unit in the last place is the smallest subnormal.
    let anchor = power_of_two(1 - bias - mantissa_bits as i32 + 23);
    let value = b.bitcast(magnitude, RegClass::F32);
    let sum = b.fadd(Ty::F32, value, anchor);
    let sum = b.bitcast(sum, RegClass::B32);
    let subnormal = b.sub(Ty::U32, sum, anchor.to_bits());
    let small = b.setp(Cmp::Lt, Ty::U32, magnitude, power_of_two(1 - bias).to_bits());
    let code = b.select(RegClass::B32, small, subnormal, normal);
    let mut code = b.min(Ty::U32, code, max);
    let negative = b.setp(Cmp::Lt, Ty::S32, bits, 0i64);
    if signed {
        let with_sign = b.or(Ty::B32, code, 1i64 << magnitude_bits);
        code = b.select(RegClass::B32, negative, with_sign, code);
    } else {
        code = b.select(RegClass::B32, negative, 0i64, code);
    }
    let is_nan = b.setp(Cmp::Gt, Ty::U32, magnitude, 0x7f80_0000i64);
    b.select(RegClass::B32, is_nan, nan, code)
}

/// Returns the nearest power of two below or above the magnitude of an f32.
pub(super) fn encode_e8m0(b: &mut Builder, up: bool, x: Operand) -> Operand {
    let bits = b.bitcast(x, RegClass::B32);
    let magnitude = b.and(Ty::B32, bits, 0x7fff_ffffi64);
    // Below 2^-126 f32 is subnormal: 2^-127 has the mantissa 0x400000, and larger values round up
    // to code 1.
    let carry = if up { 0x7f_ffffi64 } else { 0 };
    let rounded = b.add(Ty::U32, magnitude, carry);
    let mut code = b.shr(Ty::U32, rounded, 23i64);
    if up {
        let above = b.setp(Cmp::Gt, Ty::U32, magnitude, 0x40_0000i64);
        code = b.select(RegClass::B32, above, code, 0i64);
    }
    let code = b.min(Ty::U32, code, 0xfei64);
    let is_nan = b.setp(Cmp::Gt, Ty::U32, magnitude, 0x7f80_0000i64);
    b.select(RegClass::B32, is_nan, 0xffi64, code)
}
