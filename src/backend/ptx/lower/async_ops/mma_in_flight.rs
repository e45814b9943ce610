//! MMAs in flight: steps that issue or wait for `wgmma` groups, and loop-carried MMAs.

use crate::backend::ptx::isa::inst::{Operand, RegClass};
use crate::backend::ptx::lower::Lowering;
use crate::backend::ptx::lower::state::sync_state::{EmittedMmaGroup, ReleaseBarrier, StageRelease};
use crate::backend::ptx::schedule::{ConsumerWait, For, MmaWait};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::Value;
use crate::util::collect::CollectVec as _;

/// Registers of a loop-carried MMA group, which accumulates in place.
pub struct CarriedMmaRegs {
    /// Block arguments with the accumulators.
    arguments: Vec<Value>,
    /// Results of the MMAs: the operands of the terminator.
    results: Vec<Value>,
    /// Results of the loop.
    loop_results: Vec<Value>,
    /// Releases in the next iteration, each with a register for the full barrier.
    releases: Vec<StageRelease>,
    /// Buffers that the MMAs of the previous iteration read.
    reads: Vec<Buffer>,
    /// Source location of the MMA.
    loc: u32,
}

impl Lowering<'_> {
    /// Lowers a wait for MMAs.
    pub fn mma_wait(&mut self, wait: &MmaWait) {
        if wait.defer_release {
            return self.wait_mmas_here(wait.pending, true);
        }
        if let Some(value) = wait.release_after {
            let deferred = std::mem::take(&mut self.sync.mmas.deferred_releases);
            self.release_stages(&deferred, Some(value));
            return self.wait_mmas_here(wait.pending, false);
        }
        self.sync.mmas.sunk_mma_waits.push_back(wait.pending);
        if !wait.sunk {
            self.flush_sunk_waits();
        }
    }

    /// Waits for the tiles of a channel, or notes a sunk wait.
    pub fn consumer_wait_step(&mut self, wait: &ConsumerWait) {
        match wait.sunk {
            true => self.sync.mmas.sunk_stage_waits.push_back(wait.channel as usize),
            false => self.consumer_wait(wait.channel as usize),
        }
    }

    /// Allocates registers for the releases of loop-carried MMAs.
    pub fn start_carried(&mut self, step: &For) -> Vec<CarriedMmaRegs> {
        let (module, id) = (self.module, step.op);
        let body = module.op(id).regions[0];
        let mut carried_mmas = Vec::new();
        for plan in &step.carried_mmas {
            let mut releases = Vec::new();
            for &channel in &plan.releases {
                let cluster = self.sync.is_clustered(channel);
                let register = self.b.copy(Operand::Imm(0), RegClass::B32);
                releases.push(StageRelease { barrier: ReleaseBarrier::Carried(register), cluster });
            }
            let args = &module.block(body).args;
            let exit = module.op(*module.block(body).ops.last().expect("an end of the body"));
            carried_mmas.push(CarriedMmaRegs {
                arguments: plan.accumulators.iter().map(|&carried| args[carried + 1]).collect_vec(),
                results: plan.accumulators.iter().map(|&carried| exit.operands[carried]).collect_vec(),
                loop_results: plan.accumulators.iter().map(|&carried| module.op(id).results[carried]).collect_vec(),
                releases,
                reads: self.previous_slots(self.schedule.mma_reads(step.body, plan.mma)),
                loc: module.op(plan.mma).loc.0,
            });
        }
        carried_mmas
    }

    /// Puts the loop-carried MMAs of the previous iteration into the queue, at the head of a loop.
    pub fn enter_carried(&mut self, carried_mmas: &[CarriedMmaRegs]) {
        self.sync.mmas.in_flight = carried_mmas.iter().map(|carried| carried.mma(&carried.arguments)).collect_vec();
    }

    /// Copies the addresses of stages that the next iteration releases, at the end of the body.
    pub fn close_carried(&mut self, carried_mmas: &[CarriedMmaRegs]) {
        for carried in carried_mmas {
            let mma = self.sync.mmas.in_flight.iter().find(|mma| mma.results == carried.results);
            let releases = mma.map(|mma| mma.releases.clone()).unwrap_or_default();
            for (index, release) in carried.releases.iter().enumerate() {
                let ReleaseBarrier::Carried(register) = release.barrier else { continue };
                match releases.get(index) {
                    Some(&StageRelease { barrier: ReleaseBarrier::Now(barrier), .. }) => {
                        self.b.mov_to(register, barrier)
                    }
                    _ => self.b.mov_to(register, Operand::Imm(0)),
                }
            }
        }
        self.sync.mmas.in_flight.clear();
    }

    /// Puts the loop-carried MMAs of the last iteration into the queue, at the exit of a loop.
    pub fn leave_carried(&mut self, carried_mmas: &[CarriedMmaRegs]) {
        self.sync.mmas.in_flight = carried_mmas.iter().map(|carried| carried.mma(&carried.loop_results)).collect_vec();
    }
}

impl CarriedMmaRegs {
    fn mma(&self, results: &[Value]) -> EmittedMmaGroup {
        EmittedMmaGroup {
            results: results.to_vec(),
            releases: self.releases.clone(),
            reads: self.reads.clone(),
            loc: self.loc,
        }
    }
}
