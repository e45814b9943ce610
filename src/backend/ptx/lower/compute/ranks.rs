//! `ranks`: how many earlier elements of a tile are equal.
//!
//! Each warp has a range of elements, 32 adjacent ones in a register. Ballots of each bit, or
//! `match.any`, find the equal elements of a register. Counts of each warp are in shared memory. A
//! sum over the warps returns the counts of all earlier ranges.
//!
//! Reference: D. Merrill and M. Garland, "Onesweep: A Faster Least Significant Digit Radix Sort for
//! GPUs" (the ranks of a tile), and CUB's `block_radix_rank`.

use crate::backend::ptx::isa::inst::{Cmp, IntOp, MemMods, Operand, Reg, RegClass, Space, Special, Ty, VoteMode};
use crate::backend::ptx::lower::state::core::SCHEDULE_MISMATCH;
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::OpId;
use crate::layout::Layout;

/// Most bits of a number for which ballots of the bits find equal elements. `match.any` takes a
/// time that is proportional to the number of different values among the lanes.
const BALLOT_BITS: u32 = 8;

/// Rows of counts, one for each warp.
struct Rows {
    buffer: Buffer,
    /// Number of bins of a row.
    bins: usize,
    /// Byte offset of the row of the executing warp.
    own: Operand,
}

