//! Addresses of operands in shared memory, and the loop along k.
//!
//! An address is the XOR of a part that depends on the thread and a constant. A thread computes its
//! part once, and one register for each constant that overlaps it. Other constants are offsets of
//! the instruction.

use super::super::isa::builder::Builder;
use super::super::isa::inst::{Addr, CvtRound, Operand, Reg, RegClass, Ty};

/// The maximum number of fused multiply-adds emitted without a loop along k; a matrix instruction
/// counts as four.
pub(super) const UNROLL_LIMIT: usize = 2048;

/// Reader of an operand in shared memory, by element index.
pub(super) struct SmemReader {
    base: Reg,
    thread: Operand,
    in_thread: u32,
    bases: Vec<(u32, Reg)>,
}

impl SmemReader {
    /// Makes a reader; `thread_bases`: byte offsets of the thread's bits.
    pub fn new(b: &mut Builder, base: Operand, thread: Reg, thread_bases: &[u32]) -> SmemReader {
        let part = thread_part(b, thread, thread_bases);
        let base = b.reg(base, RegClass::B32);
        SmemReader {
            base,
            thread: part,
            in_thread: thread_bases.iter().fold(0, |all, basis| all | basis),
            bases: Vec::new(),
        }
    }

    /// Returns the address of the thread's part XOR `smem_offset`.
    pub fn at(&mut self, b: &mut Builder, smem_offset: u32) -> Addr {
        let xor = smem_offset & self.in_thread;
        let offset = i64::from(smem_offset & !self.in_thread);
        if let Some((_, base)) = self.bases.iter().find(|(other, _)| *other == xor) {
            return Addr::new(*base, offset);
        }
        let part = b.xor(Ty::B32, self.thread, xor);
        let base = b.add(Ty::U32, self.base, part);
        let base = b.reg(base, RegClass::B32);
        self.bases.push((xor, base));
        Addr::new(base, offset)
    }
}

/// Emits the XOR of the bases of the set bits of a thread number.
pub(super) fn thread_part(b: &mut Builder, thread: Reg, thread_bases: &[u32]) -> Operand {
    // Bits with the same shift distance are shifted together.
    let mut moves: Vec<(i32, u32)> = Vec::new();
    for (from, &basis) in thread_bases.iter().enumerate() {
        for to in (0..32).filter(|to| basis >> to & 1 == 1) {
            let distance = to - from as i32;
            match moves.iter_mut().find(|(other, _)| *other == distance) {
                Some((_, mask)) => *mask |= 1 << from,
                None => moves.push((distance, 1 << from)),
            }
        }
    }
    let mut sum = Operand::Imm(0);
    for (distance, mask) in moves {
        let bits = b.and(Ty::B32, thread, mask);
        let moved = match distance {
            0.. => b.shl(Ty::B32, bits, distance as u32),
            _ => b.shr(Ty::U32, bits, distance.unsigned_abs()),
        };
        sum = b.xor(Ty::B32, sum, moved);
    }
    sum
}

/// Division of a sum along k into a run-time loop and an unrolled body, by bits of k.
#[derive(Clone, Copy, Debug)]
pub(super) struct KLoop {
    /// log2 of the number of iterations.
    pub trips: u32,
    /// Bytes by which the left and right operand advance per iteration.
    pub strides: [u32; 2],
}

impl KLoop {
    /// Selects the bits of k for the loop.
    ///
    /// * `bits`: for each bit of k that the loop may count, from low to high, its byte offset in
    ///   both operands (0 for an operand in registers).
    /// * `in_thread`: the address bits that depend on the thread.
    /// * `body`: instructions of one step without a loop.
    pub fn new(bits: &[[u32; 2]], in_thread: [u32; 2], body: usize) -> KLoop {
        let required = (body << bits.len()).div_ceil(UNROLL_LIMIT).next_power_of_two().ilog2() as usize;
        // The loop bits have to be a plain counter in both operands.
        let counts = |first: usize| {
            let [a, c] = bits[first];
            bits[first..].iter().enumerate().all(|(i, next)| *next == [a << i, c << i])
                && a.count_ones() == 1
                && c.count_ones() == 1
                && bits[first..].iter().all(|next| next[0] & in_thread[0] == 0 && next[1] & in_thread[1] == 0)
        };
        let first = (bits.len() - required.min(bits.len())..bits.len()).find(|&first| counts(first));
        match first {
            Some(first) => KLoop { trips: (bits.len() - first) as u32, strides: bits[first] },
            None => KLoop { trips: 0, strides: [0, 0] },
        }
    }

    /// Emits `body` in the loop, with the two base addresses of the iteration.
    pub fn emit(self, b: &mut Builder, bases: [Operand; 2], mut body: impl FnMut(&mut Builder, [Operand; 2])) {
        if self.trips == 0 {
            return body(b, bases);
        }
        let bases = bases.map(|base| b.copy(base, RegClass::B32));
        let count = b.copy(0u32, RegClass::B32);
        let head = b.new_label();
        b.emit_label(head);
        body(b, bases.map(Operand::Reg));
        for (base, stride) in bases.into_iter().zip(self.strides) {
            let next = b.add(Ty::U32, base, stride);
            b.mov_to(base, next);
        }
        let next = b.add(Ty::U32, count, 1u32);
        b.mov_to(count, next);
        let more = b.setp(super::super::isa::inst::Cmp::Lt, Ty::U32, count, 1u32 << self.trips);
        b.bra_if(more, false, head, true);
    }
}

/// Rounds an f32 to the word of a tf32, to nearest even.
pub(super) fn round_to_tf32(b: &mut Builder, value: Operand) -> Reg {
    if b.target.arch >= 90 {
        return b.cvt(Ty::TF32, Ty::F32, CvtRound::Rn, value).reg();
    }
    let rounded = super::super::scalar::round_to_tf32(b, value);
    let word = b.bitcast(rounded, RegClass::B32);
    b.reg(word, RegClass::B32)
}
