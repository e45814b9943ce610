//! Products by `wgmma` (sm_90a): a warpgroup multiplies 64 rows at a time, straight from shared memory.
//!
//! Warpgroups share the rows of the accumulator, then its columns. Operands stand in shared memory in rows
//! of 32, 64 or 128 bytes with the swizzle of that span, which the instruction's matrix descriptors know;
//! the left one may come in registers. An operand of 16 bits may be contiguous along k or along m, n; others
//! along k only. The instructions run on their own: [`WgmmaPlan::lower`] closes their group and the caller
//! waits for it before it reads the accumulator or reuses shared memory. Descriptor fields and layouts:
//! PTX ISA, "asynchronous warpgroup level matrix instructions".

use super::super::builder::Builder;
use super::super::inst::*;
use super::{Kind, MmaPlan, MmaRequest, OperandPlan, OperandSpec, Panels, Source};
use crate::dtype::DType;
use crate::layout::{Layout, SharedLayout};

/// Rows of one instruction.
const ROWS: i64 = 64;
/// Bytes of k of one instruction.
const STEP_BYTES: i64 = 32;
/// Most columns of one instruction.
const MOST_COLUMNS: i64 = 256;
/// Accumulator registers of a thread up to which the instructions need not be serialised.
const MOST_ACCUMULATORS: i64 = 160;

/// How an operand stands in shared memory.
#[derive(Clone, Copy, Debug)]
struct Staged {
    /// Contiguous along k (else along m or n)?
    along_k: bool,
    /// Bytes of a swizzled row.
    span: i64,
    /// Rows of a panel: m or n along k, else k.
    rows: i64,
    size: i64,
}

impl Staged {
    fn of(spec: &OperandSpec, other: i64, k: i64) -> Option<Staged> {
        let size = i64::from(spec.dtype.storage_bits() / 8);
        let along_k = spec.k_contiguous || size != 2;
        let (row, rows) = if along_k { (k, other) } else { (other, k) };
        let span = (row * size).min(128);
        (span >= 32 && rows >= 8).then_some(Staged { along_k, span, rows, size })
    }

    /// The constant part of the descriptor: offsets in units of 16 bytes and the swizzle.
    fn constants(&self) -> (u32, u32) {
        let leading = if self.along_k { 1 } else { (self.rows * self.span) as u32 >> 4 };
        let swizzle = match self.span {
            128 => 1,
            64 => 2,
            _ => 3,
        };
        (leading << 16, ((8 * self.span as u32) >> 4) | (swizzle << 30))
    }

    /// Bytes from the start of the operand to step `step` of k.
    fn step(&self, step: i64) -> i64 {
        if self.along_k {
            let in_row = self.span / STEP_BYTES;
            step / in_row * self.rows * self.span + step % in_row * STEP_BYTES
        } else {
            step * (STEP_BYTES / self.size) * self.span
        }
    }

    /// Bytes from the start of the operand to row or column `index` (a multiple of what a panel holds, where
    /// it is contiguous).
    fn other(&self, index: i64) -> i64 {
        if self.along_k { index * self.span } else { index * self.size / self.span * self.rows * self.span }
    }

    fn panels(&self, other: i64, k: i64) -> Panels {
        let row = if self.along_k { k } else { other };
        Panels { along_k: self.along_k, span: self.span, rows: self.rows, count: row * self.size / self.span }
    }

    /// Can rows or columns be taken `count` at a time?
    fn divides(&self, count: i64) -> bool {
        self.along_k || count * self.size % self.span == 0
    }
}

/// A product by `wgmma`.
#[derive(Clone, Debug)]
pub(super) struct WgmmaPlan {
    types: MmaTypes,
    left: Staged,
    right: Staged,
    /// Warpgroups along m and n.
    groups: [i64; 2],
    /// Instructions of a warpgroup along m, n and k.
    counts: [i64; 3],
    /// Columns of one instruction.
    columns: i64,
}

fn types(request: &MmaRequest) -> Option<MmaTypes> {
    let operand = |spec: &OperandSpec| match spec.dtype {
        DType::F16 => Some(Ty::F16),
        DType::BF16 => Some(Ty::BF16),
        DType::TF32 => Some(Ty::TF32),
        DType::F8E4M3FN => Some(Ty::E4M3),
        DType::F8E5M2 => Some(Ty::E5M2),
        DType::I8 => Some(if spec.signed { Ty::S8 } else { Ty::U8 }),
        _ => None,
    };
    let (a, b) = (operand(&request.a)?, operand(&request.b)?);
    let d = match request.acc {
        DType::F32 => Ty::F32,
        DType::I32 => Ty::S32,
        _ => return None,
    };
    let small = |ty: Ty| matches!(ty, Ty::E4M3 | Ty::E5M2);
    let integer = |ty: Ty| matches!(ty, Ty::S8 | Ty::U8);
    let fits = match d {
        Ty::S32 => integer(a) && integer(b),
        _ => !integer(a) && (a == b || small(a) && small(b)),
    };
    // The sums of 8-bit floats keep about 14 bits here.
    (fits && (request.fast || !small(a))).then_some(MmaTypes { d, a, b, c: d })
}

