//! Products that run on their own until a wait for them, and what they give back then.
//!
//! When that is, the schedule says (`land`, `await`). A wait that it calls late stands where the step after it comes to need
//! it. And before threads meet, the schedule has whatever runs land: once they have, shared memory that products read is written again.

use std::collections::{HashSet, VecDeque};

use super::release::Release;
use super::{Lowered, Lowering};
use crate::backend::ptx::isa::inst::{Operand, Reg, RegClass};
use crate::backend::ptx::mma::MmaPlan;
use crate::backend::ptx::schedule::{self, ConsumerWait, MmaWait};
use crate::ir::{OpId, Value};

/// Lines of code that are worth to be kept beside a running product.
const OVERLAPPED_LINES: usize = 96;
/// In a block with more products than so many no block of code ends amid them: what one of them waits for runs beside the others, and
/// ptxas finds no registers for several that are in flight where a block ends.
const FEW_PRODUCTS: usize = 2;

/// What runs, and the waits that are to come.
#[derive(Default)]
pub struct Flights {
    /// In the order in which they were issued.
    running: Vec<Flight>,
    /// Late waits of the step that is lowered: how many products may still run then.
    due: VecDeque<usize>,
    /// Channels whose tiles it waits for.
    arriving: VecDeque<usize>,
    /// What products that have landed keep.
    kept: Vec<Release>,
    /// A turn to work begins where the next late wait stands.
    turn: bool,
}

/// A product that may still be running, or several that were issued together.
#[derive(Clone, Debug)]
pub struct Flight {
    /// What it computes.
    results: Vec<Value>,
    /// What it reads.
    releases: Vec<Release>,
    /// Lines of code before it was issued; none where no block of code may end before the wait.
    issued: usize,
    /// The user's place of it.
    place: u32,
}

/// A product that stays in flight over the back edge of a loop, accumulating in place, or several that are issued together.
pub struct Orbit {
    /// The carried values that it accumulates on.
    arguments: Vec<Value>,
    /// Its results, which are carried on.
    results: Vec<Value>,
    /// The loop's results.
    after: Vec<Value>,
    /// Registers of what it has to give back, and whether that is so in both tile blocks of a pair.
    releases: Vec<(Reg, bool)>,
    /// The user's place of the product.
    place: u32,
}

