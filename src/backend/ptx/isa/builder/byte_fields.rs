//! Byte fields: bytes that were extracted from a word, valid until the word is written again.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::inst::*;

/// Words of 32 bits with one byte of another word or half, and zeros.
#[derive(Debug, Default)]
pub(super) struct Fields {
    known: FxHashMap<Reg, (Reg, u32)>,
    sources: FxHashSet<Reg>,
}

impl Fields {
    /// Removes the entries of these destinations.
    pub fn forget_written(&mut self, dsts: &[Arg]) {
        if self.known.is_empty() {
            return;
        }
        let written: Vec<Reg> = dsts
            .iter()
            .flat_map(|arg| match arg {
                Arg::One(operand) => vec![*operand],
                Arg::Vector(operands) => operands.clone(),
                Arg::WithPred(Some(reg), _) => vec![Operand::Reg(*reg)],
                _ => Vec::new(),
            })
            .filter_map(|operand| match operand {
                Operand::Reg(reg) => Some(reg),
                _ => None,
            })
            .filter(|reg| self.known.contains_key(reg) || self.sources.contains(reg))
            .collect_vec();
        if !written.is_empty() {
            self.known.retain(|byte, (word, _)| !written.contains(byte) && !written.contains(word));
        }
    }

    /// Records that `byte` is byte `number` of `word` or of a half.
    pub fn note(&mut self, byte: Operand, word: Operand, number: u32) {
        if let (Operand::Reg(byte), Operand::Reg(word)) = (byte, word)
            && byte.class == RegClass::B32
            && matches!(word.class, RegClass::B32 | RegClass::B16)
            && byte != word
        {
            self.known.insert(byte, (word, number));
            self.sources.insert(word);
        }
    }

    /// Returns the word from which a byte was extracted, and the number of the byte.
    pub fn get(&self, byte: Operand) -> Option<(Reg, u32)> {
        let Operand::Reg(reg) = byte else { return None };
        self.known.get(&reg).copied()
    }
}
