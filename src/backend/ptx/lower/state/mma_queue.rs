//! MMAs in flight: waits for `wgmma` groups, and the stage releases that follow.
//!
//! The schedule inserts the waits. A sunk wait is emitted at the first use of the value inside the
//! next step, or at the end of this step. Before a write to shared memory, the MMAs that read
//! it are complete.

use super::core::{Lowered, Lowering};
use super::instrument::stamp_state::WaitKey;
use super::sync_state::{EmittedMmaGroup, ReleaseBarrier, StageRelease};
use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{Addr, Cmp, Operand, Reg, RegClass, Ty};
use crate::backend::ptx::mma::MmaPlan;
use crate::backend::ptx::plan::planned_kernel::EMPTY_BARRIER_OFFSET;
use crate::ir::{OpId, Value};
use crate::util::collect::CollectVec as _;

impl Lowering<'_> {
    /// Waits for the MMA that computes a value, before its first use.
    pub fn wait_for_value(&mut self, value: Value) -> Lowered {
        while self.sync.mmas.in_flight.iter().any(|mma| mma.results.contains(&value)) {
            let due = self.sync.mmas.sunk_mma_waits.pop_front();
            self.wait_mmas(
                due.ok_or("internal error: no wait for an MMA before its result is read; please report it")?,
            );
        }
        Ok(())
    }

    /// Waits for the stage of a load, before the first use of its tile.
    pub fn wait_for_tile(&mut self, load: OpId) -> Lowered {
        let Some(channel) = self.sync.unwaited(load) else { return Ok(()) };
        let Some(position) = self.sync.mmas.sunk_stage_waits.iter().position(|&other| other == channel) else {
            return Err("internal error: no wait for a stage before its tile is read; please report it".to_owned());
        };
        self.sync.mmas.sunk_stage_waits.remove(position);
        self.for_op(load, |lowering| lowering.consumer_wait(channel));
        Ok(())
    }

    /// Emits the sunk waits of the current step that are still missing.
    pub fn flush_sunk_waits(&mut self) {
        while let Some(channel) = self.sync.mmas.sunk_stage_waits.pop_front() {
            self.consumer_wait(channel);
        }
        while let Some(pending) = self.sync.mmas.sunk_mma_waits.pop_front() {
            self.wait_mmas(pending);
        }
        if let Some(point) = self.sync.mmas.sunk_order_wait.take() {
            self.order_wait(point);
        }
    }

    /// Waits for MMAs whose operands are overwritten. Sunk waits are then unnecessary.
    pub fn wait_for_operands(&mut self, pending: usize) {
        self.wait_mmas(pending);
        self.sync.mmas.sunk_mma_waits.clear();
    }

    /// Waits until at most `pending` MMA groups are in flight.
    pub fn wait_mmas(&mut self, pending: usize) {
        if self.sync.mmas.num_completed_by(pending).is_none() {
            return;
        }
        if let Some(point) = self.sync.mmas.sunk_order_wait.take() {
            self.order_wait(point);
        }
        self.wait_mmas_here(pending, false);
    }

    /// Waits without the sunk order wait. `defers`: the stages are released later.
    pub fn wait_mmas_here(&mut self, pending: usize, defers: bool) {
        let Some(completed) = self.sync.mmas.num_completed_by(pending) else { return };
        let loc = self.sync.mmas.in_flight[completed - 1].loc;
        // The wait has the source location of its MMA.
        let before = self.b.set_loc(loc);
        let start = self.begin_overlapped_wait();
        MmaPlan::wait(&mut self.b, pending as u32);
        let mma = self.sync.mmas.in_flight[completed - 1].results.first().and_then(|&mma| self.module.defining_op(mma));
        self.end_overlapped_wait(start, Some(WaitKey::Mma), mma);
        let completed: Vec<EmittedMmaGroup> = self.sync.mmas.in_flight.drain(..completed).collect_vec();
        for mma in completed {
            match defers {
                true => self.sync.mmas.deferred_releases.extend(mma.releases),
                false => self.release_stages(&mma.releases, None),
            }
        }
        self.b.set_loc(before);
    }

    /// Waits for all MMAs, including those of an earlier iteration.
    pub fn wait_all_mmas(&mut self) {
        let before = self.b.set_loc(self.sync.mmas.in_flight.last().map_or(0, |mma| mma.loc));
        let start = self.stamp_start();
        MmaPlan::wait(&mut self.b, 0);
        self.stamp_wait(start, None, None);
        self.b.set_loc(before);
        for mma in std::mem::take(&mut self.sync.mmas.in_flight) {
            self.release_stages(&mma.releases, None);
        }
    }

    /// Arrives on the empty barriers of stages: not before the value `after` is computed, if there
    /// is one.
    pub fn release_stages(&mut self, releases: &[StageRelease], after: Option<Value>) {
        let computed = after.and_then(|value| self.opaque_true_after(value));
        let Some(pipelines) = &self.sync.pipelines else { return };
        let (Some(leader), peer) = (pipelines.warp_leader, pipelines.peer_rank.zip(pipelines.remote_leader)) else {
            return;
        };
        let mut now = |thread: Reg| computed.map_or(thread, |computed| self.b.and(Ty::Pred, thread, computed).reg());
        let (leader, peer) = (now(leader), peer.map(|(peer, remote_leader)| (peer, now(remote_leader))));
        for &release in releases {
            let (barrier, there) = match release.barrier {
                ReleaseBarrier::Now(barrier) => (barrier, None),
                ReleaseBarrier::Carried(barrier) => (barrier, Some(self.b.setp(Cmp::Ne, Ty::U32, barrier, 0))),
            };
            let arrive = |b: &mut Builder, leader: Reg, bar: Reg, remote: bool| {
                let arrives = there.map_or(leader, |there| b.and(Ty::Pred, there, leader).reg());
                b.guarded(arrives, false, |b| b.mbarrier_arrive(&Addr::new(bar, EMPTY_BARRIER_OFFSET), remote));
            };
            arrive(&mut self.b, leader, barrier, false);
            if let Some((peer, remote_leader)) = peer.filter(|_| release.cluster) {
                let far = self.b.mapa(barrier, peer).reg();
                arrive(&mut self.b, remote_leader, far, true);
            }
        }
    }

    /// Returns a predicate that is always true. ptxas cannot prove it, so the value is computed
    /// before its uses.
    pub fn opaque_true_after(&mut self, value: Value) -> Option<Reg> {
        let opaque_false = self.sync.opaque_false()?;
        let regs = self.values.tiles[value.index()].as_ref()?.regs.clone();
        let mut missing: Option<Reg> = None;
        for register in regs.iter() {
            let &Operand::Reg(register) = register else { continue };
            if matches!(register.class, RegClass::B32 | RegClass::F32) {
                let negative = self.b.setp(Cmp::Lt, Ty::S32, register.as_class(RegClass::B32), 0);
                missing = Some(missing.map_or(negative, |missing| self.b.or(Ty::Pred, missing, negative).reg()));
            }
        }
        let missing = self.b.and(Ty::Pred, missing?, opaque_false);
        Some(self.b.not(Ty::Pred, missing).reg())
    }
}
