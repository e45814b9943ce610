//! Plan search: compares the default plan of a kernel with alternatives by the cost model.
//!
//! Candidates: half and twice the warps (hence also with or without ping-pong), and no TMA loads
//! except for persistent forms, in which loads by threads take longer.
//! If the default plan has no producer, a further candidate has loaded left operands of loops in
//! registers, which leaves more shared memory for stages.
//!
//! The search runs on sm_90a, where the model is calibrated (`cost/machine_model`), for kernels
//! with an asynchronous MMA in a loop. With `CUTLET_REMARKS` more plans are costed and reported:
//! numbers of stages, two CTAs per SM, no ping-pong.
//!
//! A candidate is selected if it needs less by [`MIN_SPEEDUP`]. The margin covers the error of the
//! model; the default plan is measured. The number of CTAs depends on the grid, and half of the
//! registers are too few for a single CTA. So a candidate that gains by occupancy is selected only
//! if it is as fast at the default occupancy. Kernels that read the number of CTAs (persistent
//! kernels) are compared at the default occupancy. The persistent form of a kernel is an exception:
//! its launches have several tile blocks for each CTA, and its number of CTAs follows the
//! occupancy. There, an occupancy of two is a candidate, too.

use crate::util::collect::CollectVec as _;
use std::borrow::Cow;

use super::super::cost::{Cost, CostInput, LaunchInfo, machine};
use super::super::{CompileOptions, Optimization, PlanSearch};
use super::kernel_plan::Plan;
use super::num_warps;
use super::planned_kernel::{PlannedKernel, Verification};
use crate::ir::{Attr, AttrKind, Entry, Module, OpId, Opcode, RegionTree, hint_key};
use crate::target::Target;

/// Minimum gain of a selected candidate. For recorded configurations that differ only in their
/// warps (`benches/compare/h200.tune`, `benches/schedules --records --verbose`) the model predicts
/// up to 10 % where nothing is gained (MMAs of tf32).
const MIN_SPEEDUP: f64 = 0.15;
/// Minimum gain of a selected candidate whose MMAs are all asynchronous, if the default plan has
/// synchronous ones. The model errs by more there: for half of the values of a gated delta rule
/// on an H100 it predicts 51 %, and 40 % are measured.
const MIN_SPEEDUP_OF_ASYNC_MMAS: f64 = 0.3;
/// Minimum utilization of a resource that limits a plan.
const MIN_UTILIZATION: f64 = 0.75;

/// Hints that determine how tiles are loaded.
const LOAD_HINTS: [&str; 4] = [hint_key::NUM_STAGES, hint_key::WARP_SPECIALIZE, "latency", "allow_tma"];

/// Result of the plan search.
pub struct SearchResult {
    pub options: CompileOptions,
    /// One line per considered plan.
    pub considered: Vec<String>,
}

/// A candidate plan.
struct Candidate {
    what: String,
    options: CompileOptions,
    /// The search may select it.
    selectable: bool,
}

/// Evaluation of a candidate.
enum CandidateResult {
    Costed(Box<CandidateCost>),
    Rejected(String),
}

/// Cost of a candidate.
struct CandidateCost {
    cost: Cost,
    /// Cycles per CTA at no higher occupancy than that of the default plan.
    at_default_occupancy: f64,
    /// Warps of a ping-pong group, and number of groups.
    warp_shape: (u32, u32),
    /// The model is calibrated for its MMAs.
    model_is_trusted: bool,
    /// Some MMAs are synchronous.
    has_sync_mmas: bool,
    /// A producer issues loads.
    has_producer: bool,
}

impl CandidateCost {
    /// Returns the minimum gain of a candidate over this default plan. `None` if the model does not
    /// allow a selection.
    fn min_speedup(&self) -> Option<f64> {
        match (self.model_is_trusted, self.has_sync_mmas) {
            (true, _) => Some(MIN_SPEEDUP),
            (false, true) => Some(MIN_SPEEDUP_OF_ASYNC_MMAS),
            (false, false) => None,
        }
    }

