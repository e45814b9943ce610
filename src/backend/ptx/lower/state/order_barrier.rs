//! Order barriers: consumer groups enter a critical section one after another (CUTLASS
//! `OrderedSequenceBarrier`).
//!
//! Ping-pong groups have one mbarrier for each order point and group. A group waits on its own
//! mbarrier, whose phase completes when all warps of the other group have arrived.
//!
//! Other groups have named barriers. Group i waits on named barrier i and, when it leaves the
//! section, arrives on barrier (i + 1) mod n.
//! * Prologue, once per kernel: group n − 1 arrives on barrier 0, so that group 0 can enter.
//! * Epilogue, once per kernel: group 0 waits on barrier 0, which consumes the last arrival.
//!
//! Both are per kernel and not per loop: between two loops group n − 1 can have executed one
//! section more. A second arrival of it before group 0 has waited would complete the barrier
//! without group 0.
//!
//! A group is four warps of a tile that two groups share, or the warps of a data partition.

use super::core::Lowering;
use super::instrument::stamp_state::WaitKey;
use super::sync_state::NamedOrderBarriers;
use crate::backend::ptx::isa::inst::{Addr, Cmp, Operand, Reg, RegClass, Ty};
use crate::backend::ptx::lower::named_barriers::NamedBarrier;
use crate::backend::ptx::schedule::{OrderBarrierKind, OrderPoint, PINGPONG_GROUPS, WarpRole};
use crate::ir::Value;

/// Position of the exponential, of all exponentials of a thread, on which the arrival depends.
///
/// ptxas moves later exponentials, and their sums, before the barrier, too.
const ARRIVE_AFTER: (usize, usize) = (11, 16);

