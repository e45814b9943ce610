//! Bytes of words: extraction by masks, and byte permutations that join them.

use super::super::inst::*;
use super::Builder;

impl Builder {
    /// Returns a word with the low half of `word`; the upper half is unspecified.
    pub fn low_half_of(&self, word: Operand) -> Operand {
        match self.masked.get(word) {
            Some((source, mask)) if mask & 0xffff == 0xffff => source.into(),
            _ => word,
        }
    }

    /// Records that a word is byte `number` of another word or of a half.
    pub fn note_byte(&mut self, byte: Operand, word: Operand, number: u32) {
        if self.guard.is_none() {
            self.fields.note(byte, word, number);
        }
    }

    /// Joins four bytes into one word. Bytes of at most two words or halves need one instruction.
    pub fn join_bytes(&mut self, bytes: [Operand; 4]) -> Operand {
        let fields = bytes.map(|byte| self.fields.get(byte));
        let first = fields[0].map(|(word, _)| word);
        let second = fields.iter().flatten().map(|&(word, _)| word).find(|&word| Some(word) != first).or(first);
        let selectors = fields.map(|field| {
            let (word, number) = field?;
            let of_two = if Some(word) == first { Some(0) } else { (Some(word) == second).then_some(4) };
            Some(i64::from(number) + of_two?)
        });
        if let ([Some(a), Some(b), Some(c), Some(d)], Some(low), Some(high)) = (selectors, first, second) {
            let selector = a | b << 4 | c << 8 | d << 12;
            if selector == 0x5410 && [low, high].iter().all(|source| source.class == RegClass::B16) {
                return self.pack(low, high);
            }
            let [low, high] = [low, high].map(|source| match source.class {
                RegClass::B16 => self.cvt(Ty::U32, Ty::U16, CvtRound::None, source),
                _ => source.into(),
            });
            return if selector == 0x3210 { low } else { self.prmt(low, high, selector) };
        }
        let [a, b, c, d] = bytes;
        let (low, high) = (self.prmt(a, b, 0x0040i64), self.prmt(c, d, 0x0040i64));
        self.prmt(low, high, 0x5410i64)
    }

    /// Returns a word of two bytes, each below a byte of `above`: its bytes 0 and 2 are the two
    /// with the bits of `flip` flipped. Bytes of one word need one instruction, and one more for
    /// all bytes of the word that are flipped.
    pub fn bytes_below(&mut self, low: Operand, high: Operand, above: u8, flip: u8) -> Operand {
        let above = i64::from(above) * 0x0101_0101;
        match (self.fields.get(low), self.fields.get(high)) {
            (Some((word, first)), Some((other, second))) if word == other && word.class == RegClass::B32 => {
                let word = self.flipped_word(word, u32::from(flip) * 0x0101_0101);
                self.prmt(word, above, i64::from(first | 0x40 | second << 8 | 0x4000))
            }
            _ => {
                let joined = self.prmt(low, high, 0x0040i64);
                let pair = self.prmt(joined, above, 0x4140i64);
                self.xor(Ty::B32, pair, i64::from(flip) * 0x0001_0001)
            }
        }
    }
}
