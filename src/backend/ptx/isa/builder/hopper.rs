//! Instructions of sm_90: mbarriers, TMA, clusters, `wgmma`, register reallocation.

use super::super::inst::*;
use super::Builder;
use crate::util::collect::CollectVec as _;

/// Destination and cache policy of a bulk load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadRoute {
    /// The destination is a cluster address.
    pub cluster: bool,
    /// Mask (B16) of the CTAs of the cluster that receive the data.
    pub multicast: Option<Reg>,
    /// Cache policy (B64).
    pub policy: Option<Reg>,
}

impl Builder {
    /// Initializes an mbarrier for `count` arrivals per phase.
    pub fn mbarrier_init(&mut self, bar: &Addr, count: impl Into<Operand>) {
        let count = self.source(count, Ty::U32);
        self.push(Opcode::MbarrierInit, vec![], vec![Arg::Mem(bar.clone()), count.into()]);
    }

    /// Makes initialized mbarriers visible to the cluster and to bulk copies.
    pub fn fence_mbarrier_init(&mut self) {
        self.push(Opcode::FenceMbarrierInit, vec![], vec![]);
    }

    /// Arrives; `remote` if the address is a cluster address.
    pub fn mbarrier_arrive(&mut self, bar: &Addr, remote: bool) {
        #[cfg(test)]
        if dropped::is_next() {
            return;
        }
        self.push(Opcode::MbarrierArrive { remote }, vec![Arg::Sink], vec![Arg::Mem(bar.clone())]);
    }

    /// Arrives, and returns the state of the phase (B64) for [`Builder::mbarrier_test_state`].
    pub fn mbarrier_arrive_for_state(&mut self, bar: &Addr) -> Reg {
        let state = self.copy(Operand::Imm(0), RegClass::B64);
        let arrive = |b: &mut Builder| {
            b.push(Opcode::MbarrierArrive { remote: false }, vec![state.into()], vec![Arg::Mem(bar.clone())]);
        };
        #[cfg(test)]
        if dropped::is_next_sync() {
            // The first warp does not arrive.
            let thread = self.copy(Operand::Special(Special::TidX), RegClass::B32);
            let is_other = self.setp(Cmp::Ge, Ty::U32, thread, 32);
            self.guarded(is_other, false, arrive);
            return state;
        }
        arrive(self);
        state
    }

    /// Sets `seen` to true if the phase of an arrival is complete. Does not wait.
    pub fn mbarrier_test_state(&mut self, seen: Reg, bar: &Addr, state: Reg) {
        self.push(Opcode::MbarrierTestWait, vec![seen.into()], vec![Arg::Mem(bar.clone()), state.into()]);
    }

    /// Arrives and increases the expected bytes of bulk copies in this phase.
    pub fn mbarrier_expect_tx(&mut self, bar: &Addr, bytes: impl Into<Operand>) {
        #[cfg(test)]
        if dropped::is_next() {
            return;
        }
        let bytes = self.source(bytes, Ty::U32);
        self.push(Opcode::MbarrierExpectTx, vec![Arg::Sink], vec![Arg::Mem(bar.clone()), bytes.into()]);
    }

    /// Waits until the phase with this parity is complete.
    pub fn mbarrier_wait(&mut self, bar: &Addr, parity: impl Into<Operand>) {
        let parity = self.source(parity, Ty::U32);
        let (again, done) = (self.new_label(), self.fresh(RegClass::Pred));
        self.emit_label(again);
        self.push(Opcode::MbarrierTryWaitParity, vec![done.into()], vec![Arg::Mem(bar.clone()), parity.into()]);
        self.bra_if(done, true, again, false);
    }

    /// Sets `seen` to true if the phase with this parity is complete. Does not wait.
    pub fn mbarrier_test(&mut self, seen: Reg, bar: &Addr, parity: impl Into<Operand>) {
        let parity = self.source(parity, Ty::U32);
        self.push(Opcode::MbarrierTestWaitParity, vec![seen.into()], vec![Arg::Mem(bar.clone()), parity.into()]);
    }

