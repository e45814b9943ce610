//! Thread indices: the first element of a thread as index arithmetic on the thread number, and
//! warp-uniform values of consumers, broadcast once by shuffle.

use super::core::Lowering;
use super::sync_state::WarpUniform;
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::inst::{Cmp, Operand, RegClass, ShflMode, Special, Ty};
use crate::backend::ptx::layout_inference::{AxisBits, thread_bases};
use crate::backend::ptx::mma::MmaPlan;
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

impl Lowering<'_> {
    /// Computes the warp-uniform values.
    pub fn init_warp_uniform(&mut self) -> WarpUniform {
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        let base = self.b.shfl(ShflMode::Idx, base, 0u32).reg();
        let thread = self.b.special(Special::TidX);
        let group = MmaPlan::group(&mut self.b, thread).reg();
        let has_warp_stores = self.schedule.tma_stores().any(|store| store.staging.is_some());
        let first = has_warp_stores.then(|| self.b.shfl(ShflMode::Idx, thread, 0u32).reg());
        WarpUniform { smem_base: base, warp_group: group, first_thread: first }
    }

    /// Returns the XOR of `bases[i]` over the set bits `i` of the warp number. ptxas knows that it
    /// is equal in all lanes.
    pub fn linear_in_warp(&mut self, bases: &[u32]) -> Operand {
        let lanes = WARP_SIZE.trailing_zeros() as usize;
        let bases: Vec<u32> = std::iter::repeat_n(0, lanes).chain(bases.iter().copied()).collect_vec();
        match self
            .sync
            .warp_uniform()
            .and_then(|uniform| uniform.first_thread)
            .filter(|_| bases.iter().any(|&basis| basis != 0))
        {
            Some(first) => self.linear_of(first.into(), &bases),
            None => self.linear_in_thread(&bases),
        }
    }
}

impl Lowering<'_> {
    /// Returns the XOR of `bases[i]` over the set bits `i` of the thread number, as a B32 operand.
    ///
    /// Adjacent bits with adjacent bases are moved together by a shift and a mask.
    pub fn linear_in_thread(&mut self, bases: &[u32]) -> Operand {
        if bases.iter().all(|&basis| basis == 0) {
            return Operand::Imm(0);
        }
        if let Some(&value) = self.values.thread_indices.linear.get(bases) {
            return value;
        }
        let tid = self.b.special(Special::TidX);
        let value = self.linear_of(tid, bases);
        self.values.thread_indices.linear.insert(bases.to_vec(), value);
        self.values.thread_indices.order.push(bases.to_vec());
        value
    }

    /// Returns the same function of another number.
    pub fn linear_of(&mut self, number: Operand, bases: &[u32]) -> Operand {
        let mut total: Option<Operand> = None;
        let mut bit = 0;
        while bit < bases.len() {
            let basis = bases[bit];
            if basis == 0 {
                bit += 1;
                continue;
            }
            let mut length = 1;
            if basis.is_power_of_two() {
                while bases.get(bit + length) == Some(&(basis << length)) {
                    length += 1;
                }
            }
            let part = self.field(number, bit, length, bases.len());
            let part = if basis.is_power_of_two() {
                self.b.shl(Ty::B32, part, basis.trailing_zeros())
            } else {
                self.b.mul(Ty::U32, part, basis)
            };
            total = Some(match total {
                Some(sum) => self.b.xor(Ty::B32, sum, part),
                None => part,
            });
            bit += length;
        }
        total.unwrap_or(Operand::Imm(0))
    }

    /// Returns the sum of `weights[i]` over the set bits `i` of the thread number, as a B32
    /// operand. No weight is 0.
    ///
    /// Adjacent bits whose weights double are multiplied together.
    pub fn sum_in_thread(&mut self, weights: &[u32]) -> Operand {
        // The key is longer than any list of bases.
        let key = [weights, &[u32::MAX]].concat();
        if let Some(&value) = self.values.thread_indices.linear.get(&key) {
            return value;
        }
        let tid = self.b.special(Special::TidX);
        let mut total: Option<Operand> = None;
        let mut bit = 0;
        while bit < weights.len() {
            let run = (1..).take_while(|&i| weights.get(bit + i) == Some(&(weights[bit] << i)));
            let length = 1 + run.count();
            let field = self.field(tid, bit, length, weights.len());
            let part = self.b.mul(Ty::U32, field, weights[bit]);
            total = Some(match total {
                Some(sum) => self.b.add(Ty::U32, sum, part),
                None => part,
            });
            bit += length;
        }
        let value = total.unwrap_or(Operand::Imm(0));
        self.values.thread_indices.linear.insert(key.clone(), value);
        self.values.thread_indices.order.push(key);
        value
    }

    /// Returns bits `bit..bit + length` of the thread number, which has `width` bits.
    fn field(&mut self, tid: Operand, bit: usize, length: usize, width: usize) -> Operand {
        let shifted = if bit > 0 { self.b.shr(Ty::U32, tid, bit as u32) } else { tid };
        if bit + length >= width { shifted } else { self.b.and(Ty::B32, shifted, (1u32 << length) - 1) }
    }

    /// Returns the coordinate of the thread along `axis`, in register 0.
    pub fn thread_coordinate(&mut self, layout: &Layout, axis: usize) -> Operand {
        let axis = AxisBits::of(layout.shape(), axis);
        let bases: Vec<u32> = thread_bases(layout).iter().map(|&basis| axis.coordinate(basis)).collect_vec();
        self.linear_in_thread(&bases)
    }

    /// Returns the lane number.
    pub fn lane(&mut self) -> Operand {
        let tid = self.b.special(Special::TidX);
        self.b.and(Ty::B32, tid, 31u32)
    }

    /// Calls `body` for `count` parts of shared memory, distributed over the threads, with the byte
    /// offset of each part.
    pub fn each_part_by_threads(&mut self, count: u32, bytes: u32, body: &mut dyn FnMut(&mut Self, Operand)) {
        let threads = self.info.inference.num_warps as u32 * WARP_SIZE;
        let tid = self.b.special(Special::TidX);
        let first = self.b.mul(Ty::U32, tid, bytes);
        for start in (0..count).step_by(threads as usize) {
            let rest = (count - start < threads).then(|| self.b.new_label());
            if let Some(rest) = rest {
                let has_part = self.b.setp(Cmp::Lt, Ty::U32, tid, count - start);
                self.b.bra_if(has_part, true, rest, false);
            }
            let offset = self.b.add(Ty::U32, first, start * bytes);
            body(self, offset);
            if let Some(rest) = rest {
                self.b.emit_label(rest);
            }
        }
    }
}
