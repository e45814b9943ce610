//! MMAs in flight: steps that issue or wait for `wgmma` groups, and loop-carried MMAs.

use std::collections::HashSet;

use crate::backend::ptx::inst::{Operand, Reg, RegClass};
use crate::backend::ptx::lower::Lowering;
use crate::backend::ptx::lower::state::sync_state::{InFlightMma, ReleaseBarrier, StageRelease};
use crate::backend::ptx::schedule::{self, ConsumerWait, MmaWait};
use crate::ir::{OpId, Value};

/// In a block with more products than so many no block of code ends amid them: what one of them waits for runs beside the others, and
/// ptxas finds no registers for several that are in mma where a block ends.
const FEW_PRODUCTS: usize = 2;

/// A product that stays in mma over the back edge of a loop, accumulating in place, or several that are issued together.
pub struct CarriedMmaRegs {
    /// The carried values that it accumulates on.
    arguments: Vec<Value>,
    /// Its results, which are carried on.
    results: Vec<Value>,
    /// The loop's results.
    loop_results: Vec<Value>,
    /// Registers of what it has to give back, and whether that is so in both tile blocks of a pair.
    releases: Vec<(Reg, bool)>,
    /// The user's place of the product.
    loc: u32,
}

impl Lowering<'_> {
    /// Notes products that have been issued, the last of them by this op.
    pub fn push_mma(&mut self, last: OpId, results: Vec<Value>, releases: Vec<StageRelease>) {
        let issued = if self.mmas_in_block(last) <= FEW_PRODUCTS { self.b.num_lines() } else { usize::MAX };
        let place = self.module.op(last).loc.0;
        self.sync.mmas.in_flight.push(InFlightMma { results, releases, issued_at: issued, loc: place });
    }

    /// How many products stand in a block with this one; those that belong together are one.
    fn mmas_in_block(&self, product: OpId) -> usize {
        let Some(block) = self.info.op_blocks[product.index()] else { return 0 };
        let products = self.module.block(block).ops.iter().filter(|id| self.info.inference.products.contains_key(id));
        let last: HashSet<OpId> = products.map(|&id| self.info.bundles.last(id)).collect();
        last.len()
    }

    /// A wait for products.
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

    /// Waits for the turn of this group to work; `late`: with the late wait for products that comes next.
    pub fn exp_order_wait(&mut self, late: bool) {
        match late {
            true => self.sync.mmas.sunk_order_wait = true,
            false => self.order_wait(),
        }
    }

    /// A wait for streamed tiles.
    pub fn consumer_wait_step(&mut self, wait: &ConsumerWait) {
        match wait.sunk {
            true => self.sync.mmas.sunk_stage_waits.push_back(wait.channel as usize),
            false => self.consumer_wait(wait.channel as usize),
        }
    }

    /// Registers for what products that stay in mma have to give back.
    pub fn start_carried(&mut self, id: OpId, plans: &[schedule::CarriedMma]) -> Vec<CarriedMmaRegs> {
        let module = self.module;
        let body = module.op(id).regions[0];
        let mut carried_mmas = Vec::new();
        for plan in plans {
            let clustered: Vec<bool> = plan.releases.iter().map(|&channel| self.sync.is_clustered(channel)).collect();
            let releases =
                clustered.into_iter().map(|clustered| (self.b.copy(Operand::Imm(0), RegClass::B32), clustered));
            let releases = releases.collect();
            let args = &module.block(body).args;
            let exit = module.op(*module.block(body).ops.last().expect("an end of the body"));
            carried_mmas.push(CarriedMmaRegs {
                arguments: plan.accumulators.iter().map(|&carried| args[carried + 1]).collect(),
                results: plan.accumulators.iter().map(|&carried| exit.operands[carried]).collect(),
                loop_results: plan.accumulators.iter().map(|&carried| module.op(id).results[carried]).collect(),
                releases,
                loc: module.op(plan.mma).loc.0,
            });
        }
        carried_mmas
    }

    /// At the head of a loop: the products of the iteration before may still be running.
    pub fn enter_carried(&mut self, carried_mmas: &[CarriedMmaRegs]) {
        self.sync.mmas.in_flight = carried_mmas.iter().map(|carried| carried.mma(&carried.arguments)).collect();
    }

    /// At the end of a body: notes what is to be given back in the next iteration.
    pub fn close_carried(&mut self, carried_mmas: &[CarriedMmaRegs]) {
        for carried in carried_mmas {
            let mma = self.sync.mmas.in_flight.iter().find(|mma| mma.results == carried.results);
            let releases = mma.map(|mma| mma.releases.clone()).unwrap_or_default();
            for (place, &(register, _)) in carried.releases.iter().enumerate() {
                match releases.get(place) {
                    Some(&StageRelease { barrier: ReleaseBarrier::Now(barrier), .. }) => {
                        self.b.mov_to(register, barrier)
                    }
                    _ => self.b.mov_to(register, Operand::Imm(0)),
                }
            }
        }
        self.sync.mmas.in_flight.clear();
    }

    /// On the way out of a loop: the products of its last iteration may still be running.
    pub fn leave_carried(&mut self, carried_mmas: &[CarriedMmaRegs]) {
        self.sync.mmas.in_flight = carried_mmas.iter().map(|carried| carried.mma(&carried.loop_results)).collect();
    }
}

impl CarriedMmaRegs {
    fn mma(&self, results: &[Value]) -> InFlightMma {
        let releases = self
            .releases
            .iter()
            .map(|&(register, clustered)| StageRelease {
                barrier: ReleaseBarrier::Carried(register),
                cluster: clustered,
            })
            .collect();
        InFlightMma { results: results.to_vec(), releases, issued_at: usize::MAX, loc: self.loc }
    }
}
