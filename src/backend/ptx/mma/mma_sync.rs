//! MMAs by `mma.sync`, with fragments from shared memory or registers.

use super::super::hardware::{REGISTERS_PER_SM, SWIZZLE_ROW_BYTES, WARP_SIZE};
use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::fragment::Fragments;
use super::request::{MmaRequest, OperandPlan, Planned, of_rank};
use crate::dtype::DType;
use crate::layout::{Instruction, Layout, Tiling};
use crate::util::collect::CollectVec as _;

/// An MMA on tensor cores.
#[derive(Clone, Debug)]
pub(super) struct MmaSyncPlan {
    pub tiling: Tiling,
    pub types: MmaTypes,
    pub left: Fragments,
    pub right: Fragments,
    /// The accumulator's layout with all register bits of the tiling.
    acc: Layout,
}

/// Returns the operand type of the instruction and the type of the operands in shared memory.
fn operand_type(dtype: DType, signed: bool, request: &MmaRequest) -> Option<(Ty, DType)> {
    Some(match dtype {
        DType::F16 => (Ty::F16, dtype),
        DType::BF16 => (Ty::BF16, dtype),
        DType::TF32 => (Ty::TF32, dtype),
        DType::F64 => (Ty::F64, dtype),
        DType::I8 => (if signed { Ty::S8 } else { Ty::U8 }, dtype),
        // Targets before sm_89 have no instructions, and those of sm_89 keep few bits of the sums.
        DType::F8E4M3FN | DType::F8E5M2 if request.target.arch < 89 + u32::from(!request.fast) => (Ty::F16, DType::F16),
        DType::F8E4M3FN => (Ty::E4M3, dtype),
        DType::F8E5M2 => (Ty::E5M2, dtype),
        DType::I1
        | DType::I4
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::F32
        | DType::F8E8M0FNU
        | DType::F4E2M1FN
        | DType::F8E5M3FNU => return None,
    })
}

fn types(request: &MmaRequest) -> Option<(MmaTypes, [DType; 2])> {
    let (a, smem_a) = operand_type(request.a.dtype, request.a.signed, request)?;
    let (c, smem_b) = operand_type(request.b.dtype, request.b.signed, request)?;
    let small = |ty: Ty| matches!(ty, Ty::E4M3 | Ty::E5M2);
    let acc = match (a, c, request.acc) {
        (Ty::F16, Ty::F16, DType::F16) => Ty::F16,
        (Ty::F16, Ty::F16, DType::F32) => Ty::F32,
        (Ty::BF16, Ty::BF16, DType::F32) | (Ty::TF32, Ty::TF32, DType::F32) => Ty::F32,
        (Ty::F64, Ty::F64, DType::F64) => Ty::F64,
        (Ty::S8 | Ty::U8, Ty::S8 | Ty::U8, DType::I32) => Ty::S32,
        (a, c, DType::F16) if small(a) && small(c) => Ty::F16,
        (a, c, DType::F32) if small(a) && small(c) => Ty::F32,
        _ => return None,
    };
    Some((MmaTypes { d: acc, a, b: c, c: acc }, [smem_a, smem_b]))
}

/// Registers of a thread that the accumulator and the fragments of two steps of an f64 MMA may
/// have. The others are for addresses.
const F64_STEP_REGISTERS: usize = 200;

/// Returns the tiling of an f64 MMA. Targets before sm_90 have m8n8k4 alone. Later ones multiply at
/// twice the rate by 16 rows. There are two steps at least, because the fragments of one step are
/// loaded during the other one. The depth is the largest for which the fragments of both fit the
/// registers.
fn tiling_of_f64(request: &MmaRequest) -> Tiling {
    let tiling = |m, k| Tiling::new(Instruction { m, n: 8, k, bits: 64 }, request.extents, request.num_warps);
    let [_, rows, _, depth] = request.extents;
    if request.target.arch < 90 || rows < 16 {
        return tiling(8, 4);
    }
    let of_thread = REGISTERS_PER_SM as usize / (request.num_warps * WARP_SIZE as usize);
    let limit = F64_STEP_REGISTERS.min(of_thread * 3 / 4);
    let fits = |candidate: &Tiling| {
        let [_, m, n] = candidate.repeats();
        let (m, n) = (1 << m, 1 << n);
        let Instruction { m: rows, n: columns, k, .. } = candidate.instruction;
        let elements = (rows * m * columns * n + 2 * k * (rows * m + columns * n)) as usize / WARP_SIZE as usize;
        2 * elements <= limit
    };
    let deep = [16, 8].into_iter().filter(|&k| 2 * k <= depth).map(|k| tiling(16, k)).find(fits);
    deep.unwrap_or_else(|| tiling(16, 4))
}

