//! Pairs of registers in one of twice the width. Halves that are bit fields of one word
//! ([`bit_fields`](super::bit_fields)) are packed by a permutation of its bytes.

use super::super::inst::*;
use super::Builder;
use super::bit_fields::{BitField, FewValues};

/// Bits of the truth table of `a & b ^ c`.
const AND_XOR: u8 = 0x6a;

impl Builder {
    /// Packs `{lo, hi}` of narrower registers into one of twice the width: 16 + 16 → B32, 32 + 32 →
    /// B64.
    pub fn pack(&mut self, lo: impl Into<Operand>, hi: impl Into<Operand>) -> Operand {
        let (lo, hi) = (lo.into(), hi.into());
        let half = class_of_either(lo, hi).unwrap_or(RegClass::B32);
        let (ty, class) = match half {
            RegClass::B16 => (Ty::B32, RegClass::B32),
            _ => (Ty::B64, RegClass::B64),
        };
        if half == RegClass::B16
            && let Some(word) = self.pack_fields(lo, hi)
        {
            return word;
        }
        let parts = [self.reg(lo, half).into(), self.reg(hi, half).into()];
        let dst = self.fresh(class);
        self.push(Opcode::Mov(ty), vec![dst.into()], vec![Arg::Vector(parts.to_vec())]);
        dst.into()
    }

    /// Returns the low and high half of a B32 (as B16) or B64/F64 (as B32).
    pub fn unpack(&mut self, whole: impl Into<Operand>) -> (Operand, Operand) {
        let whole = whole.into();
        let (ty, half, reg) = match whole {
            Operand::Reg(reg) if reg.class.bits() == 32 => (Ty::B32, RegClass::B16, reg),
            Operand::Reg(reg) => (Ty::B64, RegClass::B32, reg),
            Operand::F64(value) => return split64(value.to_bits()),
            Operand::Imm(bits) => return split64(bits as u64),
            other => panic!("halves of {other:?}"),
        };
        let (lo, hi) = (self.fresh(half), self.fresh(half));
        let halves = Arg::Vector(vec![lo.into(), hi.into()]);
        self.push(Opcode::Mov(ty), vec![halves], vec![reg.into()]);
        self.note_halves([lo, hi], reg);
        (lo.into(), hi.into())
    }

    /// Records the halves of a word.
    fn note_halves(&mut self, [low, high]: [Reg; 2], word: Reg) {
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

    /// Packs two halves that are bit fields of words. Both must be in whole bytes of their word, or
    /// of the word shifted by less than a byte. The halves of a pair with few values are that
    /// pair.
    fn pack_fields(&mut self, low: Operand, high: Operand) -> Option<Operand> {
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
        if self.is_guarded() || !fields.iter().any(is_part) {
            return None;
        }
        let word = self.bytes_of_pair(first, second)?;
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

    /// Returns a word whose halves have the bits of two fields at their positions, among others.
    fn bytes_of_pair(&mut self, first: BitField, second: BitField) -> Option<Operand> {
        if first.word == second.word && second.shift == first.shift + 16 {
            return Some(self.shifted_word(first.word, first.shift).into());
        }
        let [from, to] = [Self::bytes_of_field(first)?, Self::bytes_of_field(second)?];
        let [a, b] = [(first.word, from.0), (second.word, to.0)];
        let selector = |source: u32, byte: u32, mask: u32| {
            let next = if mask > 0xff { byte + 1 } else { byte };
            i64::from((source + byte) | (source + next) << 4)
        };
        let low = selector(0, from.1, first.mask);
        let high = selector(if a == b { 0 } else { 4 }, to.1, second.mask);
        let selector = low | high << 8;
        let [a, b] = [a, b].map(|(word, shift)| self.shifted_word(word, shift));
        Some(if selector == 0x3210 { a.into() } else { self.prmt(a, b, selector) })
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

fn split64(bits: u64) -> (Operand, Operand) {
    ((bits as u32).into(), ((bits >> 32) as u32).into())
}

fn class_of_either(lo: Operand, hi: Operand) -> Option<RegClass> {
    match (lo, hi) {
        (Operand::Reg(reg), _) | (_, Operand::Reg(reg)) => Some(reg.class),
        _ => None,
    }
}
