//! Plans of a launch, and their times by the cost model.

use super::text::traced;
use crate::backend::ParamWord;
use crate::backend::ptx::{self, CompileOptions, CostInput, LaunchInfo, MachineModel};
use crate::backend::{Hints, PlanOverride};
use crate::error::Result;
use crate::ir::Module;
use crate::kernel::{Arguments, Bound, Kernel, KernelArgs, WordBuffer};
use crate::launch::compile::check_hints::check_hints;
use crate::launch::compile::ptx::{MIN_ROUNDS, optimizations_from_env, options, stuck};
use crate::launch::options::Launch;
use crate::pass;
use crate::runtime::Backend;
use crate::target::Target;

/// Plan of a kernel, its time by the cost model, and the hints that select it.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct CostedPlan {
    /// Difference from the default plan, as text.
    pub what: String,
    /// Hints that determine the plan completely.
    pub hints: Hints,
    /// Time of the launch by the cost model, in microseconds. If the grid is unknown: cycles for
    /// each tile block of a multiprocessor.
    pub model: f64,
    /// The plan is the one that the original hints select.
    pub chosen: bool,
    /// Schedule as text.
    pub schedule: String,
}

/// A kernel in the form that a launch selects, by the cost model.
struct PricedForm {
    /// Microseconds, or cycles for each tile block of a multiprocessor if the grid is unknown.
    time: f64,
    schedule: String,
    /// CTAs of all multiprocessors, if operands of MMAs in loops are loaded by TMA alone.
    tma_ctas: Option<u64>,
}

impl PricedForm {
    fn new(input: &CostInput<'_, '_>, machine: &'static MachineModel) -> Option<PricedForm> {
        let cost = input.cost(machine)?;
        let time = cost.launch.map_or(cost.cycles_per_cta(), |cycles| cycles / machine.clock / 1e3);
        let schedule = input.schedule.to_text(input.context.module);
        let tma_ctas = input.loads_by_tma().then(|| u64::from(input.ctas_per_sm) * machine.num_sms as u64);
        Some(PricedForm { time, schedule, tma_ctas })
    }
}

/// Returns the estimated time of a launch over a grid with these parameters and hints, and the
/// schedule as text. A launch of many tile blocks takes the persistent form.
fn priced(module: &Module, target: Target, hints: Hints, launched: LaunchInfo<'_>) -> Result<(f64, String)> {
    let machine = ptx::machine(target);
    let compile_options = options(hints, true)?;
    let look = &mut |input: &CostInput<'_, '_>| PricedForm::new(&CostInput { launched, ..*input }, machine);
    let plain = ptx::with_plan(module, target, &compile_options, look)?.ok_or_else(stuck)?;
    let persistent = persistent(module, target, hints, (launched, &plain))?;
    let PricedForm { time, schedule, .. } = persistent.unwrap_or(plain);
    Ok((time, schedule))
}

