//! Bit fields: registers that are shifted and masked bits of a word, with some bits flipped, and
//! pairs of halves that are such fields of one word.
//!
//! Narrow integers become floats by their bits under a fixed exponent. Two of them in one word need
//! a permutation of its bytes and one `lop3`, instead of a `lop3` each and a permutation. The
//! entries are valid within straight-line code, until one of their registers is written again.

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::inst::*;

/// Bits of a word: `(word >> shift & mask) ^ flip`. A negative shift is to the left.
#[derive(Clone, Copy, Debug)]
pub struct BitField {
    pub word: Reg,
    pub shift: i32,
    pub mask: u32,
    pub flip: u32,
}

/// A pair of halves with few values: `(any & mask) ^ flip` in a register, less a constant for each
/// half. The difference is exact.
#[derive(Clone, Copy, Debug)]
pub struct FewValues {
    pub register: Reg,
    pub mask: u32,
    pub flip: u32,
    pub less: [f64; 2],
}

/// Registers that are bit fields of other ones, and pairs of halves.
#[derive(Debug, Default)]
pub(super) struct BitFields {
    fields: FxHashMap<Reg, BitField>,
    pub pairs: FxHashMap<Reg, FewValues>,
    /// Halves of such a pair, with the pair and whether they are its high one.
    pub halves: FxHashMap<Reg, (Reg, bool)>,
    /// Words that are shifted by less than a byte: by bits to the right, or to the left if
    /// negative.
    pub shifted: FxHashMap<(Reg, i32), Reg>,
    /// Words with flipped bits.
    pub flipped: FxHashMap<(Reg, u32), Reg>,
    /// Bits and numbers of all registers in the entries.
    registers: FxHashSet<(u32, u32)>,
}

impl BitFields {
    /// Removes all entries if one of their registers is among these destinations.
    pub fn forget_written(&mut self, dsts: &[Arg]) {
        if self.registers.is_empty() {
            return;
        }
        let concerns = |operand: &Operand| match operand {
            Operand::Reg(reg) => self.registers.contains(&(reg.class.bits(), reg.id)),
            _ => false,
        };
        if dsts.iter().any(|arg| arg.has_destination(concerns)) {
            *self = BitFields::default();
        }
    }

    pub fn watch(&mut self, registers: [Reg; 2]) {
        self.registers.extend(registers.map(|reg| (reg.class.bits(), reg.id)));
    }

    pub fn get(&self, operand: Operand) -> Option<BitField> {
        let Operand::Reg(reg) = operand else { return None };
        self.fields.get(&reg).copied()
    }

    pub fn note(&mut self, result: Reg, field: BitField) {
        self.watch([result, field.word]);
        self.fields.insert(result, field);
    }

    /// Records the result of an integer operation on a word and a constant.
    pub fn record(&mut self, result: Reg, op: IntOp, ty: Ty, a: Operand, b: Operand) {
        let (Operand::Reg(word), Some(number)) = (a, b.as_imm()) else { return };
        if word.class != RegClass::B32 || result.class != RegClass::B32 || word == result {
            return;
        }
        let known = self.get(a);
        let whole = BitField { word, shift: 0, mask: u32::MAX, flip: 0 };
        let field = known.unwrap_or(whole);
        let bits = number as u32;
        let field = match op {
            IntOp::And => BitField { mask: field.mask & bits, flip: field.flip & bits, ..field },
            IntOp::Xor => BitField { flip: field.flip ^ bits, ..field },
            IntOp::Shr if known.is_none() && !ty.is_signed() && bits < 32 => {
                BitField { shift: bits as i32, mask: u32::MAX >> bits, ..field }
            }
            IntOp::Shl if bits < 32 => BitField {
                shift: field.shift - bits as i32,
                mask: field.mask << bits,
                flip: field.flip << bits,
                ..field
            },
            _ => return,
        };
        self.note(result, field);
    }
}
