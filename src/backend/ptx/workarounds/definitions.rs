//! Definitions of registers: the instruction that writes a register, and the registers that hold
//! constants.

use super::super::isa::emit::Function;
use super::super::isa::inst::{Arg, Inst, Line, Operand, Reg};

/// Lines that define registers, and the registers whose value is a constant.
pub(super) struct Definitions {
    /// By bank and number of a register: its only unguarded definition.
    lines: [Vec<Definition>; 4],
    /// By bank and number of a register: its constant value, sign-extended from the width of the
    /// register.
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
pub(super) fn bank(reg: Reg) -> usize {
    match reg.class.bits() {
        1 => 0,
        16 => 1,
        32 => 2,
        _ => 3,
    }
}

impl Definitions {
    pub fn new(function: &Function) -> Definitions {
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

    /// Returns true if the register has one definition, so that it holds one value wherever it is
    /// read. Registers that the rewrites add have one.
    pub fn is_single(&self, reg: Reg) -> bool {
        let definition = self.lines[bank(reg)].get(reg.id as usize);
        definition.is_none_or(|definition| matches!(definition, Definition::Once(_)))
    }

    /// Returns the only instruction that defines a register, with its line.
    pub fn definition<'f>(&self, function: &'f Function, operand: Operand) -> Option<(usize, &'f Inst)> {
        let Operand::Reg(reg) = operand else { return None };
        let Some(&Definition::Once(line)) = self.lines[bank(reg)].get(reg.id as usize) else { return None };
        match &function.lines[line] {
            Line::Inst(inst) => Some((line, inst)),
            _ => None,
        }
    }

    /// Returns the value of an operand that is a constant: the bits of a register, sign-extended
    /// from its width.
    pub fn constant(&self, operand: Operand) -> Option<i64> {
        match operand {
            Operand::Imm(value) => Some(value),
            Operand::F32(value) => Some(i64::from(value.to_bits() as i32)),
            Operand::F64(value) => Some(value.to_bits() as i64),
            Operand::Reg(reg) => self.constants[bank(reg)].get(reg.id as usize).copied().flatten(),
            _ => None,
        }
    }

    pub fn set_constant(&mut self, reg: Reg, value: i64) {
        self.constants[bank(reg)][reg.id as usize] = Some(value);
    }
}

/// Returns the register that an unguarded instruction defines, if it defines one register and
/// nothing else.
pub(super) fn only_result(inst: &Inst) -> Option<Reg> {
    match &inst.dsts[..] {
        [Arg::One(Operand::Reg(reg))] if inst.guard.is_none() => Some(*reg),
        _ => None,
    }
}

/// Returns the sources of an instruction whose sources are single operands.
pub(super) fn operands<const N: usize>(inst: &Inst) -> Option<[Operand; N]> {
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