/// The plan of a product that `wgmma` can do; `None` for any other.
pub(super) fn plan(request: &MmaRequest) -> Option<MmaPlan> {
    let [batch, m, n, k] = request.extents;
    let warps = request.num_warps as i64;
    let target = request.target;
    if target.arch != 90 || !target.accelerated || batch != 1 || warps % 4 != 0 || m < ROWS || n < 8 {
        return None;
    }
    let types = types(request)?;
    let left = Staged::of(&request.a, m, k)?;
    let right = Staged::of(&request.b, n, k)?;
    let all = warps / 4;
    let along_m = all.min(m / ROWS);
    let groups = [along_m, all / along_m];
    let columns = (n / groups[1]).min(MOST_COLUMNS);
    let step = STEP_BYTES / left.size;
    let counts = [m / ROWS / groups[0], n / groups[1] / columns, k / step];
    let accumulators = counts[0] * counts[1] * columns / 2;
    let fits = columns >= 8 && k % step == 0 && k >= step && accumulators <= MOST_ACCUMULATORS;
    if !fits || !left.divides(ROWS) || !right.divides(columns) {
        return None;
    }
    let plan = WgmmaPlan { types, left, right, groups, counts, columns };
    let rank = request.rank;
    Some(MmaPlan {
        a: OperandPlan {
            dtype: request.a.dtype,
            shared: shared(&left, [m, k], true, rank),
            registers: Some(plan.left_registers(m, k).reshape(&super::of_rank([1, m, k], rank))),
            panels: Some(left.panels(m, k)),
        },
        b: OperandPlan {
            dtype: request.b.dtype,
            shared: shared(&right, [k, n], false, rank),
            registers: None,
            panels: Some(right.panels(n, k)),
        },
        acc: plan.accumulator(m, n).reshape(&super::of_rank([1, m, n], rank)),
        kind: Kind::Wgmma(Box::new(plan)),
    })
}

/// The swizzled place of an operand of this shape; `k_last`: k is its last dimension.
fn shared(staged: &Staged, shape: [i64; 2], k_last: bool, rank: usize) -> SharedLayout {
    let last = rank - 1;
    let contiguous = if staged.along_k == k_last { last } else { last - 1 };
    let other = 2 * last - 1 - contiguous;
    let mut order = vec![contiguous, other];
    order.extend(0..last - 1);
    let stride = if other == last { 1 } else { shape[1] as u32 };
    let lanes = [stride, 2 * stride, 4 * stride];
    let shape = super::of_rank([1, shape[0], shape[1]], rank);
    SharedLayout::swizzled(&shape, &order, staged.size as usize, 16, &lanes)
}

impl WgmmaPlan {
    /// Images of the warp bits in a tile whose rows have `row` elements: warps of a warpgroup, warpgroups
    /// along m, then along n (`column` elements apart; 0: replicas).
    fn warps(&self, row: i64, column: i64) -> Vec<u32> {
        let mut images = vec![16 * row as u32, 32 * row as u32];
        images.extend((0..self.groups[0].ilog2()).map(|bit| ((ROWS * row) as u32) << bit));
        images.extend((0..self.groups[1].ilog2()).map(|bit| (column as u32) << bit));
        images
    }

    fn accumulator(&self, m: i64, n: i64) -> Layout {
        let row = n as u32;
        let mut register = vec![1, 8 * row];
        register.extend((3..(self.columns * self.counts[1]).ilog2()).map(|bit| 1u32 << bit));
        register.extend((0..self.counts[0].ilog2()).map(|bit| ((ROWS * self.groups[0]) as u32 * row) << bit));
        let lane = vec![2, 4, row, 2 * row, 4 * row];
        Layout::new(vec![m, n], register, lane, self.warps(n, self.columns * self.counts[1]))
    }