    /// Returns the cost by which it is compared with the default plan, of `default` cycles.
    fn compared_cost(&self, default: f64, ctas: CtaCount) -> Option<f64> {
        let cycles = self.cost.cycles_per_cta();
        match ctas {
            CtaCount::Fixed => Some(self.at_default_occupancy),
            CtaCount::Grid => Some(cycles).filter(|_| self.at_default_occupancy < default * (1.0 + MIN_SPEEDUP)),
            CtaCount::Resident => Some(cycles),
        }
    }
}

/// Number of CTAs of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CtaCount {
    /// One for each tile block.
    Grid,
    /// A number that the kernel reads: its user's persistent CTAs.
    Fixed,
    /// The number that runs at a time: a persistent form.
    Resident,
}

impl CtaCount {
    fn new(module: &Module, entry: &Entry, options: &CompileOptions) -> CtaCount {
        match is_persistent_kernel(module, entry) {
            _ if options.has_many_blocks => CtaCount::Resident,
            true => CtaCount::Fixed,
            false => CtaCount::Grid,
        }
    }
}

/// Selects the plan of an entry.
pub fn search(module: &Module, entry: &Entry, target: Target, options: &CompileOptions) -> SearchResult {
    let default = CompileOptions { plan_search: PlanSearch::Off, ..*options };
    let mut chosen = SearchResult { options: default, considered: Vec::new() };
    let is_calibrated = target == Target::SM_90A;
    let verbose = options.plan_search == PlanSearch::Report;
    let is_enabled = options.optimizations.contains(Optimization::PlanSearch) && options.plan_search != PlanSearch::Off;
    if !is_enabled || !(is_calibrated || verbose) || !has_mma_in_loop(module) {
        return chosen;
    }
    let warps = num_warps::num_warps(module, entry.body, options);
    let mut candidates = candidates(&default, warps, (is_calibrated, verbose), has_load_hints(module, entry));
    if candidates.is_empty() {
        return chosen;
    }
    let CandidateResult::Costed(first) = evaluate(module, (target, &default), None) else { return chosen };
    if default.tma && !first.has_producer {
        // The memory of loaded left operands may be that of the stages.
        let options = CompileOptions { loaded_operands_in_registers: true, ..default };
        let what = "loaded left operands in registers".to_owned();
        candidates.push(Candidate { what, options, selectable: is_calibrated });
    }
    // No plan is faster if a resource is nearly always busy with work that is independent of the
    // plan.
    let min_speedup = first.min_speedup();
    if !verbose && min_speedup.is_none_or(|least| first.cost.lower_bound_fraction > 1.0 - least) {
        return chosen;
    }
    let resident_ctas = Some(first.cost.resident_ctas);
    let all = candidates.iter().map(|candidate| evaluate(module, (target, &candidate.options), resident_ctas));
    let results: Vec<CandidateResult> = all.collect_vec();
    let (default, ctas) = (first.cost.cycles_per_cta(), CtaCount::new(module, entry, options));
    let compared = candidates.iter().zip(&results).map(|(candidate, result)| match result {
        CandidateResult::Costed(other) if other.model_is_trusted && candidate.selectable => {
            other.compared_cost(default, ctas)
        }
        _ => None,
    });
    let best = min_speedup.and_then(|least| cheapest(default, least, compared)).map(|(index, _)| index);
    if let Some(index) = best {
        chosen.options = candidates[index].options;
    }
    if verbose {
        chosen.considered = considered(&first, &candidates, &results, best);
    }
    chosen
}

/// Returns one line per considered plan. `best`: index of the selected candidate, if it is not the
/// default plan.
fn considered(
    first: &CandidateCost,
    all: &[Candidate],
    results: &[CandidateResult],
    best: Option<usize>,
) -> Vec<String> {
    let taken = match best.map(|index| &results[index]) {
        Some(CandidateResult::Costed(best)) => best.cost.cycles_per_cta(),
        _ => first.cost.cycles_per_cta(),
    };
    let form = warps_text(first.warp_shape);
    let mut lines = vec![line(&format!("default ({form})"), &first.cost, (taken, best.is_none()))];
    let mut costs = vec![first.cost.cycles_per_cta()];
    for (index, (candidate, result)) in all.iter().zip(results).enumerate() {
        lines.push(match result {
            // The same schedule.
            CandidateResult::Costed(other) if costs.contains(&other.cost.cycles_per_cta()) => continue,
            CandidateResult::Costed(other) => {
                costs.push(other.cost.cycles_per_cta());
                let form = warps_text(other.warp_shape);
                let named = form.contains(&candidate.what);
                let what = if named { form } else { format!("{}, {form}", candidate.what) };
                line(&what, &other.cost, (taken, best == Some(index)))
            }
            CandidateResult::Rejected(why) => format!("{}: {why}", candidate.what),
        });
    }
    lines
}

