//! Reader of machine code in a cubin: the source lines whose values live in local memory.
//!
//! 1. `elf`: sections, symbols and relocations.
//! 2. `line_table`: the lines of instructions, from the section `.debug_line` (DWARF 2 to 4).
//! 3. `instruction`: the fields of an instruction that the analysis needs.
//! 4. `loops`: the instructions inside of loops.
//! 5. `local_memory`: accesses of local memory, by the line of the value.
//!
//! All of them accept damaged files: they return `None` or less, and allocate no more than the file
//! has.

mod elf;
mod instruction;
mod line_table;
mod local_memory;
mod loops;

pub use local_memory::SpilledLine;
pub(crate) use local_memory::local_memory;

/// Returns the opcodes of a kernel, without the form of their operands.
#[cfg(test)]
pub(crate) fn opcodes(cubin: &[u8], kernel: &str) -> Option<Vec<u16>> {
    let elf = elf::Elf::read(cubin)?;
    let (_, code) = elf.section(&format!(".text.{kernel}"))?;
    Some(instruction::Instruction::all(code).into_iter().map(instruction::Instruction::opcode).collect())
}
