//! Bit fields: registers that are shifted and masked bits of a word, with some bits flipped, and
//! pairs of halves that are such fields of one word.
//!
//! Narrow integers become floats by their bits under a fixed exponent. Two of them in one word need
//! a permutation of its bytes and one `lop3`, instead of a `lop3` each and a permutation. The
//! entries are valid within straight-line code, until one of their registers is written again.

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::inst::*;
use super::Builder;

/// Bits of the truth table of `a & b ^ c`.
const AND_XOR: u8 = 0x6a;

/// Bits of a word: `(word >> shift & mask) ^ flip`. A negative shift is to the left.
#[derive(Clone, Copy, Debug)]
struct BitField {
    word: Reg,
    shift: i32,
    mask: u32,
    flip: u32,
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
    pairs: FxHashMap<Reg, FewValues>,
    /// Halves of such a pair, with the pair and whether they are its high one.
    halves: FxHashMap<Reg, (Reg, bool)>,
    /// Words that are shifted by less than a byte: by bits to the right, or to the left if
    /// negative.
    shifted: FxHashMap<(Reg, i32), Reg>,
    /// Words with flipped bits.
    flipped: FxHashMap<(Reg, u32), Reg>,
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
        let any = dsts.iter().any(|arg| match arg {
            Arg::One(operand) => concerns(operand),
            Arg::Vector(operands) => operands.iter().any(concerns),
            Arg::WithPred(Some(reg), _) => concerns(&Operand::Reg(*reg)),
            _ => false,
        });
        if any {
            *self = BitFields::default();
        }
    }

    fn watch(&mut self, registers: [Reg; 2]) {
        self.registers.extend(registers.map(|reg| (reg.class.bits(), reg.id)));
    }

    fn get(&self, operand: Operand) -> Option<BitField> {
        let Operand::Reg(reg) = operand else { return None };
        self.fields.get(&reg).copied()
    }

    fn note(&mut self, result: Reg, field: BitField) {
        self.watch([result, field.word]);
        self.fields.insert(result, field);
    }
}

impl Builder {
    /// Records the result of an integer operation on a word and a constant.
    pub(super) fn note_bits(&mut self, result: Reg, op: IntOp, ty: Ty, a: Operand, b: Operand) {
        let (Operand::Reg(word), Some(number)) = (a, b.as_imm()) else { return };
        if word.class != RegClass::B32 || result.class != RegClass::B32 || word == result || self.is_guarded() {
            return;
        }
        let known = self.bits.get(a);
        let whole = BitField { word, shift: 0, mask: u32::MAX, flip: 0 };
        let field = known.unwrap_or(whole);
        let bits = number as u32;
        let field = match op {
            IntOp::And => BitField { mask: field.mask & bits, flip: field.flip & bits, ..field },
            IntOp::Xor => BitField { flip: field.flip ^ bits, ..field },
            IntOp::Shr if known.is_none() && !ty.is_signed() && bits < 32 => {
                BitField { shift: bits as i32, mask: u32::MAX >> bits, ..field }
            }
            IntOp::Shl if known.is_none() && bits < 32 => {
                BitField { shift: -(bits as i32), mask: u32::MAX << bits, ..field }
            }
            _ => return,
        };
        self.bits.note(result, field);
    }

    /// Records the halves of a word.
    pub(super) fn note_halves(&mut self, [low, high]: [Reg; 2], word: Reg) {
        if low.class != RegClass::B16 || self.is_guarded() {
            return;
        }
        if let Some(field) = self.bits.get(word.into()) {
            self.bits.note(low, BitField { mask: field.mask & 0xffff, flip: field.flip & 0xffff, ..field });
        }
        if self.bits.pairs.contains_key(&word) {
            self.bits.watch([low, high]);
            self.bits.halves.extend([(low, (word, false)), (high, (word, true))]);
        }
    }

