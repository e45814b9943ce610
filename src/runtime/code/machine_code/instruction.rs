//! Fields of an instruction of 128 bits (sm_70 and later).
//!
//! Positions are those that `nvdisasm -hex` shows for sm_80, sm_90a and sm_120a: the opcode in bits
//! 0 to 11, the predicate in bits 12 to 15, and the first register of the result in bits 16 to 23.

use crate::util::collect::CollectVec as _;
use std::ops::Range;

/// Register that is always zero, and the register with the address of the stack.
pub const ZERO: u16 = 255;
pub const STACK: u16 = 1;

/// Bytes of an instruction.
pub const BYTES: usize = 16;

/// Opcodes without the bits that select the form of operands.
const STL: u16 = 0x187;
const LDL: u16 = 0x183;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    low: u64,
    high: u64,
}

/// An access of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAccess {
    pub is_store: bool,
    /// Register of the address.
    pub base: u16,
    pub offset: i32,
    pub bytes: u32,
    /// First register of the value.
    pub data: u16,
}

/// The next instructions after one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The following instruction.
    Next,
    /// The following instruction, or the one at a distance from it in bytes.
    Branch { distance: i64, is_always: bool },
    /// Begin of a section that diverges: threads reconverge at a distance.
    Diverge { distance: i64 },
    /// Threads wait for all other threads of their section, and reconverge.
    Reconverge,
    /// No instruction.
    End,
}

impl Instruction {
    /// Reads the instructions of a section of code.
    pub fn all(code: &[u8]) -> Vec<Instruction> {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        code.chunks_exact(BYTES).map(|both| Instruction { low: word(&both[..8]), high: word(&both[8..]) }).collect_vec()
    }

    fn field(self, first: u32, bits: u32) -> u16 {
        (self.low >> first & ((1 << bits) - 1)) as u16
    }

    /// Returns the opcode without the form of the operands.
    pub fn opcode(self) -> u16 {
        self.field(0, 9)
    }

    /// Returns the size of the value of a memory access in bytes.
    fn access_bytes(self) -> u32 {
        match self.high >> 9 & 7 {
            0 | 1 => 1,
            2 | 3 => 2,
            4 => 4,
            5 => 8,
            _ => 16,
        }
    }

    /// Returns the access of local memory.
    pub fn local_access(self) -> Option<LocalAccess> {
        let is_store = match self.opcode() {
            STL => true,
            LDL => false,
            _ => return None,
        };
        let data = if is_store { self.field(32, 8) } else { self.field(16, 8) };
        // 24 bits with a sign.
        let offset = ((self.low >> 32) as i32) >> 8;
        Some(LocalAccess { is_store, base: self.field(24, 8), offset, bytes: self.access_bytes(), data })
    }

    /// Returns the registers that the instruction writes, or more after the first one where their
    /// number depends on further fields.
    pub fn written(self) -> Range<u16> {
        let first = self.field(16, 8);
        let count = match self.opcode() {
            // Comparisons to predicates, `ELECT`, `STSM`.
            0x0b | 0x0c | 0x1c | 0x2a | 0x2f | 0x34 | 0x44 => 0,
            // `CS2R`, products of 32 bits with 64-bit results, doubles.
            0x05 | 0x25 | 0x28 | 0x29 | 0x2b => 2,
            // `HMMA`, `IMMA`, `DMMA`, `LDSM`.
            0x37 | 0x3b | 0x3c | 0x3f => 4,
            0x00..=0x7f => 1,
            // The uniform data path; `FCHK`, `NOP`, `DEPBAR`, `BAR`.
            0x80..=0xff | 0x102 | 0x118 | 0x11a | 0x11d => 0,
            // Conversions may have results of 64 bits.
            0x104..=0x106 => 2,
            0x100..=0x13f => 1,
            // Loads.
            0x180..=0x184 => self.access_bytes().div_ceil(4) as u16,
            // `SHFL`, atomics, `MATCH`.
            0x189..=0x18d | 0x1a1 | 0x1a3 | 0x1a8..=0x1aa => 1,
            // `HGMMA` and the like: half the columns.
            0x1f0..=0x1ff => 128,
            _ => 0,
        };
        if first == ZERO { 0..0 } else { first..(first + count).min(ZERO) }
    }

    /// Returns the next instructions. `has_wide_branch`: `BRA` has its low bits in the place of the
    /// result (sm_90 and later).
    pub fn flow(self, has_wide_branch: bool) -> Flow {
        let is_always = self.field(12, 4) == 7;
        let distance = ((self.low >> 34 | self.high << 30) as i64) << 16 >> 16;
        match self.opcode() {
            // `BRA`. Another form has a uniform predicate.
            0x147 => {
                let low = i64::from(self.field(16, 8));
                let distance = if has_wide_branch { distance << 8 | low } else { distance };
                let is_always = is_always && self.low & 0xfff == 0x947 && self.high >> 23 & 0xf == 7;
                Flow::Branch { distance: distance.wrapping_mul(4), is_always }
            }
            // `EXIT`, `RET`.
            0x14d | 0x150 if is_always => Flow::End,
            // `BSSY`, `BSYNC`.
            0x145 => Flow::Diverge { distance: distance.wrapping_mul(4) },
            0x141 => Flow::Reconverge,
            _ => Flow::Next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(low: u64, high: u64) -> Instruction {
        Instruction { low, high }
    }

    #[test]
    fn accesses_are_those_of_the_disassembler() {
        // STL.64 [R1+0xb0], R36; STL [R1], R31; LDL R20, [R1+0x88].
        let store = instruction(0x0000_b024_0100_7387, 0x000f_e800_0010_0a00);
        let want = LocalAccess { is_store: true, base: STACK, offset: 0xb0, bytes: 8, data: 36 };
        assert_eq!(store.local_access(), Some(want));
        assert!(store.written().is_empty());
        let load = instruction(0x0000_8800_0114_7983, 0x000f_e800_0010_0800);
        let want = LocalAccess { is_store: false, base: STACK, offset: 0x88, bytes: 4, data: 20 };
        assert_eq!(load.local_access(), Some(want));
        assert_eq!(load.written(), 20..21);
        let below = instruction(0xffff_fc24_0100_7387, 0x000f_e800_0010_0a00);
        assert_eq!(below.local_access().map(|access| access.offset), Some(-4));
    }

    #[test]
    fn branches_are_those_of_the_disassembler() {
        let back = Flow::Branch { distance: -0xa20, is_always: false };
        // @!P0 BRA on sm_80, sm_90a; BRA.U !UP0 on sm_120a.
        assert_eq!(instruction(0xffff_f5e0_0000_8947, 0x000f_ea00_0383_ffff).flow(false), back);
        assert_eq!(instruction(0xffff_fff4_0078_8947, 0x000f_ec00_0383_ffff).flow(true), back);
        let back = Flow::Branch { distance: -0xa10 + 0x20, is_always: false };
        assert_eq!(instruction(0xffff_fff5_0084_7547, 0x000f_ec00_0b83_ffff).flow(true), back);
        // EXIT, @P0 EXIT.
        assert_eq!(instruction(0x794d, 0x000f_ea00_0380_0000).flow(true), Flow::End);
        assert_eq!(instruction(0x094d, 0x000f_ea00_0380_0000).flow(true), Flow::Next);
    }
}