    /// Returns the address of the same offset in the shared memory of another CTA of the cluster.
    pub fn mapa(&mut self, addr: impl Into<Operand>, rank: impl Into<Operand>) -> Operand {
        let (addr, rank) = (self.reg(addr, RegClass::B32), self.source(rank, Ty::U32));
        let dst = self.fresh(RegClass::B32);
        self.push(Opcode::Mapa, vec![dst.into()], vec![addr.into(), rank.into()]);
        dst.into()
    }

    /// Waits for all threads of the cluster; orders only the memory that earlier fences have
    /// ordered.
    pub fn cluster_wait_relaxed(&mut self) {
        self.push(Opcode::ClusterArrive { release: false }, vec![], vec![]);
        self.push(Opcode::ClusterWait { acquire: true }, vec![], vec![]);
    }

    /// Waits for all threads of the cluster; orders their accesses of shared memory.
    pub fn cluster_barrier(&mut self) {
        self.push(Opcode::ClusterArrive { release: true }, vec![], vec![]);
        self.push(Opcode::ClusterWait { acquire: true }, vec![], vec![]);
    }

    /// Loads a box of a tensor map into shared memory, with completion on `bar`; coordinates
    /// innermost first.
    pub fn tma_load(&mut self, dst: &Addr, map: Reg, coords: &[Operand], bar: &Addr, route: LoadRoute) {
        let source = self.tensor_address(map, coords);
        let rank = coords.len() as u32;
        let op = |copy| Opcode::BulkTensor { rank, copy };
        let mut srcs = vec![Arg::Mem(dst.clone()), source, Arg::Mem(bar.clone())];
        self.push_load(&mut srcs, route, op);
    }

    /// Prefetches a box of a tensor map to the L2 cache; coordinates innermost first.
    pub fn tma_prefetch(&mut self, map: Reg, coords: &[Operand]) {
        let source = self.tensor_address(map, coords);
        self.push(Opcode::BulkPrefetchTensor { rank: coords.len() as u32 }, vec![], vec![source]);
    }

    fn push_load(&mut self, srcs: &mut Vec<Arg>, route: LoadRoute, op: impl Fn(BulkCopy) -> Opcode) {
        let LoadRoute { cluster, multicast, policy } = route;
        srcs.extend(multicast.map(Arg::from));
        srcs.extend(policy.map(Arg::from));
        let copy = BulkCopy::Load { cluster, multicast: multicast.is_some(), hint: policy.is_some() };
        self.push(op(copy), vec![], std::mem::take(srcs));
    }

    /// Stores shared memory to a box of a tensor map, in the current bulk group.
    pub fn tma_store(&mut self, map: Reg, coords: &[Operand], src: &Addr) {
        let target = self.tensor_address(map, coords);
        let op = Opcode::BulkTensor { rank: coords.len() as u32, copy: BulkCopy::Store { hint: false } };
        self.push(op, vec![], vec![target, Arg::Mem(src.clone())]);
    }

    /// Reduces shared memory into a box of a tensor map, in the current bulk group.
    pub fn tma_reduce(&mut self, op: ReduxOp, map: Reg, coords: &[Operand], src: &Addr) {
        let target = self.tensor_address(map, coords);
        let copy = BulkCopy::Reduce { op, ty: None };
        self.push(Opcode::BulkTensor { rank: coords.len() as u32, copy }, vec![], vec![target, Arg::Mem(src.clone())]);
    }

    fn tensor_address(&mut self, map: Reg, coords: &[Operand]) -> Arg {
        let coords: Vec<Operand> = coords.iter().map(|&c| self.reg(c, RegClass::B32).into()).collect_vec();
        Arg::Mem(Addr::tensor(map, &coords))
    }

    /// Prefetches the descriptor of a tensor map.
    pub fn prefetch_tensormap(&mut self, map: Reg) {
        self.push(Opcode::PrefetchTensormap, vec![], vec![Arg::Mem(map.into())]);
    }

    /// Commits the current bulk group.
    pub fn bulk_commit_group(&mut self) {
        self.push(Opcode::BulkCommitGroup, vec![], vec![]);
    }

    /// Waits until at most `pending` bulk groups are in flight; `read`: until they have read their
    /// source.
    pub fn bulk_wait_group(&mut self, pending: u32, read: bool) {
        self.push(Opcode::BulkWaitGroup { read }, vec![], vec![Operand::from(pending).into()]);
    }

