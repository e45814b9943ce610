//! Emulator of a CTA for the instructions of MMAs, for tests.
//!
//! All threads execute in lockstep, because branches of MMA code are uniform. Fragments are those
//! of the PTX ISA, written independently of the layouts that the lowering uses.

use crate::backend::ptx::isa::emit::Function;
use crate::backend::ptx::isa::inst::*;

/// Registers and shared memory of a CTA.
pub(super) struct EmulatedBlock {
    /// `registers[thread][width][id]`, widths 1, 16, 32, 64.
    registers: Vec<[Vec<u64>; 4]>,
    /// Shared memory.
    pub shared: Vec<u8>,
    /// Wavefronts of loads beyond one for every 128 bytes.
    pub conflicts: usize,
    /// Registers of asynchronous matrix instructions: closed groups, the open one last. Only
    /// additions to results and reads of words are allowed.
    in_flight: Vec<InFlight>,
}

/// Registers that a group of instructions reads or writes.
#[derive(Default)]
struct InFlight {
    results: Vec<Reg>,
    words: Vec<Reg>,
}

fn bank(class: RegClass) -> usize {
    match class.bits() {
        1 => 0,
        16 => 1,
        32 => 2,
        _ => 3,
    }
}

/// Returns one class for all registers of a width, which share their bits.
fn class_of(reg: Reg) -> RegClass {
    match reg.class.bits() {
        1 => RegClass::Pred,
        16 => RegClass::B16,
        32 => RegClass::B32,
        _ => RegClass::B64,
    }
}

/// Returns the value of a code of a narrow float with `mantissa` bits (no infinities or NaN).
pub(super) fn decode_small(code: u8, mantissa: u32) -> f64 {
    let bias = if mantissa == 3 { 7 } else { 15 };
    let (exponent, fraction) = ((code & 0x7f) >> mantissa, code & ((1 << mantissa) - 1));
    let scale = f64::from(1u32 << mantissa);
    let magnitude = match exponent {
        0 => f64::from(fraction) / scale * 2f64.powi(1 - bias),
        e => (1.0 + f64::from(fraction) / scale) * 2f64.powi(i32::from(e) - bias),
    };
    if code & 0x80 != 0 { -magnitude } else { magnitude }
}

/// Returns the number that the bits of an element represent.
pub(super) fn decode(ty: Ty, bits: u64) -> f64 {
    match ty {
        Ty::F16 => half::f16::from_bits(bits as u16).to_f64(),
        Ty::BF16 => half::bf16::from_bits(bits as u16).to_f64(),
        Ty::F32 => f32::from_bits(bits as u32).into(),
        // The low bits are ignored.
        Ty::TF32 => f32::from_bits(bits as u32 & !0x1fff).into(),
        Ty::F64 => f64::from_bits(bits),
        Ty::S8 => f64::from(bits as i8),
        Ty::U8 => f64::from(bits as u8),
        Ty::S32 => f64::from(bits as i32),
        Ty::E4M3 => decode_small(bits as u8, 3),
        Ty::E5M2 => decode_small(bits as u8, 2),
        other => panic!("no numbers of type {other:?}"),
    }
}

/// Returns the bits of a number that the type represents exactly.
pub(super) fn encode(ty: Ty, value: f64) -> u64 {
    match ty {
        Ty::F16 => half::f16::from_f64(value).to_bits().into(),
        Ty::BF16 => half::bf16::from_f64(value).to_bits().into(),
        Ty::TF32 | Ty::F32 => (value as f32).to_bits().into(),
        Ty::F64 => value.to_bits(),
        Ty::S8 => (value as i8 as u8).into(),
        Ty::U8 => (value as u8).into(),
        Ty::S32 => (value as i32 as u32).into(),
        Ty::E4M3 | Ty::E5M2 => (0..=255u64).find(|&code| decode(ty, code) == value).expect("a small integer"),
        other => panic!("no numbers of type {other:?}"),
    }
}

impl EmulatedBlock {
    pub fn new(function: &Function, shared_bytes: usize) -> EmulatedBlock {
        let thread = || function.registers.map(|count| vec![0xdead_beef_dead_beef; count as usize]);
        EmulatedBlock {
            registers: (0..function.threads).map(|_| thread()).collect(),
            shared: vec![0xff; shared_bytes],
            conflicts: 0,
            in_flight: vec![InFlight::default()],
        }
    }

