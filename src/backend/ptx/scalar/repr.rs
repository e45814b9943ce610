//! Representation of an element in registers, defined here only.
//!
//! | element type | class | form |
//! |---|---|---|
//! | i1 | Pred | |
//! | i4, i8, i16 | B32 | zero-extended; ops that read them as signed extend first |
//! | i32 | B32 | |
//! | i64, pointers | B64 | |
//! | f16, bf16 | B16 | |
//! | f32 | F32 | |
//! | tf32 | F32 | the low 13 bits are zero |
//! | f64 | F64 | |
//! | f8…, f4… | B32 | the code, zero-extended |
//!
//! Constants are [`Operand::Imm`] with the value of that form (sign-extended from the class width
//! for i32 and i64), [`Operand::F32`] or [`Operand::F64`]. Memory and packed words hold elements of
//! [`DType::storage_bits`]; [`from_word`] and [`to_word`] convert between the two.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use crate::dtype::DType;
use crate::ir::Op;
use crate::util::collect::CollectVec as _;

/// Element types of the operands and the result of an operation; pointers count as i64.
#[derive(Clone, Copy, Debug)]
pub struct ScalarTypes<'a> {
    /// One type per operand.
    pub operands: &'a [DType],
    /// Type of the result.
    pub result: DType,
}

/// Reason why an operation has no lowering, as text for the user; the caller adds target and
/// location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl Unsupported {
    pub(super) fn new(op: &Op, dtype: DType) -> Unsupported {
        Unsupported(format!("`{}` of {dtype} is not supported by the ptx back end", op.code.spec().name))
    }
}

/// Returns the register class of an element.
pub const fn class(dtype: DType) -> RegClass {
    match dtype {
        DType::I1 => RegClass::Pred,
        DType::I4 | DType::I8 | DType::I16 | DType::I32 => RegClass::B32,
        DType::F8E4M3FN | DType::F8E5M2 | DType::F8E8M0FNU | DType::F8E5M3FNU | DType::F4E2M1FN => RegClass::B32,
        DType::I64 => RegClass::B64,
        DType::F16 | DType::BF16 => RegClass::B16,
        DType::F32 | DType::TF32 => RegClass::F32,
        DType::F64 => RegClass::F64,
    }
}

/// Returns the constant with this bit pattern (in the low bits, as in [`crate::ir::ConstData`]).
pub fn constant(dtype: DType, bits: u64) -> Operand {
    match dtype {
        DType::F32 | DType::TF32 => Operand::F32(f32::from_bits(bits as u32)),
        DType::F64 => Operand::F64(f64::from_bits(bits)),
        DType::I64 => Operand::Imm(bits as i64),
        DType::I32 => Operand::Imm(i64::from(bits as i32)),
        _ => Operand::Imm((bits & ((1 << dtype.bits()) - 1)) as i64),
    }
}

/// Returns the type of the load or store of one element (unavailable for 4-bit elements). The
/// register has the class of the element, except for i1: a byte in B32.
pub const fn memory_ty(dtype: DType) -> Ty {
    match dtype.storage_bits() {
        64 if matches!(dtype, DType::F64) => Ty::F64,
        64 => Ty::B64,
        32 if matches!(dtype, DType::F32 | DType::TF32) => Ty::F32,
        32 => Ty::B32,
        16 if matches!(dtype, DType::F16 | DType::BF16) => Ty::B16,
        16 => Ty::U16,
        _ => Ty::U8,
    }
}

/// Returns the low storage bits of an element in a B32 word, the rest zero (storage of at most 32
/// bits).
pub fn to_word(b: &mut Builder, dtype: DType, value: Operand) -> Operand {
    match class(dtype) {
        RegClass::Pred => b.pred_to_int(value),
        RegClass::B16 => match value {
            Operand::Imm(bits) => Operand::Imm(bits & 0xffff),
            value => b.cvt(Ty::U32, Ty::U16, CvtRound::None, value),
        },
        RegClass::F32 => b.bitcast(value, RegClass::B32),
        RegClass::B32 => value,
        RegClass::B64 | RegClass::F64 => panic!("{dtype} does not fit a word"),
    }
}

