//! Workarounds for ptxas: rewrites of finished instructions that some releases of ptxas compile to wrong code.
//!
//! Each defect was reproduced on an H100 with single instruction sequences, for PTX of sm_80 and sm_90a
//! (ptxas 13.0.88 in driver 580.159.04; 13.5 where it is named). The suite's `late` tests cover them.
//!
//! | defect | instructions | wrong result | releases | rewrite |
//! |---|---|---|---|---|
//! | late minuend | 32-bit `C - x` into `min`, `max` or a `selp` that is one; ptxas learns `C` from 64-bit code | `x - C` | 13.0, 13.5; sm_90 to sm_103 | [`constants`]; [`rewrite_minuends`](defects::rewrite_minuends) |
//! | late shift amount | 32-bit `(x & m) << (C & 31)`; ptxas learns `C` outside of 0 to 31 from 64-bit code | 0 | 13.0 | [`constants`] |
//! | mixed clamp | unsigned `max` with 0 before or after a signed `min` with 0, also as compare and select | 0 | 13.0 | [`remove_trivial`](defects::remove_trivial) |
//! | chained factors | 64-bit `(x * C) * D + y`, or a shift for the first product, `C * D` of 2^32 or more | `C * D` cut to 32 bits | 13.0 | [`merge_factors`](defects::merge_factors) |
//!
//! Constants that ptxas learns early, from `mov`, 32-bit code or unrolled loops, trigger neither of the first two.

mod constants;
mod defects;
#[cfg(test)]
mod tests;

use super::emit::Function;
use super::inst::{Arg, Inst, Line, Operand, Reg};

/// Rewrites the instructions of a kernel that ptxas would compile to wrong code.
pub fn apply(function: &mut Function) {
    // The suite's `late` tests fail without them on a driver that has the defects.
    #[cfg(feature = "_suite")]
    if std::env::var_os("CUTLET_SUITE_WITHOUT_WORKAROUNDS").is_some() {
        return;
    }
    let mut definitions = Definitions::of(function);
    constants::propagate(function, &mut definitions);
    defects::remove_trivial(function, &definitions);
    defects::merge_factors(function, &definitions);
    defects::rewrite_minuends(function, &definitions);
}

/// Lines that define registers, and the registers whose value is a constant.
struct Definitions {
    /// By bank and number of a register: its only unguarded definition.
    lines: [Vec<Definition>; 4],
    /// By bank and number of a register: its constant value, sign-extended from the width of the register.
    constants: [Vec<Option<i64>>; 4],
}

/// Number of definitions of a register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Definition {
    None,
    /// The line of the only definition, which has no guard.
    Once(usize),
    Many,
}

/// The bank of a register: registers of one width and number are one register.
fn bank(reg: Reg) -> usize {
    match reg.class.bits() {
        1 => 0,
        16 => 1,
        32 => 2,
        _ => 3,
    }
}

impl Definitions {
    fn of(function: &Function) -> Definitions {
        let mut lines = function.registers.map(|count| vec![Definition::None; count as usize]);
        for (index, line) in function.lines.iter().enumerate() {
            let Line::Inst(inst) = line else { continue };
            inst.registers(&mut |reg, written| {
                if written {
                    let definition = &mut lines[bank(reg)][reg.id as usize];
                    *definition = match (*definition, inst.guard) {
                        (Definition::None, None) => Definition::Once(index),
                        _ => Definition::Many,
                    };
                }
            });
        }
        Definitions { lines, constants: function.registers.map(|count| vec![None; count as usize]) }
    }

    /// Returns true if the register has one definition, so that it holds one value wherever it is read.
    fn is_single(&self, reg: Reg) -> bool {
        matches!(self.lines[bank(reg)][reg.id as usize], Definition::Once(_))
    }

    /// Returns the only instruction that defines a register.
    fn instruction<'f>(&self, function: &'f Function, operand: Operand) -> Option<&'f Inst> {
        let Operand::Reg(reg) = operand else { return None };
        match self.lines[bank(reg)][reg.id as usize] {
            Definition::Once(line) => match &function.lines[line] {
                Line::Inst(inst) => Some(inst),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the value of an operand that is a constant: the bits of a register, sign-extended from its width.
    fn constant(&self, operand: Operand) -> Option<i64> {
        match operand {
            Operand::Imm(value) => Some(value),
            Operand::F32(value) => Some(i64::from(value.to_bits() as i32)),
            Operand::F64(value) => Some(value.to_bits() as i64),
            Operand::Reg(reg) => self.constants[bank(reg)][reg.id as usize],
            _ => None,
        }
    }

    fn set_constant(&mut self, reg: Reg, value: i64) {
        self.constants[bank(reg)][reg.id as usize] = Some(value);
    }
}

/// Returns the register that an unguarded instruction defines, if it defines one register and nothing else.
fn only_result(inst: &Inst) -> Option<Reg> {
    match &inst.dsts[..] {
        [Arg::One(Operand::Reg(reg))] if inst.guard.is_none() => Some(*reg),
        _ => None,
    }
}

/// Returns the sources of an instruction whose sources are single operands.
fn operands<const N: usize>(inst: &Inst) -> Option<[Operand; N]> {
    let mut sources = [Operand::Imm(0); N];
    if inst.srcs.len() != N {
        return None;
    }
    for (source, arg) in sources.iter_mut().zip(&inst.srcs) {
        let Arg::One(operand) = arg else { return None };
        *source = *operand;
    }
    Some(sources)
}