    pub fn get(&self, thread: usize, reg: Reg) -> u64 {
        let mask = u64::MAX >> (64 - reg.class.bits());
        self.registers[thread][bank(reg.class)][reg.id as usize] & mask
    }

    pub fn set(&mut self, thread: usize, reg: Reg, value: u64) {
        let mask = u64::MAX >> (64 - reg.class.bits());
        self.registers[thread][bank(reg.class)][reg.id as usize] = value & mask;
    }

    pub fn run(&mut self, function: &Function) {
        let mut at = 0;
        while at < function.lines.len() {
            at += 1;
            let Line::Inst(inst) = &function.lines[at - 1] else { continue };
            if let (Opcode::Bra { .. }, Some(Arg::Label(target))) = (inst.op, inst.srcs.first()) {
                let taken = |t: usize| inst.guard.is_none_or(|(pred, not)| (self.get(t, pred) == 1) != not);
                let go = taken(0);
                assert!((0..self.registers.len()).all(|t| taken(t) == go), "uniform branch");
                if go {
                    let is_target = |line: &Line| matches!(line, Line::Label(label) if label == target);
                    at = function.lines.iter().position(is_target).expect("label");
                }
                continue;
            }
            assert!(inst.guard.is_none(), "only branches are guarded");
            self.check_in_flight(inst);
            match inst.op {
                Opcode::WgmmaFence => {}
                Opcode::WgmmaCommitGroup => self.in_flight.push(InFlight::default()),
                Opcode::WgmmaWaitGroup => {
                    let pending = self.one(0, &inst.srcs[0]) as usize;
                    let landed = self.in_flight.len().saturating_sub(1 + pending);
                    self.in_flight.drain(..landed);
                }
                Opcode::Wgmma { n, k, d, a, b } => {
                    let types = MmaTypes { d, a, b, c: d };
                    for first in (0..self.registers.len()).step_by(128) {
                        self.wgmma(first, inst, [n as usize, k as usize], types);
                    }
                }
                Opcode::Shfl(ShflMode::Idx) => {
                    for first in (0..self.registers.len()).step_by(32) {
                        let lane = self.one(first, &inst.srcs[1]) as usize;
                        let value = self.one(first + lane, &inst.srcs[0]);
                        let Arg::One(dst) = &inst.dsts[0] else { panic!("destination of {}", inst.op) };
                        (first..first + 32).for_each(|thread| self.set(thread, dst.reg(), value));
                    }
                }
                Opcode::Ld { ty, vec, .. } => {
                    let bytes = (ty.bits() * vec / 8) as usize;
                    self.warps(|block, warp| {
                        block.count_conflicts(warp, &inst.srcs[0], bytes, 32 / (bytes / 4).max(1))
                    });
                    (0..self.registers.len()).for_each(|thread| self.step(thread, inst));
                }
                Opcode::LdMatrix { num, trans } => self.warps(|block, warp| block.ldmatrix(warp, inst, num, trans)),
                Opcode::Mma { shape, types, .. } => self.warps(|block, warp| block.mma(warp, inst, shape, types)),
                _ => (0..self.registers.len()).for_each(|thread| self.step(thread, inst)),
            }
        }
    }

    /// Checks that an instruction does not interfere with asynchronous ones in flight.
    fn check_in_flight(&mut self, inst: &Inst) {
        let registers = |args: &[Arg]| -> Vec<Reg> {
            args.iter()
                .flat_map(|arg| match arg {
                    Arg::One(Operand::Reg(reg)) => vec![*reg],
                    Arg::Vector(list) => list.iter().map(|operand| operand.reg()).collect(),
                    Arg::Mem(addr) => match addr.base {
                        Operand::Reg(reg) => vec![reg],
                        _ => vec![],
                    },
                    _ => vec![],
                })
                .map(|reg| reg.as_class(class_of(reg)))
                .collect()
        };
        let (read, written) = (registers(&inst.srcs), registers(&inst.dsts));
        if matches!(inst.op, Opcode::Wgmma { .. }) {
            let words = if let Arg::Vector(_) = &inst.srcs[0] { registers(&inst.srcs[..1]) } else { Vec::new() };
            assert!(self.in_flight.iter().all(|group| words.iter().all(|reg| !group.results.contains(reg))));
            let open = self.in_flight.last_mut().expect("the open group");
            open.results.extend(written);
            open.words.extend(words);
            return;
        }
        for group in &self.in_flight {
            let touched = read.iter().chain(&written).find(|reg| group.results.contains(reg));
            assert!(touched.is_none(), "{} touches a result that is on its way", inst.op);
            let overwritten = written.iter().find(|reg| group.words.contains(reg));
            assert!(overwritten.is_none(), "{} overwrites an operand in use", inst.op);
        }
    }

