//! Named barriers (`barrier.cta.sync`): the ids that the lowering uses (CUTLASS
//! `ReservedNamedBarriers`), and their emission.
//!
//! `barrier.cta.sync` has no time limit, and waits for ended warps forever. With a wait limit
//! (`Hints::wait_limit`), each named barrier is an mbarrier in shared memory: a thread arrives, and
//! tests the phase of its own arrival. The mbarrier counts the same threads, so the waits are those
//! of the named barrier. One hardware barrier after the initialization remains; no warp has ended
//! before it.

use super::Lowering;
use super::state::instrument::wait_limit::LimitedWait;
use crate::backend::ptx::device_assert::WaitObject;
use crate::backend::ptx::hardware::{MBARRIER_BYTES, WARP_GROUP_WARPS, WARP_SIZE};
use crate::backend::ptx::isa::inst::{Addr, Cmp, Operand, RegClass, Special, Ty};
use crate::backend::ptx::schedule::{ORDERED_GROUPS, PINGPONG_GROUPS};
use crate::ir::{Loc, OpId};

/// A named barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBarrier {
    /// All threads of the CTA.
    Cta,
    /// The warps of one ping-pong group, or all consumer warps of a kernel without such groups.
    ConsumerGroup(u32),
    /// The order barrier of the consumer group with this number.
    Order(u32),
}

impl NamedBarrier {
    /// Returns the operand of the instruction. PTX has 16 named barriers.
    pub const fn id(self) -> u32 {
        match self {
            NamedBarrier::Cta => 0,
            NamedBarrier::ConsumerGroup(group) => 1 + group,
            NamedBarrier::Order(group) => 1 + PINGPONG_GROUPS + group,
        }
    }
}

impl Lowering<'_> {
    /// Initializes the mbarriers. Without warp specialization, a barrier follows; otherwise the
    /// initialization of the pipelines has one.
    pub fn init_limited_barriers(&mut self) {
        let Some(offset) = self.sync.limited_barriers else { return };
        let group = self.info.inference.num_warps as u32 * WARP_SIZE;
        let mut counts = vec![(NamedBarrier::Cta, self.b.function().threads)];
        counts.extend((0..PINGPONG_GROUPS).map(|index| (NamedBarrier::ConsumerGroup(index), group)));
        let ordered = self.threads_of_order();
        counts.extend((0..self.num_order_groups()).map(|index| (NamedBarrier::Order(index), ordered)));
        let thread = self.b.special(Special::TidX);
        let is_other = self.b.setp(Cmp::Ne, Ty::U32, thread, 0);
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        self.b.skip_if(is_other, false, |b| {
            for (barrier, threads) in counts {
                b.mbarrier_init(&Addr::new(base, i64::from(offset + MBARRIER_BYTES * barrier.id())), threads);
            }
        });
        if self.schedule.warp_spec.is_none() {
            self.b.bar_sync(NamedBarrier::Cta.id(), None);
        }
    }

    /// Waits at a named barrier of `threads` threads, or of all threads of the CTA. `op` and `step`
    /// are those of a report; without an op, the source location is that of the current
    /// instruction.
    pub fn sync_at(&mut self, barrier: Operand, threads: Option<u32>, op: Option<OpId>, step: &str) {
        let Some(bar) = self.limited_barrier(barrier) else { return self.b.bar_sync(barrier, threads) };
        let loc = op.map_or(Loc(self.b.loc()), |op| self.module.op(op).loc);
        let location = self.module.location(loc).cloned();
        let state = self.b.mbarrier_arrive_for_state(&bar);
        let values = [barrier, Operand::Imm(0)];
        let wait = LimitedWait { step, object: WaitObject::NamedBarrier, location, values };
        self.wait_within(wait, |b, seen| b.mbarrier_test_state(seen, &bar, state));
    }

    /// Arrives on a named barrier of `threads` threads without a wait.
    pub fn arrive_at(&mut self, barrier: Operand, threads: u32) {
        match self.limited_barrier(barrier) {
            Some(bar) => self.b.mbarrier_arrive(&bar, false),
            None => self.b.bar_arrive(barrier, threads),
        }
    }

    /// Returns the mbarrier of a named barrier, in a kernel with a wait limit.
    fn limited_barrier(&mut self, barrier: Operand) -> Option<Addr> {
        let offset = self.sync.limited_barriers?;
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        if let Some(number) = barrier.as_imm() {
            return Some(Addr::new(base, i64::from(offset) + i64::from(MBARRIER_BYTES) * number));
        }
        let at = self.b.mad(Ty::U32, barrier, MBARRIER_BYTES, base);
        Some(Addr::new(self.b.reg(at, RegClass::B32), i64::from(offset)))
    }

    /// Returns the number of groups that order barriers order.
    pub fn num_order_groups(&self) -> u32 {
        if self.info.data_partitions > 1 { self.info.data_partitions } else { ORDERED_GROUPS }
    }

    /// Returns the threads of a barrier: those of two groups.
    pub fn threads_of_order(&self) -> u32 {
        let each = if self.info.data_partitions > 1 { self.info.inference.num_warps as u32 } else { WARP_GROUP_WARPS };
        2 * each * WARP_SIZE
    }
}