impl Lowering<'_> {
    /// Notes products that have been issued, the last of them by this op.
    pub fn launch(&mut self, last: OpId, results: Vec<Value>, releases: Vec<Release>) {
        let issued = if self.products_beside(last) <= FEW_PRODUCTS { self.b.num_lines() } else { usize::MAX };
        let place = self.module.op(last).loc.0;
        self.flights.running.push(Flight { results, releases, issued, place });
    }

    /// How many products stand in a block with this one; those that belong together are one.
    fn products_beside(&self, product: OpId) -> usize {
        let Some(block) = self.context.op_blocks[product.index()] else { return 0 };
        let products =
            self.module.block(block).ops.iter().filter(|id| self.context.inference.products.contains_key(id));
        let last: HashSet<OpId> = products.map(|&id| self.context.bundles.last(id)).collect();
        last.len()
    }

    /// A wait for products.
    pub fn land_as(&mut self, land: &MmaWait) {
        if land.defer_release {
            return self.land_here(land.pending, true);
        }
        if let Some(value) = land.release_after {
            let kept = std::mem::take(&mut self.flights.kept);
            self.give_back(&kept, Some(value));
            return self.land_here(land.pending, false);
        }
        self.flights.due.push_back(land.pending);
        if !land.sunk {
            self.come_due();
        }
    }

    /// Waits for the turn of this group to work; `late`: with the late wait for products that comes next.
    pub fn begin_turn(&mut self, late: bool) {
        match late {
            true => self.flights.turn = true,
            false => self.await_turn(),
        }
    }

    /// A wait for streamed tiles.
    pub fn await_as(&mut self, wait: &ConsumerWait) {
        match wait.sunk {
            true => self.flights.arriving.push_back(wait.channel as usize),
            false => self.await_channel(wait.channel as usize),
        }
    }

    /// A value is read next: the wait for the product that computes it.
    pub fn need(&mut self, value: Value) -> Lowered {
        while self.flights.running.iter().any(|flight| flight.results.contains(&value)) {
            let due = self.flights.due.pop_front();
            self.land(due.ok_or("a product is not waited for where it is read, which is a defect of this crate")?);
        }
        Ok(())
    }

    /// The tile of a load is read next: the wait for it.
    pub fn need_tile(&mut self, load: OpId) -> Lowered {
        let Some(channel) = self.unawaited(load) else { return Ok(()) };
        let Some(position) = self.flights.arriving.iter().position(|&other| other == channel) else {
            return Err("a tile is not waited for where it is read, which is a defect of this crate".to_owned());
        };
        self.flights.arriving.remove(position);
        self.for_op(load, |lowering| lowering.await_channel(channel));
        Ok(())
    }

    /// The waits of the step that have not come yet.
    pub fn come_due(&mut self) {
        while let Some(channel) = self.flights.arriving.pop_front() {
            self.await_channel(channel);
        }
        while let Some(younger) = self.flights.due.pop_front() {
            self.land(younger);
        }
        if std::mem::take(&mut self.flights.turn) {
            self.await_turn();
        }
    }

    /// Before threads meet: whatever waits were to come later find nothing then.
    pub fn land_to_meet(&mut self) {
        self.land(0);
        self.flights.due.clear();
    }

    /// May a product be running?
    pub fn is_flying(&self) -> bool {
        !self.flights.running.is_empty()
    }

    /// The products that may be running.
    pub fn running(&self) -> Vec<Flight> {
        self.flights.running.clone()
    }

    /// At the start of another branch these may be running. How many may be at the end of the one before?
    pub fn run_again(&mut self, running: Vec<Flight>) -> usize {
        std::mem::replace(&mut self.flights.running, running).len()
    }

    /// How many products a wait finds that lets so many run on, if any.
    fn landed_by(&self, younger: usize) -> Option<usize> {
        self.flights.running.len().checked_sub(younger).filter(|&landed| landed > 0)
    }

    /// Waits until at most `younger` of the products that were issued last may be running.
    fn land(&mut self, younger: usize) {
        let Some(landed) = self.landed_by(younger) else { return };
        let issued = self.flights.running[landed - 1].issued;
        if self.b.num_lines().saturating_sub(issued) > OVERLAPPED_LINES && self.is_in_loop() {
            // Keeps the work before this place before it: ptxas likes to mix a wait's surroundings, and would let a
            // product finish before the work that was meant to go on meanwhile.
            self.end_block();
        }
        if std::mem::take(&mut self.flights.turn) {
            self.await_turn();
        }
        self.land_here(younger, false);
    }

    /// The same, wherever ptxas puts what comes before. `keeps`: their stages come back later.
    fn land_here(&mut self, younger: usize, keeps: bool) {
        let Some(landed) = self.landed_by(younger) else { return };
        let place = self.flights.running[landed - 1].place;
        // A wait is the affair of the product that it is for.
        let before = self.b.come_from(place);
        MmaPlan::wait(&mut self.b, younger as u32);
        let landed: Vec<Flight> = self.flights.running.drain(..landed).collect();
        for flight in landed {
            match keeps {
                true => self.flights.kept.extend(flight.releases),
                false => self.give_back(&flight.releases, None),
            }
        }
        self.b.come_from(before);
    }

    /// Waits for whatever products may run, also those that an earlier iteration issued.
    pub fn land_all(&mut self) {
        let before = self.b.come_from(self.flights.running.last().map_or(0, |flight| flight.place));
        MmaPlan::wait(&mut self.b, 0);
        self.b.come_from(before);
        for flight in std::mem::take(&mut self.flights.running) {
            self.give_back(&flight.releases, None);
        }
    }

    /// Registers for what products that stay in flight have to give back.
    pub fn start_orbits(&mut self, id: OpId, plans: &[schedule::CarriedMma]) -> Vec<Orbit> {
        let module = self.module;
        let body = module.op(id).regions[0];
        let mut orbits = Vec::new();
        for plan in plans {
            let paired: Vec<bool> = plan.releases.iter().map(|&channel| self.is_paired(channel)).collect();
            let releases = paired.into_iter().map(|paired| (self.b.copy(Operand::Imm(0), RegClass::B32), paired));
            let releases = releases.collect();
            let args = &module.block(body).args;
            let exit = module.op(*module.block(body).ops.last().expect("an end of the body"));
            orbits.push(Orbit {
                arguments: plan.accumulators.iter().map(|&carried| args[carried + 1]).collect(),
                results: plan.accumulators.iter().map(|&carried| exit.operands[carried]).collect(),
                after: plan.accumulators.iter().map(|&carried| module.op(id).results[carried]).collect(),
                releases,
                place: module.op(plan.mma).loc.0,
            });
        }
        orbits
    }

    /// At the head of a loop: the products of the iteration before may still be running.
    pub fn enter_orbits(&mut self, orbits: &[Orbit]) {
        self.flights.running = orbits.iter().map(|orbit| orbit.flight(&orbit.arguments)).collect();
    }

    /// At the end of a body: notes what is to be given back in the next iteration.
    pub fn close_orbits(&mut self, orbits: &[Orbit]) {
        for orbit in orbits {
            let flight = self.flights.running.iter().find(|flight| flight.results == orbit.results);
            let releases = flight.map(|flight| flight.releases.clone()).unwrap_or_default();
            for (place, &(register, _)) in orbit.releases.iter().enumerate() {
                match releases.get(place) {
                    Some(&Release::Stage(barrier, _)) => self.b.mov_to(register, barrier),
                    _ => self.b.mov_to(register, Operand::Imm(0)),
                }
            }
        }
        self.flights.running.clear();
    }

    /// On the way out of a loop: the products of its last iteration may still be running.
    pub fn leave_orbits(&mut self, orbits: &[Orbit]) {
        self.flights.running = orbits.iter().map(|orbit| orbit.flight(&orbit.after)).collect();
    }
}

impl Orbit {
    fn flight(&self, results: &[Value]) -> Flight {
        let releases = self.releases.iter().map(|&(register, paired)| Release::Carried(register, paired)).collect();
        Flight { results: results.to_vec(), releases, issued: usize::MAX, place: self.place }
    }
}
