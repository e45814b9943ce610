//! Lines of instructions, from the line number programs of `.debug_line` (DWARF 2 to 4).
//!
//! A program is a state machine. Its opcodes change address, file and line, and append the state as
//! a row. Extended opcodes of NVIDIA (call contexts of inlined functions) are skipped by their
//! length.

use super::elf::{Elf, u16_at, u32_at, u64_at};

/// Standard opcodes.
const COPY: u8 = 1;
const ADVANCE_PC: u8 = 2;
const ADVANCE_LINE: u8 = 3;
const SET_FILE: u8 = 4;
const CONST_ADD_PC: u8 = 8;
const FIXED_ADVANCE_PC: u8 = 9;
/// Extended opcodes, after a zero and their length.
const END_SEQUENCE: u8 = 1;
const SET_ADDRESS: u8 = 2;

/// Rows of a section of code, and the names of files.
#[derive(Debug, Default)]
pub struct LineTable {
    files: Vec<String>,
    rows: Vec<Row>,
}

/// The line of the instructions from an address up to the next row.
#[derive(Clone, Copy, Debug)]
struct Row {
    address: u64,
    /// Index of the file; `None` after the end of a sequence.
    file: Option<usize>,
    line: u32,
}

/// A reader of the bytes of a unit.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn u8(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Reads a number in LEB128; bits beyond 64 are lost.
    fn unsigned(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    fn signed(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0i64, 0u32);
        loop {
            let byte = self.u8()?;
            value |= i64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                let is_negative = byte & 0x40 != 0 && shift < 64;
                return Some(if is_negative { value | (-1 << shift) } else { value });
            }
        }
    }

    fn text(&mut self) -> Option<&'a str> {
        let rest = self.bytes.get(self.at..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        self.at += end + 1;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

/// Numbers of the head of a unit.
struct Head {
    min_instruction: u64,
    line_base: i8,
    line_range: u8,
    /// Numbers of operands of the standard opcodes, from opcode 1.
    operands: Vec<u8>,
}

impl LineTable {
    /// Reads the rows of a section of code. The table is empty without line information.
    pub fn read(elf: &Elf<'_>, code: usize) -> Option<LineTable> {
        let mut table = LineTable::default();
        let Some((section, bytes)) = elf.section(".debug_line") else { return Some(table) };
        let relocations = elf.relocations(section);
        let mut start = 0;
        while start < bytes.len() {
            let length = u32_at(bytes, start)? as usize;
            let end = start.checked_add(4)?.checked_add(length).filter(|&end| end <= bytes.len())?;
            // The address of a sequence has a relocation, unless the file is linked.
            let address = |at: usize, plain: u64| {
                let found = relocations.iter().find(|relocation| relocation.offset == at as u64);
                found.map_or(Some(plain), |to| (to.section == code).then_some(to.value))
            };
            table.unit(Reader { bytes: &bytes[..end], at: start + 4 }, &address)?;
            start = end;
        }
        // The end of a sequence precedes the begin of the next one at the same address.
        crate::util::sort::by_key(&mut table.rows, |row| (row.address, row.file.is_some()));
        Some(table)
    }

    /// Returns file and line of the instruction at an address.
    pub fn line(&self, address: u64) -> Option<(&str, u32)> {
        let row = self.rows[..self.rows.partition_point(|row| row.address <= address)].last()?;
        Some((self.files.get(row.file?)?, row.line))
    }

    /// Reads a unit. `address` returns the address in the code for a place in the section and the
    /// number there; `None` for other code.
    fn unit(&mut self, mut reader: Reader<'_>, address: &dyn Fn(usize, u64) -> Option<u64>) -> Option<()> {
        let version = u16_at(reader.bytes, reader.at)?;
        if !(2..=4).contains(&version) {
            return None;
        }
        let program = (reader.at + 6).checked_add(u32_at(reader.bytes, reader.at + 2)? as usize)?;
        reader.at += 6;
        let min_instruction = u64::from(reader.u8()?);
        // Operations of an instruction (version 4); rows are statements by default.
        reader.at += if version == 4 { 2 } else { 1 };
        let (line_base, line_range) = (reader.u8()? as i8, reader.u8()?);
        let count = reader.u8()?.checked_sub(1)?;
        let operands = (0..count).map(|_| reader.u8()).collect::<Option<Vec<u8>>>()?;
        if line_range == 0 {
            return None;
        }
        let first_file = self.files.len();
        self.names(&mut reader)?;
        reader.at = program;
        self.rows(&mut reader, &Head { min_instruction, line_base, line_range, operands }, first_file, address)
    }

    /// Reads the names of folders and files.
    fn names(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let mut folders = Vec::new();
        loop {
            match reader.text()? {
                "" => break,
                folder => folders.push(folder),
            }
        }
        loop {
            let name = reader.text()?;
            if name.is_empty() {
                return Some(());
            }
            let folder = usize::try_from(reader.unsigned()?).ok()?;
            reader.unsigned()?;
            reader.unsigned()?;
            let folder = folder.checked_sub(1).and_then(|index| folders.get(index));
            self.files.push(folder.map_or_else(|| name.to_owned(), |folder| format!("{folder}/{name}")));
        }
    }

    /// Executes a line number program.
    fn rows(
        &mut self,
        reader: &mut Reader<'_>,
        head: &Head,
        first_file: usize,
        address: &dyn Fn(usize, u64) -> Option<u64>,
    ) -> Option<()> {
        let begin = (Some(0u64), 1usize, 1i64);
        let (mut at, mut file, mut line) = begin;
        let push = |rows: &mut Vec<Row>, at: Option<u64>, file: Option<usize>, line: i64| {
            let Some(address) = at else { return };
            rows.push(Row { address, file, line: u32::try_from(line).unwrap_or(0) });
        };
        let advance =
            |at: Option<u64>, count: u64| at.map(|at| at.wrapping_add(head.min_instruction.wrapping_mul(count)));
        let file_index = |file: usize| file.checked_sub(1).and_then(|index| index.checked_add(first_file));
        while reader.at < reader.bytes.len() {
            match reader.u8()? {
                0 => {
                    let length = usize::try_from(reader.unsigned()?).ok()?;
                    let start = reader.at;
                    let end = start.checked_add(length).filter(|&end| end <= reader.bytes.len())?;
                    match (length > 0).then(|| reader.bytes[start]) {
                        Some(END_SEQUENCE) => {
                            push(&mut self.rows, at, None, line);
                            (at, file, line) = begin;
                        }
                        Some(SET_ADDRESS) => at = address(start + 1, u64_at(reader.bytes, start + 1)?),
                        _ => {}
                    }
                    reader.at = end;
                }
                COPY => push(&mut self.rows, at, file_index(file), line),
                ADVANCE_PC => at = advance(at, reader.unsigned()?),
                ADVANCE_LINE => line = line.wrapping_add(reader.signed()?),
                SET_FILE => file = usize::try_from(reader.unsigned()?).ok()?,
                CONST_ADD_PC => {
                    let opcode = u64::from(255 - (head.operands.len() as u8).min(254) - 1);
                    at = advance(at, opcode / u64::from(head.line_range));
                }
                FIXED_ADVANCE_PC => {
                    let count = u64::from(u16_at(reader.bytes, reader.at)?);
                    reader.at += 2;
                    at = at.map(|at| at.wrapping_add(count));
                }
                // Other standard opcodes do not change address, file or line.
                opcode if usize::from(opcode) <= head.operands.len() => {
                    for _ in 0..head.operands[usize::from(opcode) - 1] {
                        reader.unsigned()?;
                    }
                }
                special => {
                    let number = special - head.operands.len() as u8 - 1;
                    at = advance(at, u64::from(number / head.line_range));
                    line = line.wrapping_add(i64::from(head.line_base) + i64::from(number % head.line_range));
                    push(&mut self.rows, at, file_index(file), line);
                }
            }
        }
        Some(())
    }
}