    /// Orders earlier register and shared-memory accesses before the next wgmma.
    pub fn wgmma_fence(&mut self) {
        self.push(Opcode::WgmmaFence, vec![], vec![]);
    }

    /// Commits the current `wgmma` group.
    pub fn wgmma_commit_group(&mut self) {
        self.push(Opcode::WgmmaCommitGroup, vec![], vec![]);
    }

    /// Waits until at most `pending` `wgmma` groups are in flight.
    pub fn wgmma_wait_group(&mut self, pending: u32) {
        self.push(Opcode::WgmmaWaitGroup, vec![], vec![Operand::from(pending).into()]);
    }

    /// Emits `d = a × b + (accumulate ? d : 0)` for 64 rows. `a`: a descriptor (one B64) or four
    /// B32 registers; `b`: a descriptor; `accumulate`: a predicate or 0/1. `trans` (16-bit operands
    /// in shared memory only): a and b are stored with m, n contiguous.
    #[allow(clippy::too_many_arguments)] // one for each field of the instruction
    pub fn wgmma(
        &mut self,
        n: u32,
        types: MmaTypes,
        d: &[Reg],
        a: &[Reg],
        b: Reg,
        accumulate: Operand,
        trans: (bool, bool),
    ) {
        let k = 256 / types.a.bits(); // 32 bytes of k, always
        let list = |regs: &[Reg]| Arg::Vector(regs.iter().map(|&r| r.into()).collect_vec());
        let from_registers = a.len() > 1;
        let mut srcs = vec![if from_registers { list(a) } else { a[0].into() }, b.into(), accumulate.into()];
        let one = || Arg::One(Operand::Imm(1));
        if !matches!(types.a, Ty::S8 | Ty::U8) {
            srcs.extend([one(), one()]);
        }
        if matches!(types.a, Ty::F16 | Ty::BF16) {
            if !from_registers {
                srcs.push(Operand::from(trans.0).into());
            }
            srcs.push(Operand::from(trans.1).into());
        }
        self.push(Opcode::Wgmma { n, k, d: types.d, a: types.a, b: types.b }, vec![list(d)], srcs);
    }

    /// Releases or acquires registers so that each thread of the warp group has `count`.
    pub fn setmaxnreg(&mut self, inc: bool, count: u32) {
        self.push(Opcode::Setmaxnreg { inc }, vec![], vec![Operand::from(count).into()]);
    }

    /// Waits for the grid that this one depends on.
    pub fn grid_dependency_wait(&mut self) {
        self.push(Opcode::GridDepWait, vec![], vec![]);
    }

    /// Allows dependent grids to start.
    pub fn grid_dependency_launch(&mut self) {
        self.push(Opcode::GridDepLaunch, vec![], vec![]);
    }
}

/// Mutation of tests: one arrival is not emitted, or not executed by the first warp.
#[cfg(test)]
pub(crate) mod dropped {
    use std::cell::Cell;

    /// An arrival on an mbarrier, by its number among all of its kind.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Dropped {
        /// An arrival without a wait: of a pipeline, of an order barrier.
        Arrival(u32),
        /// The arrival of the first warp at a barrier of all warps.
        Sync(u32),
    }

    thread_local! {
        /// The arrival to drop.
        pub(crate) static DROPPED: Cell<Option<Dropped>> = const { Cell::new(None) };
        /// Numbers of arrivals of both kinds so far.
        pub(crate) static COUNTS: Cell<[u32; 2]> = const { Cell::new([0; 2]) };
    }

    /// Counts an arrival, and returns true if it is dropped.
    pub(super) fn is_next() -> bool {
        let [number, syncs] = COUNTS.get();
        COUNTS.set([number + 1, syncs]);
        DROPPED.get() == Some(Dropped::Arrival(number))
    }

    /// Counts a barrier of all warps, and returns true if the first warp does not arrive.
    pub(super) fn is_next_sync() -> bool {
        let [arrivals, number] = COUNTS.get();
        COUNTS.set([arrivals, number + 1]);
        DROPPED.get() == Some(Dropped::Sync(number))
    }
}