impl Lowering<'_> {
    /// Lowers `ranks`.
    pub fn ranks(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let Tile { layout, regs: numbers } = self.operand()?;
        let [rounds, warps] = self.smem.split().ok_or(SCHEDULE_MISMATCH)?.map(|number| number as usize);
        let bins = op.bins().next_power_of_two() / rounds;
        let tid = self.b.special(Special::TidX);
        let warp = self.b.shr(Ty::U32, tid, 5u32);
        let own = self.b.mul(Ty::U32, warp, (4 * bins) as u32);
        let mut ranks = vec![Operand::Imm(0); numbers.len()];
        for round in 0..rounds {
            let first = round * bins;
            let last = op.bins().min(first + bins);
            let buffer = self.next_write_buffer()?;
            if last <= first {
                // The schedule has the buffer's accesses of each round.
                (0..2).try_for_each(|_| self.begin_rewrite(buffer))?;
                self.begin_read(buffer)?;
                continue;
            }
            self.clear(buffer);
            self.begin_rewrite(buffer)?;
            let rows = Rows { buffer, bins, own };
            let counted = self.count_in_warps(&rows, &layout, &numbers, [first, last]);
            self.begin_rewrite(buffer)?;
            self.sum_over_warps(&rows, &layout, warps);
            self.begin_read(buffer)?;
            for (rank, (number, is_inside, in_warp)) in ranks.iter_mut().zip(counted) {
                let before = self.count_of(&rows, number, is_inside);
                let all = self.b.add(Ty::U32, before, in_warp);
                *rank = self.b.select(RegClass::B32, is_inside, all, *rank);
            }
        }
        self.values.define(op.results[0], Tile { layout, regs: ranks.into() });
        Ok(())
    }

    /// Counts the elements of each warp in its row. Returns the bin of each element, whether it is
    /// one of this round, and the rank within the warp.
    fn count_in_warps(
        &mut self,
        rows: &Rows,
        layout: &Layout,
        numbers: &[Operand],
        [first, last]: [usize; 2],
    ) -> Vec<(Operand, Reg, Operand)> {
        // Lanes with replicas count nothing.
        let lanes = 1u64 << layout.lane_bases().iter().filter(|&&basis| basis != 0).count();
        let holders = ((1u64 << lanes) - 1) as u32;
        let lane = self.lane();
        let own = self.b.and(Ty::B32, lane, lanes as u32 - 1);
        let below = self.b.shl(Ty::B32, 1, own);
        let below = self.b.add(Ty::U32, below, -1i64);
        let holds = (lanes < 32).then(|| self.b.setp(Cmp::Lt, Ty::U32, lane, lanes as u32));
        let mut counted = Vec::with_capacity(numbers.len());
        for &number in numbers {
            let number = self.b.sub(Ty::S32, number, first as i64);
            let is_inside = self.b.setp(Cmp::Lt, Ty::U32, number, (last - first) as u32);
            let equal = self.equal_lanes(number, is_inside, last - first);
            let equal = self.b.and(Ty::B32, equal, holders);
            let earlier = self.b.and(Ty::B32, equal, below);
            let [earlier, all] = [earlier, equal].map(|mask| self.b.int1(IntOp::Popc, Ty::B32, mask));
            let before = self.count_of(rows, number, is_inside);
            self.b.bar_warp_sync();
            let is_first = self.b.setp(Cmp::Eq, Ty::U32, earlier, 0);
            let mut counts = self.b.and(Ty::Pred, is_first, is_inside).reg();
            if let Some(holds) = holds {
                counts = self.b.and(Ty::Pred, counts, holds).reg();
            }
            let count = self.b.add(Ty::U32, before, all);
            let offset = self.b.mad(Ty::S32, number, 4, rows.own);
            let addr = self.shared_address(rows.buffer, offset, 0, 0);
            vector_access::store(
                &mut self.b,
                Space::Shared,
                DType::I32,
                &[count],
                &addr,
                MemMods::default(),
                Some(counts),
            );
            self.b.bar_warp_sync();
            counted.push((number, is_inside, self.b.add(Ty::U32, before, earlier)));
        }
        counted
    }

    /// Returns the lanes with an equal number below `bins`, of a number that is inside.
    fn equal_lanes(&mut self, number: Operand, is_inside: Reg, bins: usize) -> Operand {
        let bits = bins.next_power_of_two().ilog2();
        if bits > BALLOT_BITS {
            return self.b.match_any(number);
        }
        let mut equal = self.b.vote(VoteMode::Ballot, is_inside);
        for bit in 0..bits {
            let own = self.b.and(Ty::B32, number, 1i64 << bit);
            let is_set = self.b.setp(Cmp::Ne, Ty::U32, own, 0);
            let set = self.b.vote(VoteMode::Ballot, is_set);
            let inverted = self.b.select(RegClass::B32, is_set, 0, -1i64);
            let same = self.b.xor(Ty::B32, set, inverted);
            equal = self.b.and(Ty::B32, equal, same);
        }
        equal
    }

    /// Returns the count of a bin in the row of the executing warp.
    fn count_of(&mut self, rows: &Rows, number: Operand, is_inside: Reg) -> Operand {
        let offset = self.b.mad(Ty::S32, number, 4, rows.own);
        let addr = self.shared_address(rows.buffer, offset, 0, 0);
        self.loaded(Space::Shared, DType::I32, &addr, Some(is_inside), &[Operand::Imm(0)])[0]
    }

    /// Replaces the count of each warp by the sum of those of all earlier warps. Warps with
    /// replicas have sums of their own.
    fn sum_over_warps(&mut self, rows: &Rows, layout: &Layout, warps: usize) {
        let threads = 32 * layout.num_warps();
        let group = 1 << layout.warp_bases().iter().filter(|&&basis| basis != 0).count();
        let tid = self.b.special(Special::TidX);
        for first in (0..rows.bins).step_by(threads) {
            let left = rows.bins - first;
            let guard = (left < threads).then(|| self.b.setp(Cmp::Lt, Ty::U32, tid, left as u32));
            let offset = self.b.mul(Ty::U32, tid, 4u32);
            let mut sum = Operand::Imm(0);
            for warp in 0..warps {
                if warp % group == 0 {
                    sum = Operand::Imm(0);
                }
                let addr = self.shared_address(rows.buffer, offset, 0, (4 * (warp * rows.bins + first)) as u32);
                let count = self.loaded(Space::Shared, DType::I32, &addr, guard, &[Operand::Imm(0)])[0];
                let values = [sum];
                vector_access::store(&mut self.b, Space::Shared, DType::I32, &values, &addr, MemMods::default(), guard);
                sum = self.b.add(Ty::U32, sum, count);
            }
        }
    }
}