    fn warps(&mut self, body: impl Fn(&mut EmulatedBlock, usize)) {
        (0..self.registers.len() / 32).for_each(|warp| body(self, warp * 32));
    }

    /// Adds the bank conflicts of the accesses of a warp, with `at_once` lanes per wavefront.
    fn count_conflicts(&mut self, warp: usize, address: &Arg, bytes: usize, at_once: usize) {
        for first in (warp..warp + 32).step_by(at_once) {
            let starts = (first..first + at_once).map(|thread| self.address(thread, address));
            let mut words: Vec<usize> = starts.flat_map(|at| at / 4..=(at + bytes - 1) / 4).collect();
            words.sort_unstable();
            words.dedup();
            let mut load = [0; 32];
            words.iter().for_each(|word| load[word % 32] += 1);
            self.conflicts += load.iter().max().unwrap_or(&1) - 1;
        }
    }

    fn operand(&self, thread: usize, operand: Operand) -> u64 {
        match operand {
            Operand::Reg(reg) => self.get(thread, reg),
            Operand::Imm(value) => value as u64,
            Operand::F32(value) => value.to_bits().into(),
            Operand::F64(value) => value.to_bits(),
            Operand::Special(Special::TidX) => thread as u64,
            Operand::Smem => 0,
            other => panic!("{other:?} in a product"),
        }
    }

    fn one(&self, thread: usize, arg: &Arg) -> u64 {
        match arg {
            Arg::One(operand) => self.operand(thread, *operand),
            other => panic!("{other:?} in a product"),
        }
    }

    fn address(&self, thread: usize, arg: &Arg) -> usize {
        let Arg::Mem(addr) = arg else { panic!("{arg:?} is no address") };
        (self.operand(thread, addr.base) as i64 + addr.offset) as usize
    }

    fn read(&self, address: usize, bytes: usize) -> u64 {
        assert_eq!(address % bytes, 0, "aligned");
        self.shared[address..address + bytes].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    }

    fn step(&mut self, thread: usize, inst: &Inst) {
        let srcs: Vec<Option<u64>> =
            inst.srcs.iter().map(|arg| matches!(arg, Arg::One(_)).then(|| self.one(thread, arg))).collect();
        let value = |i: usize| srcs[i].expect("a plain operand");
        let low = |i: usize| value(i) as u32;
        let result = match inst.op {
            Opcode::Mov(ty) => match (&inst.dsts[0], &inst.srcs[0]) {
                (Arg::Vector(halves), _) => {
                    let bits = ty.bits() / 2;
                    for (i, half) in halves.iter().enumerate() {
                        self.set(thread, half.reg(), value(0) >> (bits * i as u32));
                    }
                    return;
                }
                (_, Arg::Vector(halves)) => {
                    let parts: Vec<u64> = halves.iter().map(|&half| self.operand(thread, half)).collect();
                    parts[0] | parts[1] << (ty.bits() / 2)
                }
                _ => value(0),
            },
            Opcode::Int(IntOp::And, _) => value(0) & value(1),
            Opcode::Int(IntOp::Xor, _) => value(0) ^ value(1),
            Opcode::Int(IntOp::Or, _) => value(0) | value(1),
            Opcode::Int(IntOp::MulLo, _) => low(0).wrapping_mul(low(1)).into(),
            Opcode::Int(IntOp::Shl, _) => u64::from(low(0)) << low(1),
            Opcode::Int(IntOp::Shr, Ty::U32) => (low(0) >> low(1)).into(),
            Opcode::Int(IntOp::Add, _) => low(0).wrapping_add(low(1)).into(),
            Opcode::Setp { cmp: Cmp::Ne, .. } => (low(0) != low(1)).into(),
            Opcode::Setp { cmp: Cmp::Lt, .. } => (low(0) < low(1)).into(),
            Opcode::Selp(_) => {
                if value(2) == 1 {
                    value(0)
                } else {
                    value(1)
                }
            }
            Opcode::Prmt => {
                let bytes = u64::from(low(0)) | u64::from(low(1)) << 32;
                let pick = |i: u32| (bytes >> (8 * (low(2) >> (4 * i) & 7)) & 0xff) << (8 * i);
                (0..4).map(pick).sum()
            }
            Opcode::Bfe(Ty::U32) => (low(0) >> low(1) & ((1 << low(2)) - 1)).into(),
            // To nearest even; there are no NaN here.
            Opcode::Cvt { dst: Ty::TF32, src: Ty::F32, .. } => ((low(0) + 0xfff + (low(0) >> 13 & 1)) & !0x1fff).into(),
            Opcode::Float(FloatOp::Add, Ty::F32, _) => {
                (f32::from_bits(low(0)) + f32::from_bits(low(1))).to_bits().into()
            }
            Opcode::Float(FloatOp::Fma, Ty::F32, _) => {
                let [a, c, d] = [0, 1, 2].map(|i| f32::from_bits(low(i)));
                a.mul_add(c, d).to_bits().into()
            }
            Opcode::Ld { space: Space::Shared, ty, vec, .. } => {
                let (address, bytes) = (self.address(thread, &inst.srcs[0]), ty.bits() as usize / 8);
                assert_eq!(address % (bytes * vec as usize), 0, "aligned vector");
                let dsts: Vec<Reg> = match &inst.dsts[0] {
                    Arg::Vector(list) => list.iter().map(|dst| dst.reg()).collect(),
                    Arg::One(dst) => vec![dst.reg()],
                    other => panic!("{other:?} is no destination"),
                };
                for (i, dst) in dsts.into_iter().enumerate() {
                    let word = self.read(address + i * bytes, bytes);
                    self.set(thread, dst, word);
                }
                return;
            }
            other => panic!("{other} in a product"),
        };
        let Arg::One(dst) = &inst.dsts[0] else { panic!("destination of {}", inst.op) };
        self.set(thread, dst.reg(), result);
    }