/// Returns true if a kernel reads the number of CTAs.
fn is_persistent_kernel(module: &Module, entry: &Entry) -> bool {
    let mut counts = false;
    module.walk(entry.body, &mut |id| counts |= module.op(id).code == Opcode::GetNumTileBlocks);
    counts
}

/// Returns index and cost of the cheapest candidate, if it gains enough.
fn cheapest(default: f64, min_speedup: f64, compared: impl Iterator<Item = Option<f64>>) -> Option<(usize, f64)> {
    let costs = compared.enumerate().filter_map(|(index, cost)| Some((index, cost?)));
    costs.filter(|(_, cost)| *cost < default * (1.0 - min_speedup)).min_by(|a, b| a.1.total_cmp(&b.1))
}

fn warps_text((warps, groups): (u32, u32)) -> String {
    if groups > 1 { format!("{groups} x {warps} warps (ping-pong)") } else { format!("{warps} warps") }
}

/// Returns the line of a plan, with its difference to the selected one.
fn line(what: &str, cost: &Cost, (taken, this): (f64, bool)) -> String {
    let busiest = cost.busy.iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, share)| *share >= MIN_UTILIZATION);
    let waits = match busiest {
        Some((unit, share)) => format!("{unit} {:.0} % utilized", 100.0 * share),
        None => "latency-bound".to_owned(),
    };
    let what = format!("{what}: {:.0} cycles per block, {waits}", cost.cycles_per_cta());
    if this {
        return format!("{what}; selected");
    }
    let more = 100.0 * (cost.cycles_per_cta() / taken - 1.0);
    let margin = 100.0 * MIN_SPEEDUP;
    match more {
        ..0.0 if -more < margin => format!("{what}; {:.1} % less, within the margin of {margin:.0} %", -more),
        ..0.0 => format!(
            "{what}; {:.1} % less, selected by hints alone: the model may err, or more blocks are required",
            -more
        ),
        _ => format!("{what}; {more:.1} % more"),
    }
}

/// Returns true if a loop contains MMAs.
pub fn has_mma_in_loop(module: &Module) -> bool {
    let Some(entry) = module.entries.first() else { return false };
    let regions = RegionTree::new(module, entry.body);
    regions.ops().iter().any(|&id| module.op(id).code.is_mma() && regions.enclosing_loop(id).is_some())
}

/// Returns true if a hint determines how tiles are loaded.
fn has_load_hints(module: &Module, entry: &Entry) -> bool {
    let mut says = false;
    module.walk(entry.body, &mut |id| {
        let Some(Attr::Hints(hints)) = module.op(id).attr(AttrKind::Hints) else { return };
        says |= hints.0.iter().flat_map(|(_, all)| all).any(|(key, _)| LOAD_HINTS.contains(&&**key));
    });
    says
}