pub(super) fn plan(request: &MmaRequest) -> Result<Planned<MmaSyncPlan>, String> {
    let MmaRequest { a, b, acc, .. } = request;
    let (types, smem_types) =
        types(request).ok_or_else(|| format!("no matrix product of {} and {} into {acc}", a.dtype, b.dtype))?;
    let bits = types.a.bits();
    let mut tiling = if bits == 64 {
        tiling_of_f64(request)
    } else {
        // 32 bytes of k, or half of that for a k of at most 16 bytes.
        let full = 256 / i64::from(bits);
        let k = if request.extents[3] <= full / 2 { full / 2 } else { full };
        Tiling::new(Instruction { m: 16, n: 8, k, bits }, request.extents, request.num_warps)
    };
    let k = tiling.instruction.k;
    // Bytes that are not contiguous along k are loaded in four rows at a time.
    let whole_bytes = bits == 8 && request.extents[3] >= k;
    tiling.interleave(whole_bytes && !a.k_contiguous, whole_bytes && !b.k_contiguous);
    let left = Fragments::new(&tiling, true, a.k_contiguous, types.a, request.rank);
    let right = Fragments::new(&tiling, false, b.k_contiguous, types.b, request.rank);
    let full_acc = tiling.accumulator();
    let operand = |fragments: &Fragments, dtype: DType| OperandPlan {
        dtype,
        shared: fragments.shared.clone(),
        align: SWIZZLE_ROW_BYTES,
        registers: Some(fragments.layout.canonical().reshape(&fragments.shared.shape)),
        panels: None,
        may_be_unrounded: dtype == DType::TF32,
    };
    let [batch, m, n, _] = request.extents;
    Ok(Planned {
        a: operand(&left, smem_types[0]),
        b: operand(&right, smem_types[1]),
        acc: full_acc.canonical().reshape(&of_rank([batch, m, n], request.rank)),
        plan: MmaSyncPlan { tiling, types, left, right, acc: full_acc },
    })
}

/// The accumulator in the words of the instruction, which are read and written.
pub(super) struct Accumulator {
    words: Vec<Reg>,
    /// Words with the elements of an earlier word: registers of their own, so that the words of an
    /// instruction stay adjacent registers from one instruction to the next.
    copies: Vec<bool>,
}

impl MmaSyncPlan {
    pub(super) fn describe(&self) -> String {
        let Instruction { m, n, k, .. } = self.tiling.instruction;
        let [batch, rows, columns] = self.tiling.warps.map(|bits| 1 << bits);
        let types = self.types;
        format!(
            "mma.sync m{m}n{n}k{k}{}{}{}, {rows} x {columns} warps, batch {batch}, a {:?}, b {:?}",
            types.d, types.a, types.b, self.left.fetch, self.right.fetch
        )
    }

    /// Returns true if the fragments of a step are loaded between the MMAs of the previous one:
    /// MMAs of f64 take long, and their fragments many registers.
    pub(super) fn loads_in_order_of_use(&self) -> bool {
        self.tiling.instruction.bits == 64 && self.tiling.instruction.m == 16
    }

    /// Emits one instruction, for a batch index and the repeats along m and n.
    pub(super) fn product(
        &self,
        b: &mut Builder,
        (left, right): (&[Operand], &[Operand]),
        words: &Accumulator,
        (batch, row, column): (usize, usize, usize),
    ) {
        let Instruction { m, n, k, .. } = self.tiling.instruction;
        let shape = MmaShape { m: m as u32, n: n as u32, k: k as u32 };
        let [batches, rows, columns] = self.tiling.repeats();
        let count = words.words.len() >> (batches + rows + columns);
        let first = ((((batch << rows) | row) << columns) | column) * count;
        let words = &words.words[first..][..count];
        let sums: Vec<Operand> = words.iter().map(|&r| r.into()).collect_vec();
        b.mma(shape, self.types, words, left, right, &sums);
    }

    /// Packs pairs of f16 elements into words; other accumulators are used in place.
    pub(super) fn open(&self, b: &mut Builder, acc: &[Reg]) -> Accumulator {
        let mut words = Accumulator { words: Vec::new(), copies: Vec::new() };
        let packed = self.types.d == Ty::F16;
        let mut seen: Vec<(usize, Reg)> = Vec::new();
        for register in (0..self.acc.num_registers()).step_by(if packed { 2 } else { 1 }) {
            let slot = self.acc.canonical_register(register);
            if let Some((_, word)) = seen.iter().find(|(other, _)| *other == slot) {
                words.words.push(b.copy(*word, word.class));
                words.copies.push(true);
                continue;
            }
            let word = match packed {
                true => b.pack(acc[slot], acc[self.acc.canonical_register(register + 1)]).reg(),
                false => acc[slot],
            };
            if self.is_repeated(register) {
                seen.push((slot, word));
            }
            words.words.push(word);
            words.copies.push(false);
        }
        words
    }

    /// Returns true if another register of the fragment may have the same element.
    fn is_repeated(&self, register: usize) -> bool {
        let bases = self.acc.register_bases();
        bases.iter().enumerate().any(|(bit, &basis)| basis == 0 && register >> bit & 1 == 0)
    }

    pub(super) fn close(&self, b: &mut Builder, acc: &[Reg], words: &Accumulator) {
        if self.types.d != Ty::F16 {
            return;
        }
        for (pair, (&word, &is_copy)) in words.words.iter().zip(&words.copies).enumerate() {
            if is_copy {
                continue;
            }
            let [low, high] = [0, 1].map(|half| self.acc.canonical_register(2 * pair + half));
            let high = if high == low { b.fresh(RegClass::B16) } else { acc[high] };
            let halves = Arg::Vector(vec![acc[low].into(), high.into()]);
            b.push(Opcode::Mov(Ty::B32), vec![halves], vec![word.into()]);
        }
    }
}