    fn left_registers(&self, m: i64, k: i64) -> Layout {
        let row = k as u32;
        let word = 4 / self.left.size as u32;
        let mut register: Vec<u32> = (0..word.ilog2()).map(|bit| 1 << bit).collect();
        register.extend([8 * row, 4 * word]);
        register.extend((0..self.counts[2].ilog2()).map(|bit| (8 * word) << bit));
        register.extend((0..self.counts[0].ilog2()).map(|bit| ((ROWS * self.groups[0]) as u32 * row) << bit));
        let lane = vec![word, 2 * word, row, 2 * row, 4 * row];
        Layout::new(vec![m, k], register, lane, self.warps(k, 0))
    }

    /// Issues the product; see [`MmaPlan::lower`]. The group is closed, not waited for. Without `accumulate`
    /// the accumulator counts as zero and need not be written before.
    pub fn lower(
        &self,
        b: &mut Builder,
        thread: Reg,
        left: Source<'_>,
        right: Source<'_>,
        acc: &[Reg],
        accumulate: bool,
    ) {
        let group = b.shr(Ty::U32, thread, 7u32);
        // The same in all lanes of a warp: descriptors may live in uniform registers.
        let group = b.shfl(ShflMode::Idx, group, 0u32);
        let along_m = b.and(Ty::B32, group, (self.groups[0] - 1) as u32);
        let along_n = b.shr(Ty::U32, group, self.groups[0].ilog2());
        let columns = self.columns * self.counts[1];
        let left = match left {
            Source::Shared(base) => Left::Descriptor(self.base(b, &self.left, base, along_m, ROWS)),
            Source::Registers(slots) => Left::Words(self.words(b, slots)),
        };
        let right = match right {
            Source::Shared(base) => self.base(b, &self.right, base, along_n, columns),
            Source::Registers(_) => unreachable!("the right operand of wgmma is in shared memory"),
        };
        b.wgmma_fence();
        let [blocks_m, blocks_n, steps] = self.counts;
        let each = (self.columns / 2) as usize;
        for step in 0..steps {
            for i in 0..blocks_m {
                let a = match &left {
                    Left::Descriptor(base) => {
                        let rows = self.left.other(i * ROWS * self.groups[0]);
                        vec![self.descriptor(b, &self.left, *base, self.left.step(step) + rows)]
                    }
                    Left::Words(words) => words[((i * steps + step) * 4) as usize..][..4].to_vec(),
                };
                for j in 0..blocks_n {
                    let offset = self.right.step(step) + self.right.other(j * self.columns);
                    let right = self.descriptor(b, &self.right, right, offset);
                    let d = &acc[(i * blocks_n + j) as usize * each..][..each];
                    let trans = (!self.left.along_k, !self.right.along_k);
                    let accumulate = Operand::from(accumulate || step > 0);
                    b.wgmma(self.columns as u32, self.types, d, &a, right, accumulate, trans);
                }
            }
        }
        b.wgmma_commit();
    }

    /// The low word of the descriptor of a warpgroup's part of an operand.
    fn base(&self, b: &mut Builder, staged: &Staged, base: Operand, group: Operand, count: i64) -> Operand {
        let part = b.mul(Ty::U32, group, staged.other(count));
        let start = b.add(Ty::U32, base, part);
        let field = b.and(Ty::B32, start, 0x3ffffu32);
        let field = b.shr(Ty::U32, field, 4u32);
        b.or(Ty::B32, field, staged.constants().0)
    }

    fn descriptor(&self, b: &mut Builder, staged: &Staged, low: Operand, bytes: i64) -> Reg {
        let low = b.add(Ty::U32, low, (bytes >> 4) as u32);
        let low = b.reg(low, RegClass::B32);
        let high = b.reg(staged.constants().1, RegClass::B32);
        b.pack(low, high).reg()
    }

    /// Slots of the left operand packed into words of 32 bits, four for each instruction.
    fn words(&self, b: &mut Builder, slots: &[Operand]) -> Vec<Reg> {
        let dtype = match self.types.a {
            Ty::F16 => DType::F16,
            Ty::BF16 => DType::BF16,
            Ty::TF32 => DType::TF32,
            _ => DType::I8,
        };
        let each = 4 / self.left.size as usize;
        let words =
            slots.chunks(each).map(|word| super::super::scalar::repr::pack_word(b, dtype, word)).collect::<Vec<_>>();
        words.into_iter().map(|word| b.reg(word, RegClass::B32)).collect()
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let [m, n, k] = self.counts;
        format!("wgmma m64n{}, {m} x {n} x {k} a warpgroup, {:?} warpgroups", self.columns, self.groups)
    }
}

/// The left operand: a descriptor's low word, or words of registers.
enum Left {
    Descriptor(Operand),
    Words(Vec<Reg>),
}