/// Returns the candidates that the options leave open. `is_calibrated`: the model is calibrated for
/// the target. Those that are not selectable are for remarks alone: other numbers of stages, no
/// ping-pong.
fn candidates(
    default: &CompileOptions,
    warps: u32,
    (is_calibrated, verbose): (bool, bool),
    hinted: bool,
) -> Vec<Candidate> {
    let mut all = Vec::new();
    let mut add = |what: String, options: CompileOptions, selectable: bool| {
        if selectable || verbose {
            all.push(Candidate { what, options, selectable });
        }
    };
    if default.num_warps.is_none() {
        for other in [warps / 2, 2 * warps].into_iter().filter(|other| (4..=16).contains(other)) {
            add(format!("{other} warps"), CompileOptions { num_warps: Some(other), ..*default }, is_calibrated);
        }
    }
    if default.pingpong {
        let num_warps = Some(default.num_warps.unwrap_or(4.min(warps)));
        add("no ping-pong".to_owned(), CompileOptions { num_warps, pingpong: false, ..*default }, false);
    }
    if default.num_stages.is_none() {
        for stages in [2, 3] {
            add(format!("{stages} stages"), CompileOptions { num_stages: Some(stages), ..*default }, false);
        }
    }
    if default.occupancy.is_none() {
        let occupancy = Some(2);
        let selectable = is_calibrated && default.has_many_blocks;
        add("occupancy 2".to_owned(), CompileOptions { occupancy, ..*default }, selectable);
    }
    if default.tma && is_calibrated {
        let selectable = !hinted && default.num_stages.is_none() && !default.has_many_blocks;
        add("no TMA".to_owned(), CompileOptions { tma: false, ..*default }, selectable);
    }
    all
}

