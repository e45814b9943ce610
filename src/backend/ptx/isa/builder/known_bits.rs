//! Known bits: registers that are another register with some bits cleared, within straight-line
//! code (LLVM `KnownBits`).

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::inst::*;

/// Registers with the `and` of a register and a constant. None of the registers has been written
/// since.
#[derive(Debug, Default)]
pub(super) struct Masked {
    known: FxHashMap<u32, (Reg, i64)>,
    sources: FxHashSet<u32>,
}

impl Masked {
    /// Removes the entries of these destinations.
    pub fn forget_written(&mut self, dsts: &[Arg]) {
        if self.known.is_empty() {
            return;
        }
        let concerns = |operand: &Operand| match operand {
            Operand::Reg(reg) if reg.class.bits() == 32 => {
                self.known.contains_key(&reg.id) || self.sources.contains(&reg.id)
            }
            _ => false,
        };
        if dsts.iter().any(|arg| arg.has_destination(concerns)) {
            *self = Masked::default();
        }
    }

    /// Records that `result` is `source & mask`.
    pub fn note(&mut self, result: Reg, source: Operand, mask: i64) {
        if let Operand::Reg(source) = source
            && source.class == RegClass::B32
            && result != source
        {
            self.known.insert(result.id, (source, mask));
            self.sources.insert(source.id);
        }
    }

    /// Returns the word and the mask whose `and` is this word, if known.
    pub fn get(&self, word: Operand) -> Option<(Reg, i64)> {
        let Operand::Reg(reg) = word else { return None };
        self.known.get(&reg.id).copied().filter(|_| reg.class == RegClass::B32)
    }
}