    fn list(arg: &Arg) -> Vec<Reg> {
        let Arg::Vector(list) = arg else { panic!("{arg:?} is no vector") };
        list.iter().map(|operand| operand.reg()).collect()
    }

    fn ldmatrix(&mut self, warp: usize, inst: &Inst, num: u32, trans: bool) {
        let dsts = Self::list(&inst.dsts[0]);
        self.count_conflicts(warp, &inst.srcs[0], 16, 8);
        assert_eq!(dsts.len(), num as usize, "one register a matrix");
        for (matrix, &dst) in dsts.iter().enumerate() {
            let rows: Vec<usize> = (0..8).map(|row| self.address(warp + matrix * 8 + row, &inst.srcs[0])).collect();
            assert!(rows.iter().all(|row| row % 16 == 0), "aligned rows");
            for lane in 0..32 {
                let (g, q) = (lane >> 2, lane & 3);
                let word = if trans {
                    self.read(rows[2 * q] + 2 * g, 2) | self.read(rows[2 * q + 1] + 2 * g, 2) << 16
                } else {
                    self.read(rows[g] + 4 * q, 4)
                };
                self.set(warp + lane, dst, word);
            }
        }
    }

    /// Returns element `e` of a fragment of a lane.
    fn element(&self, thread: usize, words: &[Reg], bits: u32, e: usize) -> u64 {
        if bits >= 32 {
            return self.get(thread, words[e]);
        }
        let per_word = (32 / bits) as usize;
        self.get(thread, words[e / per_word]) >> (bits as usize * (e % per_word)) & ((1 << bits) - 1)
    }

    /// Returns one element of an operand of a descriptor: `along` k and `other` (m or n) from its
    /// start.
    fn described(&self, descriptor: u64, trans: bool, bits: u32, along: usize, other: usize) -> u64 {
        let field = |first: u32| ((descriptor >> first & 0x3fff) << 4) as usize;
        let (start, leading, stride) = (field(0), field(16), field(32));
        let (span, mask) = match descriptor >> 62 {
            1 => (128, 0x70),
            2 => (64, 0x30),
            3 => (32, 0x10),
            _ => panic!("a swizzle"),
        };
        assert_eq!(descriptor >> 49 & 7, 0, "patterns start where addresses say");
        let bytes = bits as usize / 8;
        let (contiguous, row) = if trans { (other * bytes, along) } else { (along * bytes, other) };
        let panel = if trans { contiguous / span * leading } else { 0 };
        let plain = start + panel + row / 8 * stride + row % 8 * span + contiguous % span;
        self.read(plain ^ (plain >> 3 & mask), bytes)
    }