impl Lowering<'_> {
    /// Arrives on the barrier of group 0, once per kernel, and computes the barrier numbers.
    pub fn init_order(&mut self) {
        if !self.schedule.has_named_order_barriers() {
            return;
        }
        let last = self.is_group(self.num_order_groups() - 1);
        let threads = self.threads_of_order();
        match self.sync.limited_barriers {
            Some(_) => {
                let skipped = self.b.new_label();
                self.b.bra_if(last, true, skipped, false);
                self.arrive_at(NamedBarrier::Order(0).id().into(), threads);
                self.b.emit_label(skipped);
            }
            None => self.b.guarded(last, false, |b| b.bar_arrive(NamedBarrier::Order(0).id(), threads)),
        }
        if self.info.data_partitions > 1 || self.schedule.orders_exp() {
            let group = self.order_group();
            let own = self.b.add(Ty::U32, group, NamedBarrier::Order(0).id());
            let next = self.b.add(Ty::U32, group, NamedBarrier::Order(1).id());
            let next = self.b.select(RegClass::B32, last, NamedBarrier::Order(0).id(), next);
            let [own, next] = [own, next].map(|barrier| self.b.reg(barrier, RegClass::B32));
            self.sync.order = Some(NamedOrderBarriers { own, next });
        }
    }

    /// Waits in group 0 for the last arrival, once per kernel.
    pub fn drain_order(&mut self) {
        if self.sync.role == WarpRole::Consumer && self.schedule.has_named_order_barriers() {
            let first = self.is_group(0);
            let threads = self.threads_of_order();
            if self.sync.limited_barriers.is_none() {
                return self.b.guarded(first, false, |b| b.bar_sync(NamedBarrier::Order(0).id(), Some(threads)));
            }
            let skipped = self.b.new_label();
            self.b.bra_if(first, true, skipped, false);
            let step = "the order wait of the first consumer group at the end";
            self.sync_at(NamedBarrier::Order(0).id().into(), Some(threads), None, step);
            self.b.emit_label(skipped);
        }
    }

    /// Waits until this group may enter the section.
    pub fn order_wait(&mut self, point: OrderPoint) {
        let start = self.begin_overlapped_wait();
        self.order_wait_unstamped(point);
        let op = match point {
            OrderPoint::Mma(id) => Some(id),
            _ => None,
        };
        self.end_overlapped_wait(start, Some(WaitKey::Order), op);
    }

    fn order_wait_unstamped(&mut self, point: OrderPoint) {
        let (op, step) = match point {
            OrderPoint::Mma(id) => (Some(id), "the order wait of a consumer group at its MMAs"),
            OrderPoint::Exp(value) => {
                (self.module.defining_op(value), "the order wait of a consumer group at its exponentials")
            }
            OrderPoint::Pipeline => (None, "the order wait of a ping-pong group at its stages"),
            OrderPoint::SideEffects => (None, "the order wait of a ping-pong group at its stores"),
        };
        if point.barrier() == OrderBarrierKind::Mbarrier {
            let Some(&parity) = self.sync.group.parities.get(point.barrier_set()) else { return };
            let barrier = self.order_mbarrier(point, self.sync.group.index);
            self.wait_for_phase(&barrier, parity, op, step);
            let next = self.b.xor(Ty::B32, parity, 1u32);
            return self.b.mov_to(parity, next);
        }
        let own = match self.sync.order {
            Some(order) => order.own.into(),
            None => {
                let group = self.order_group();
                self.b.add(Ty::U32, group, NamedBarrier::Order(0).id())
            }
        };
        let threads = self.threads_of_order();
        self.sync_at(own, Some(threads), op, step);
    }

    /// Arrives on the barrier of the next group, which may then enter the section.
    pub fn order_arrive(&mut self, point: OrderPoint) {
        if point.barrier() == OrderBarrierKind::Mbarrier {
            return self.mbarrier_order_arrive(point);
        }
        let next = self.next_order_barrier();
        let next = if let OrderPoint::Exp(value) = point { self.after_exponentials(value, next) } else { next };
        let threads = self.threads_of_order();
        self.arrive_at(next, threads);
    }

    fn mbarrier_order_arrive(&mut self, point: OrderPoint) {
        let Some(leader) = self.sync.warp_leader() else { return };
        if point == OrderPoint::SideEffects && self.schedule.tma_stores().next().is_some() {
            self.b.bulk_wait_group(0, false);
        }
        self.b.bar_warp_sync();
        let barrier = self.order_mbarrier(point, PINGPONG_GROUPS - 1 - self.sync.group.index);
        self.b.guarded(leader, false, |b| b.mbarrier_arrive(&barrier, false));
    }

    fn order_mbarrier(&mut self, point: OrderPoint, group: u32) -> Addr {
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        let index = PINGPONG_GROUPS * point.barrier_set() as u32 + group;
        Addr::new(base, i64::from(self.sync.group.order_mbarriers + 8 * index))
    }

    /// Returns a barrier number that depends on these exponentials.
    ///
    /// ptxas cannot prove that the sign of an exponential is 0 (also of a NaN, which is
    /// 0x7fffffff), so it computes one of them before the arrive.
    fn after_exponentials(&mut self, exponentials: Value, barrier: Operand) -> Operand {
        let regs = self.values.tiles[exponentials.index()].as_ref().map(|tile| tile.regs.clone());
        let register = regs.as_ref().and_then(|regs| regs.get(regs.len() * ARRIVE_AFTER.0 / ARRIVE_AFTER.1));
        match register {
            Some(&Operand::Reg(register)) => {
                let sign = self.b.shr(Ty::U32, register.as_class(RegClass::B32), 31);
                self.b.add(Ty::U32, sign, barrier)
            }
            _ => barrier,
        }
    }

    /// Returns the barrier of the next group.
    fn next_order_barrier(&mut self) -> Operand {
        match self.sync.order {
            Some(order) => order.next.into(),
            None => {
                let group = self.order_group();
                self.b.sub(Ty::U32, NamedBarrier::Order(1).id(), group)
            }
        }
    }

    fn is_group(&mut self, which: u32) -> Reg {
        let group = self.order_group();
        self.b.setp(Cmp::Eq, Ty::U32, group, which)
    }

    /// Returns the group of this thread. Only consumers have one.
    fn order_group(&self) -> Operand {
        let partition = self.sync.pipelines.as_ref().and_then(|pipelines| pipelines.data_partition);
        partition.or(self.sync.warp_group()).expect("the group of a consumer").into()
    }
}