/// Evaluates a plan. `default`: resident CTAs of the default plan.
fn evaluate(module: &Module, (target, options): (Target, &CompileOptions), default: Option<u32>) -> CandidateResult {
    let plan = Plan::new(Cow::Borrowed(module), target, *options);
    let (module, body) = (&*plan.module, plan.entry().body);
    let kernel = PlannedKernel::scheduled(module, plan.layouts, options, Verification::Off);
    if let Some(problem) = kernel.errors.first() {
        return CandidateResult::Rejected(problem.message.clone());
    }
    let (context, schedule) = (&kernel.info, &*kernel.schedule);
    // The grid may have no more CTAs than those that a kernel with a producer is planned for.
    let ctas_per_sm = match schedule.warp_spec {
        Some(_) => context.warp_specialized_occupancy(),
        None => kernel.ctas_per_sm(),
    };
    let mut efforts =
        context.inference.mma_plans.values().flatten().map(|plan| (plan.is_asynchronous(), plan.effort()));
    // Records and model differ by more if threads fetch operands or add sums themselves. There are
    // no records of 8-bit products without sums by threads.
    let left = |id: &OpId| module.dtype(module.op(*id).operands[0]).storage_bits();
    let narrow = context.inference.mma_plans.keys().any(|id| left(id) == 8);
    let has_sync_mmas = !narrow && efforts.clone().any(|(is_async, _)| !is_async);
    let model_is_trusted =
        !narrow && efforts.all(|(is_async, effort)| is_async && effort.additions == 0 && effort.words == 0);
    let needed = context.mma_registers_with_partial_sums();
    let there = context.consumer_registers(schedule.warp_spec.is_some(), ctas_per_sm);
    if needed > there {
        return CandidateResult::Rejected(format!(
            "matrix products need {needed} registers per thread, and {there} are available"
        ));
    }
    if options.occupancy.is_some_and(|requested| requested > ctas_per_sm) {
        return CandidateResult::Rejected("registers or shared memory do not allow it".to_owned());
    }
    let cost_of = |ctas_per_sm| {
        let launched = LaunchInfo::default();
        CostInput { context, body, schedule, ctas_per_sm, launched }.cost(machine(target))
    };
    let fewer = default.filter(|&default| default < ctas_per_sm);
    let pingpong_groups = schedule.warp_spec.as_ref().map_or(1, |roles| roles.pingpong_groups());
    let warp_shape = (context.inference.num_warps as u32, pingpong_groups);
    let costs = cost_of(ctas_per_sm).and_then(|cost| {
        let at_default_occupancy =
            fewer.map_or(Some(cost.cycles_per_cta()), |fewer| Some(cost_of(fewer)?.cycles_per_cta()))?;
        let has_producer = schedule.warp_spec.is_some();
        let properties =
            CandidateCost { cost, at_default_occupancy, warp_shape, model_is_trusted, has_sync_mmas, has_producer };
        Some(Box::new(properties))
    });
    costs.map_or_else(
        || CandidateResult::Rejected("deadlock: the partitions wait for each other".to_owned()),
        CandidateResult::Costed,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ptx::tests::matmul;
    use crate::dtype::DType;

    fn chosen(module: &Module, target: Target, options: CompileOptions) -> SearchResult {
        search(module, &module.entries[0], target, &options)
    }

    #[test]
    fn only_plans_cheaper_by_the_margin_are_selected() {
        let of = |costs: &[Option<f64>]| cheapest(100.0, MIN_SPEEDUP, costs.iter().copied()).map(|(index, _)| index);
        assert_eq!(of(&[Some(101.0), None, Some(100.0 - 99.0 * MIN_SPEEDUP)]), None);
        assert_eq!(of(&[None, Some(100.0 - 101.0 * MIN_SPEEDUP)]), Some(1));
        assert_eq!(of(&[Some(70.0), Some(60.0), None, Some(65.0)]), Some(1));
    }

    #[test]
    fn more_blocks_of_a_multiprocessor_count_only_where_a_plan_is_as_good_without() {
        let plan = |each: f64, at_default_occupancy| {
            let (loops, busy, resident_ctas) = (Vec::new(), Vec::new(), 4);
            let cost =
                Cost { cta_cycles: 4.0 * each, resident_ctas, loops, busy, lower_bound_fraction: 0.0, launch: None };
            CandidateCost {
                cost,
                at_default_occupancy,
                warp_shape: (4, 1),
                model_is_trusted: true,
                has_sync_mmas: false,
                has_producer: true,
            }
        };
        assert_eq!(plan(60.0, 110.0).compared_cost(100.0, CtaCount::Grid), Some(60.0));
        assert_eq!(plan(60.0, 130.0).compared_cost(100.0, CtaCount::Grid), None);
        // The grid determines the number of persistent CTAs.
        assert_eq!(plan(60.0, 130.0).compared_cost(100.0, CtaCount::Fixed), Some(130.0));
        // Those of a persistent form follow the occupancy.
        assert_eq!(plan(60.0, 130.0).compared_cost(100.0, CtaCount::Resident), Some(60.0));
    }

    #[test]
    fn remarks_name_plans_with_their_costs() {
        let verbose = CompileOptions { plan_search: PlanSearch::Report, ..CompileOptions::default() };
        let module = matmul(DType::F16, DType::F32, [128, 128, 64]);
        let SearchResult { options, considered } = chosen(&module, Target::SM_90A, verbose);
        assert_eq!(options, CompileOptions { plan_search: PlanSearch::Off, ..verbose });
        let line =
            |part: &str| considered.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{considered:?}"));
        assert!(line("default (8 warps)").ends_with("; selected"), "{considered:?}");
        assert!(line("2 stages").ends_with(" % more"), "{considered:?}");
        assert!(line("4 warps").contains(" cycles per block"), "{considered:?}");
        // Each schedule once: there is no loop over tiles, so that there is no ping-pong to leave
        // out.
        assert!(considered.iter().all(|line| !line.contains("no ping-pong")), "{considered:?}");
    }

    #[test]
    fn hints_and_kernels_without_mmas_keep_the_default_plan() {
        let module = matmul(DType::F16, DType::F32, [128, 128, 64]);
        let hints =
            CompileOptions { num_warps: Some(16), plan_search: PlanSearch::Report, ..CompileOptions::default() };
        let SearchResult { options, considered } = chosen(&module, Target::SM_90A, hints);
        assert_eq!(options.num_warps, Some(16));
        assert!(
            considered.iter().all(|line| line.contains("16 warps") || line.starts_with("occupancy 2")),
            "{considered:?}"
        );
        let mut plain = crate::backend::ptx::tests::Kernel::new("plain");
        let x = plain.array(DType::F32, 1, true);
        let view = plain.partition(&x, &[1024], &[0]);
        let index = plain.bids()[0];
        let tile = plain.load(view, &[index]);
        plain.store(tile, view, &[index]);
        let verbose = CompileOptions { plan_search: PlanSearch::Report, ..CompileOptions::default() };
        assert!(chosen(&plain.finish(), Target::SM_90A, verbose).considered.is_empty());
    }
}