    /// Executes one instruction of the four warps from thread `first` on.
    fn wgmma(&mut self, first: usize, inst: &Inst, [n, k]: [usize; 2], types: MmaTypes) {
        const M: usize = 64;
        let bits = types.a.bits();
        let per_word = (32 / bits) as usize;
        let add = self.one(first, &inst.srcs[2]) & 1 == 1;
        let has_trans = bits == 16;
        let trans = |position: usize| has_trans && self.one(first, &inst.srcs[position]) == 1;
        let last = inst.srcs.len() - 1;
        let mut left = vec![0.0; M * k];
        match &inst.srcs[0] {
            Arg::Vector(_) => {
                let words = Self::list(&inst.srcs[0]);
                for thread in 0..128 {
                    let (g, q) = ((thread % 32) >> 2, thread & 3);
                    for (w, &word) in words.iter().enumerate() {
                        let value = self.get(first + thread, word);
                        for i in 0..per_word {
                            let row = thread / 32 * 16 + g + 8 * (w & 1);
                            let column = per_word * q + i + 4 * per_word * (w >> 1);
                            let element = value >> (bits as usize * i) & (u64::MAX >> (64 - bits));
                            left[row * k + column] = decode(types.a, element);
                        }
                    }
                }
            }
            descriptor => {
                let descriptor = self.one(first, descriptor);
                for (at, value) in left.iter_mut().enumerate() {
                    *value = decode(types.a, self.described(descriptor, trans(last - 1), bits, at % k, at / k));
                }
            }
        }
        let descriptor = self.one(first, &inst.srcs[1]);
        let right: Vec<f64> = (0..n * k)
            .map(|at| decode(types.b, self.described(descriptor, trans(last), bits, at % k, at / k)))
            .collect();
        for (e, &dst) in Self::list(&inst.dsts[0]).iter().enumerate() {
            for thread in 0..128 {
                let (g, q) = ((thread % 32) >> 2, thread & 3);
                let (row, column) = (thread / 32 * 16 + g + 8 * (e >> 1 & 1), 8 * (e >> 2) + 2 * q + (e & 1));
                let start = if add { decode(types.d, self.get(first + thread, dst)) } else { 0.0 };
                let sum = (0..k).fold(start, |sum, i| sum + left[row * k + i] * right[column * k + i]);
                self.set(first + thread, dst, encode(types.d, sum));
            }
        }
    }

    fn mma(&mut self, warp: usize, inst: &Inst, shape: MmaShape, types: MmaTypes) {
        let [a, c, sums] = [0, 1, 2].map(|i| Self::list(&inst.srcs[i]));
        let (m, n, k, bits) = (shape.m as usize, shape.n as usize, shape.k as usize, types.a.bits());
        let per_word = (32 / bits).max(1) as usize;
        let (mut left, mut right) = (vec![f64::NAN; m * k], vec![f64::NAN; k * n]);
        for lane in 0..32 {
            let (g, q) = (lane >> 2, lane & 3);
            let half = 4 * per_word;
            for e in 0..a.len() * per_word {
                let (word, i) = (e / per_word, e % per_word);
                // Words of the left operand: row g and g + 8, then the second half of k.
                let (row, column) = (g + 8 * (word & 1), per_word * q + i + half * (word >> 1));
                left[row * k + column] = decode(types.a, self.element(warp + lane, &a, bits, e));
            }
            for e in 0..c.len() * per_word {
                let (word, i) = (e / per_word, e % per_word);
                right[(per_word * q + i + half * word) * n + g] =
                    decode(types.b, self.element(warp + lane, &c, bits, e));
            }
        }
        let dsts = Self::list(&inst.dsts[0]);
        for lane in 0..32 {
            let (g, q) = (lane >> 2, lane & 3);
            let sum_bits = types.d.bits().max(16);
            let per_word = (32 / sum_bits).max(1) as usize;
            let values: Vec<u64> = (0..dsts.len() * per_word)
                .map(|e| {
                    let (row, column) = (g + 8 * (e >> 1), 2 * q + (e & 1));
                    let start = decode(types.c, self.element(warp + lane, &sums, sum_bits, e));
                    let sum = (0..k).fold(start, |sum, i| sum + left[row * k + i] * right[i * n + column]);
                    encode(types.d, sum)
                })
                .collect();
            for (i, &dst) in dsts.iter().enumerate() {
                let parts = values[i * per_word..][..per_word].iter().rev();
                self.set(
                    warp + lane,
                    dst,
                    parts.fold(0, |word, &part| if per_word == 1 { part } else { word << 16 | part }),
                );
            }
        }
    }
}