/// Returns the persistent form of a launch, if it selects that form.
fn persistent(
    module: &Module,
    target: Target,
    hints: Hints,
    (launched, plain): (LaunchInfo<'_>, &PricedForm),
) -> Result<Option<PricedForm>> {
    let enabled = hints.plan.optimizations.intersection(optimizations_from_env()?);
    let is_allowed = hints.persistent != Some(false) && hints.num_ctas.is_none() && target.arch == 90;
    let (Some(grid), Some(ctas)) = (launched.grid, plain.tma_ctas) else { return Ok(None) };
    let tile_blocks = grid.iter().map(|&extent| u64::from(extent)).product::<u64>();
    let least = if hints.persistent == Some(true) { 1 } else { MIN_ROUNDS * ctas };
    if !is_allowed || !enabled.contains(ptx::Optimization::Persistent) || tile_blocks < least {
        return Ok(None);
    }
    let Some(module) = pass::persistent(module) else { return Ok(None) };
    let options = CompileOptions { has_many_blocks: true, ..options(hints, true)? };
    let params: Vec<ParamWord> = launched.params.iter().copied().chain(grid.map(ParamWord::from)).collect();
    let machine = ptx::machine(target);
    let look = &mut |input: &CostInput<'_, '_>| {
        let rounds = tile_blocks.div_ceil(u64::from(input.ctas_per_sm) * machine.num_sms as u64);
        let grid = Some([tile_blocks.div_ceil(rounds) as u32, 1, 1]);
        PricedForm::new(&CostInput { launched: LaunchInfo { grid, params: &params }, ..*input }, machine)
    };
    // A form that does not compile is not launched.
    Ok(ptx::with_plan(&module, target, &options, look).ok().flatten())
}

/// Returns the plan that is selected for hints. With `all`, also each other plan that the hints
/// permit, once.
fn plans(
    module: &Module,
    target: Target,
    hints: Hints,
    launched: LaunchInfo<'_>,
    all: bool,
) -> Result<Vec<CostedPlan>> {
    let (model, schedule) = priced(module, target, hints, launched)?;
    let first = CostedPlan { what: "as chosen".to_owned(), hints, model, chosen: true, schedule };
    let mut plans: Vec<CostedPlan> = Vec::new();
    for (what, hints) in if all { open_plans(hints) } else { Vec::new() } {
        let Ok((model, schedule)) = priced(module, target, hints, launched) else { continue };
        if plans.iter().all(|plan| plan.schedule != schedule) {
            let chosen = schedule == first.schedule;
            plans.push(CostedPlan { what, hints, model, chosen, schedule });
        }
    }
    if !plans.iter().any(|plan| plan.chosen) {
        plans.insert(0, first);
    }
    Ok(plans)
}

/// Returns hints that determine a plan completely, for each plan that `hints` permits; the default
/// plan first.
fn open_plans(hints: Hints) -> Vec<(String, Hints)> {
    let default_plan = PlanOverride { disable_search: true, ..hints.plan };
    let usual = hints.plan(default_plan);
    let mut open = vec![("usual".to_owned(), usual)];
    if hints.num_warps.is_none() {
        open.extend([4, 8, 16].map(|warps| (format!("{warps} warps"), usual.num_warps(warps))));
    }
    if hints.num_warps.is_none_or(|warps| warps == 4) {
        let apart = usual.num_warps(4).plan(PlanOverride { disable_pingpong: true, ..default_plan });
        open.push(("4 warps, no ping-pong".to_owned(), apart));
    }
    if hints.num_stages.is_none() {
        open.extend([2, 3, 4].map(|stages| (format!("{stages} stages"), usual.num_stages(stages))));
    }
    if hints.occupancy.is_none() {
        open.push(("occupancy 2".to_owned(), usual.occupancy(2)));
    }
    open.push(("no TMA".to_owned(), usual.plan(PlanOverride { disable_tma_loads: true, ..default_plan })));
    open
}

impl Launch<'_> {
    /// Returns the plan that the ptx back end selects for this launch on a GPU of a target. With
    /// `all`, also the other plans that the hints permit. Each has its time by the cost model, and
    /// the hints that select it. For the calibration of the model.
    ///
    /// # Errors
    /// As for [`Inspection`](crate::Inspection); [`crate::Error::Argument`] for a grid beyond the
    /// limits.
    #[doc(hidden)]
    #[track_caller]
    pub fn plans<K, A, P>(&self, kernel: K, args: A, target: Target, all: bool) -> Result<Vec<CostedPlan>>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        check_hints(self.hints)?;
        let grid = self.grid.checked(Backend::Ptx)?;
        let args = Arguments::new(args);
        let bound = Bound::new(&kernel, &args);
        let call = bound.call();
        let (module, _) = traced(&call)?;
        let mut words = WordBuffer::default();
        call.args().pack(&mut |word| words.push(word));
        plans(&module, target, self.hints, LaunchInfo { grid, params: words.words() }, all)
    }
}
