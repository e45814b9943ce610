//! Cost model: the cycles of a schedule, by discrete-event simulation.
//!
//! Input: a schedule, its kernel, and the properties of a launch. Output: cycles of a CTA,
//! utilization of each resource, and a timeline as SVG. Order:
//! 1. `machine_model`: rates and latencies of the target;
//! 2. `resource_use`, `op_cost`: cycles that an op needs of each resource;
//!    `register_demand`: registers of a loop, beyond which accumulators are spilled;
//! 3. `trip_count`: iterations of the loops, from constants, grid and parameters, else
//!    `events::DEFAULT_TRIP_COUNTS`;
//! 4. `events`: the steps of each partition as events;
//! 5. `discrete_event`: the simulation, with `warp_walk` (state of a warp group), `async_queue`
//!    (MMAs and stores in flight) and `resources` (SM and barriers);
//! 6. `simulated_timeline`, `timeline_svg`: the simulation as a picture;
//! 7. `step_spans`: the simulation as spans of steps, for a comparison with recorded ones.
//!
//! Model: each warp group of a consumer, and the one lane of a producer, executes the steps of its
//! partition. Resources of the SM serve requests in the order of their arrival: tensor
//! cores, `ex2` unit, integer unit, issue slots, shared memory, L2 cache, memory. Copies and MMAs
//! are asynchronous. All resident CTAs are simulated together.
//!
//! Not modelled: spills outside of loops with MMAs, instruction order of ptxas, bank conflicts,
//! clock throttling.
//! The folder does not know instructions (`isa`).

mod async_queue;
mod discrete_event;
mod events;
mod machine_model;
mod op_cost;
mod register_demand;
mod resource_use;
mod resources;
mod simulated_timeline;
mod step_spans;
#[cfg(test)]
mod tests;
pub mod timeline_svg;
mod trip_count;
mod warp_walk;

use crate::util::collect::CollectVec as _;
pub use discrete_event::LoopCost;
pub use machine_model::MachineModel;
pub use register_demand::registers_of_mma_loops;
pub use step_spans::StepSpan;
pub use trip_count::LaunchInfo;

use self::discrete_event::EventReplay;
use self::events::EventPrograms;
use self::resource_use::Resource;
use self::trip_count::{TripCount, tiles_stored, trip_counts};
use super::schedule::{KernelInfo, Schedule, SeqId, Step, WarpRole};
use crate::ir::{BlockId, OpId, Opcode};
use crate::target::Target;

/// Cost of a schedule.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Cycles of a CTA that shares its SM with the other resident ones.
    pub cta_cycles: f64,
    /// Number of resident CTAs.
    pub resident_ctas: u32,
    /// Loops of the consumers, inner ones first.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests compare it"))]
    pub loops: Vec<LoopCost>,
    /// Utilization of each resource.
    pub busy: Vec<(&'static str, f64)>,
    /// Largest utilization of a resource whose work does not depend on the plan. No plan takes less
    /// than this fraction of the cycles.
    pub lower_bound_fraction: f64,
    /// Cycles of the launch, if the grid is known.
    pub launch: Option<f64>,
}

impl Cost {
    /// Returns the cycles of an SM per CTA, by which plans are compared.
    pub fn cycles_per_cta(&self) -> f64 {
        self.cta_cycles / f64::from(self.resident_ctas.max(1))
    }
}

/// Input of the cost model: a schedule of an entry with this body.
#[derive(Clone, Copy)]
pub struct CostInput<'a, 'm> {
    pub context: &'a KernelInfo<'m>,
    pub body: BlockId,
    pub schedule: &'a Schedule,
    /// Number of CTAs that fit on an SM.
    pub ctas_per_sm: u32,
    pub launched: LaunchInfo<'a>,
}

/// Returns the machine model of a target.
pub fn machine(target: Target) -> &'static MachineModel {
    machine_model::nearest(target)
}

impl CostInput<'_, '_> {
    /// Returns the cost, or `None` if the schedule has a deadlock.
    pub fn cost(&self, machine: &'static MachineModel) -> Option<Cost> {
        let resident_ctas = self.resident_ctas(machine);
        let programs = self.programs(machine);
        let replay = EventReplay::run(&programs, resident_ctas as usize, false)?;
        let (loops, cta_cycles) = discrete_event::extrapolated(&programs, &replay);
        let cta_cycles = cta_cycles + machine.cta_launch;
        let shares = discrete_event::shares(&replay);
        let fixed = [Resource::Tensor, Resource::Special, Resource::L2, Resource::Memory];
        let lower_bound_fraction =
            shares.iter().filter(|(resource, _)| fixed.contains(resource)).map(|share| share.1).fold(0.0, f64::max);
        let busy = shares.into_iter().map(|(resource, share)| (resource.name(), share)).collect_vec();
        let waves = self.num_ctas().map(|ctas| (ctas / (machine.num_sms * f64::from(resident_ctas))).ceil().max(1.0));
        let launch = waves.map(|waves| waves * cta_cycles + machine.launch);
        Some(Cost { cta_cycles, resident_ctas, loops, busy, lower_bound_fraction, launch })
    }