/// Returns the element in the storage bits of `word` that start at bit `lane * storage_bits`; the
/// inverse of [`to_word`] for lane 0.
pub fn from_word(b: &mut Builder, dtype: DType, word: Operand, lane: u32) -> Operand {
    let bits = dtype.storage_bits();
    let field = |b: &mut Builder| match bits {
        32 => word,
        _ => b.bfe(Ty::U32, word, lane * bits, bits),
    };
    match class(dtype) {
        RegClass::Pred => {
            let field = field(b);
            match field.as_imm() {
                Some(value) => (value != 0).into(),
                None => b.setp(Cmp::Ne, Ty::B32, field, 0i64).into(),
            }
        }
        RegClass::B16 => match word {
            Operand::Imm(bits) => Operand::Imm((bits >> (16 * lane)) & 0xffff),
            word if lane == 0 => b.unpack(b.low_half_of(word)).0,
            word => b.unpack(word).1,
        },
        RegClass::F32 => b.bitcast(word, RegClass::F32),
        RegClass::B32 => {
            let field = field(b);
            if bits == 8 {
                b.note_byte(field, word, lane);
            }
            field
        }
        RegClass::B64 | RegClass::F64 => panic!("{dtype} does not fit a word"),
    }
}

/// Packs adjacent elements of 32 bits in total into one word, the first in the low bits.
pub fn pack_word(b: &mut Builder, dtype: DType, values: &[Operand]) -> Operand {
    let bits = dtype.storage_bits();
    debug_assert_eq!(values.len() as u32 * bits, 32, "a word of {dtype}");
    if class(dtype) == RegClass::B16 {
        if let (Some(lo), Some(hi)) = (values[0].as_imm(), values[1].as_imm()) {
            return Operand::from((lo as u32 & 0xffff) | ((hi as u32) << 16));
        }
        return match (values[0], values[1]) {
            (Operand::Imm(_), _) | (_, Operand::Imm(_)) => {
                let halves = b.regs(values, RegClass::B16);
                b.pack(halves[0], halves[1])
            }
            (lo, hi) => b.pack(lo, hi),
        };
    }
    let words: Vec<Operand> = values.iter().map(|&v| to_word(b, dtype, v)).collect_vec();
    match bits {
        32 => words[0],
        16 => b.prmt(words[0], words[1], 0x5410i64),
        8 => b.join_bytes([words[0], words[1], words[2], words[3]]),
        _ => {
            let mut word = words[0];
            for (lane, &nibble) in (0u32..).zip(&words).skip(1) {
                word = b.bfi(Ty::B32, nibble, word, lane * bits, bits);
            }
            word
        }
    }
}

/// Returns the elements of a word; the inverse of [`pack_word`].
pub fn unpack_word(b: &mut Builder, dtype: DType, word: Operand) -> Vec<Operand> {
    if class(dtype) == RegClass::B16 && matches!(word, Operand::Reg(_)) {
        let (lo, hi) = b.unpack(word);
        return vec![lo, hi];
    }
    (0..32 / dtype.storage_bits()).map(|lane| from_word(b, dtype, word, lane)).collect_vec()
}

/// Restores the canonical form of a sub-word integer after an operation that may set bits above its
/// width.
pub fn truncate(b: &mut Builder, dtype: DType, value: Operand) -> Operand {
    match dtype {
        DType::I4 => b.and(Ty::B32, value, 0xfi64),
        DType::I8 => b.and(Ty::B32, value, 0xffi64),
        DType::I16 => b.and(Ty::B32, value, 0xffffi64),
        _ => value,
    }
}

/// Returns an i4 to i32 element as a signed 32-bit number, an i64 unchanged.
pub fn sign_extended(b: &mut Builder, dtype: DType, value: Operand) -> Operand {
    match dtype {
        DType::I4 | DType::I8 | DType::I16 => b.bfe(Ty::S32, value, 0i64, i64::from(dtype.bits())),
        _ => value,
    }
}

/// Flips the signs of one half or two (B16, B32) by integer instructions. ptxas compiles `neg` of a
/// selection between 1 and 0 to a selection between -1 and +0.
pub(super) fn negate_halves(b: &mut Builder, bits: Ty, x: Operand) -> Operand {
    b.xor(bits, x, if bits == Ty::B16 { 0x8000 } else { 0x8000_8000u32 })
}