    /// Packs two halves that are bit fields of one word, if both are in whole bytes of the word or
    /// of the word shifted by less than a byte. The halves of a pair with few values are that pair.
    pub(super) fn pack_fields(&mut self, low: Operand, high: Operand) -> Option<Operand> {
        if let (Operand::Reg(low), Operand::Reg(high)) = (low, high)
            && let (Some(&(word, false)), Some(&(other, true))) =
                (self.bits.halves.get(&low), self.bits.halves.get(&high))
            && word == other
        {
            return Some(word.into());
        }
        let fields = [self.bits.get(low)?, self.bits.get(high)?];
        let [first, second] = fields;
        let is_part = |field: &BitField| field.mask != 0xffff || field.flip != 0;
        if first.word != second.word || self.is_guarded() || !fields.iter().any(is_part) {
            return None;
        }
        let [from, to] = [Self::bytes_of_field(first)?, Self::bytes_of_field(second)?];
        let selector = |(shift, byte): (i32, u32), mask: u32| {
            let source = if shift == from.0 { 0 } else { 4 };
            let next = if mask > 0xff { byte + 1 } else { byte };
            i64::from((source + byte) | (source + next) << 4)
        };
        let selector = selector(from, first.mask) | selector(to, second.mask) << 8;
        let [a, b] = [from.0, to.0].map(|shift| self.shifted_word(first.word, shift));
        let word = if selector == 0x3210 { a.into() } else { self.prmt(a, b, selector) };
        let [mask, flip] = [first.mask | second.mask << 16, first.flip | second.flip << 16];
        let result = match flip {
            0 => self.and(Ty::B32, word, i64::from(mask as i32)),
            _ => self.lop3(word, i64::from(mask as i32), i64::from(flip as i32), AND_XOR),
        };
        if let Operand::Reg(register) = result {
            self.note_few_values(register, FewValues { register, mask, flip, less: [0.0; 2] });
        }
        Some(result)
    }

    /// Returns the bits by which the word of a field is shifted, and the number of the byte that
    /// begins with the field.
    fn bytes_of_field(field: BitField) -> Option<(i32, u32)> {
        let more = u32::from(field.mask > 0xff);
        let rest = field.shift.rem_euclid(8);
        let at = |shift: i32| {
            let byte = u32::try_from((field.shift - shift).div_euclid(8)).ok()?;
            (byte + more <= 3).then_some((shift, byte))
        };
        if rest == 0 { at(0) } else { at(rest - 8).or_else(|| at(rest)) }
    }

    /// Returns a word shifted by some bits to the right, or to the left if negative.
    fn shifted_word(&mut self, word: Reg, shift: i32) -> Reg {
        if shift == 0 {
            return word;
        }
        if let Some(&known) = self.bits.shifted.get(&(word, shift)) {
            return known;
        }
        let op = if shift < 0 { IntOp::Shl } else { IntOp::Shr };
        let result = self.fresh(RegClass::B32);
        self.int_to(result, op, Ty::B32, word, i64::from(shift.unsigned_abs()));
        self.bits.watch([word, result]);
        self.bits.shifted.insert((word, shift), result);
        result
    }

    /// Returns a word with some bits flipped.
    pub(super) fn flipped_word(&mut self, word: Reg, flip: u32) -> Reg {
        if flip == 0 {
            return word;
        }
        if let Some(&known) = self.bits.flipped.get(&(word, flip)) {
            return known;
        }
        let result = self.fresh(RegClass::B32);
        self.int_to(result, IntOp::Xor, Ty::B32, word, i64::from(flip as i32));
        if !self.is_guarded() {
            self.bits.watch([word, result]);
            self.bits.flipped.insert((word, flip), result);
        }
        result
    }

    /// Returns the values of a pair of halves, if they are few.
    pub fn few_values(&self, pair: Operand) -> Option<FewValues> {
        let Operand::Reg(reg) = pair else { return None };
        self.bits.pairs.get(&reg).copied()
    }

    /// Records the values of a pair of halves.
    pub fn note_few_values(&mut self, pair: Reg, values: FewValues) {
        if !self.is_guarded() {
            self.bits.watch([pair, values.register]);
            self.bits.pairs.insert(pair, values);
        }
    }
}