    /// Returns true if TMA alone loads tiles of memory in loops with MMAs.
    pub fn loads_by_tma(&self) -> bool {
        let consumers = self.schedule.partitions.iter().filter(|partition| partition.role != WarpRole::Producer);
        self.schedule.warp_spec.is_some() && consumers.map(|consumer| consumer.body).all(|body| !self.has_loads(body))
    }

    /// Returns true if threads load tiles of memory in loops with MMAs of a sequence.
    fn has_loads(&self, sequence: SeqId) -> bool {
        self.schedule.steps(sequence).iter().any(|step| {
            let is_load = |&id: &OpId| {
                let is_of_memory = matches!(self.context.module.op(id).code, Opcode::LoadView | Opcode::LoadPtr);
                is_of_memory && self.context.is_in_mma_loop(id)
            };
            let copies = matches!(step, Step::For(plan) if plan.cp_async.is_some());
            let loads = !matches!(step, Step::LocalLoad(_)) && step.ops().iter().any(is_load);
            copies || loads || step.sequences().iter().any(|&nested| self.has_loads(nested))
        })
    }

    /// Returns the timeline as SVG.
    pub fn picture(&self, machine: &'static MachineModel, title: &str) -> Option<String> {
        let resident_ctas = self.resident_ctas(machine);
        let programs = self.programs(machine);
        let replay = EventReplay::run(&programs, resident_ctas as usize, true)?;
        Some(timeline_svg::draw(title, &simulated_timeline::panels(&programs, &replay)))
    }

    /// Returns the steps of the first resident CTA over time, in cycles.
    pub fn step_spans(&self, machine: &'static MachineModel) -> Option<Vec<StepSpan>> {
        let resident_ctas = self.resident_ctas(machine);
        let programs = self.programs(machine);
        let replay = EventReplay::run(&programs, resident_ctas as usize, true)?;
        Some(step_spans::step_spans(self.context.module, &programs, &replay))
    }

    /// Returns the number of CTAs of the launch, if the grid is known.
    fn num_ctas(&self) -> Option<f64> {
        self.launched.grid.map(|grid| grid.iter().map(|&extent| f64::from(extent)).product())
    }

    /// Returns the number of resident CTAs, which the grid limits.
    fn resident_ctas(&self, machine: &MachineModel) -> u32 {
        let limit = self.num_ctas().map_or(u32::MAX, |ctas| (ctas / machine.num_sms).ceil().max(1.0) as u32);
        self.ctas_per_sm.clamp(1, limit)
    }

    fn programs(&self, machine: &'static MachineModel) -> EventPrograms {
        let trip_counts = trip_counts(self.context.module, (self.body, &self.context.regions), self.launched);
        // The CTA with the most work is the last one to end, if all are resident at the same time.
        let has_one_wave =
            self.num_ctas().is_none_or(|ctas| ctas <= machine.num_sms * f64::from(self.ctas_per_sm.max(1)));
        let is_outermost = |id: OpId| self.context.regions.enclosing_loop(id).is_none();
        let count = |(id, count): (OpId, TripCount)| {
            (id, if has_one_wave && is_outermost(id) { count.max } else { count.mean })
        };
        let trip_counts = trip_counts.into_iter().map(count).collect();
        let mut programs = EventPrograms::new(self.context, machine, (self.schedule, self.ctas_per_sm), &trip_counts);
        self.assume_tiles(&mut programs);
        programs
    }

    /// Sets the trip count of a persistent loop: all CTAs together store each element once.
    fn assume_tiles(&self, programs: &mut EventPrograms) {
        let module = self.context.module;
        let Some(ctas) = self.num_ctas() else { return };
        let Some(partition) = self.schedule.partitions.iter().find(|partition| partition.role != WarpRole::Producer)
        else {
            return;
        };
        for step in self.schedule.steps(partition.body) {
            let Step::For(plan) = step else { continue };
            let mut stores = Vec::new();
            for inner in self.schedule.steps(plan.body) {
                stores.extend(inner.ops().into_iter().filter(|&id| module.op(id).code == Opcode::StoreView));
            }
            let Some(&store) = stores.first() else { continue };
            let tiles = tiles_stored(module, self.body, store, self.launched);
            // Each data partition stores separate tiles.
            let tiles = tiles.map(|tiles| tiles / f64::from(self.context.data_partitions));
            for timing in programs.loops.iter_mut().filter(|timing| timing.op == plan.op && !timing.known) {
                if let Some(tiles) = tiles {
                    timing.trip_count = (tiles / ctas).ceil().max(1.0);
                    timing.simulated = timing.simulated.min(timing.trip_count.ceil() as u32);
                    timing.known = true;
                }
            }
        }
    }
}
