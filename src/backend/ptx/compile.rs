//! Pipeline of the back end: a verified, optimized module of one entry becomes PTX.
//!
//! [`compile`] and the functions for tools and tests run the same stages:
//! 1. `prepare`: ops without instructions are expanded;
//! 2. `PlanStrategies::new`: the strategies for planning the kernel, the preferred one first;
//! 3. `PlanStrategies::next_plan`: data partitions, extents in powers of two, plan search, layouts;
//! 4. `PlannedKernel::scheduled`: the schedule, verified after each of its passes in debug builds;
//! 5. `lower::lower`: instructions;
//! 6. `lower::emit`: the text.
//!
//! A strategy is rejected if a stage fails. [`PlanStrategies`] keeps the reasons, and remarks print
//! them.
//!
//! # All passes in order
//!
//! From the trace to the text. Options of the kernel and `CUTLET_DISABLE` skip some of them.
//! `optimize_watched` (`launch/compile/mod.rs`), for all back ends:
//! 1. checks: `ir/verify`, `pass/analysis/cluster_exchanges.rs`, `pass/prove/rowwise`;
//! 2. `remove_proved_checks` (`pass/prove/mod.rs`);
//! 3. `split_preconditions` (`pass/instrument/preconditions.rs`);
//! 4. `exact` (`pass/exact`), in exact mode;
//! 5. `assume_to_assert`, `record_accesses`, `record_writes` (`pass/instrument`), with checks;
//! 6. `pass::PIPELINE` (`pass/mod.rs`): `canonicalize`, `cse`, `fold_int_range`, `canonicalize`,
//!    `licm`, `cse`, `dce`, `relax_memory_order` (`pass/transform`).
//!
//! The launch:
//! 7. `wait_first` (`launch/compile/mod.rs`), for programmatic launches;
//! 8. `persistent` (`pass/transform/persistent`), for persistent forms (`launch/compile/ptx.rs`).
//!
//! `prepare`, once for a kernel:
//! 9. `strip_inline_ptx_semantics` (`pass/legalize/inline_ptx.rs`);
//! 10. `expand_bit_reverse` (`pass/transform/bit_reverse.rs`);
//! 11. `expand_scaled_mma` (`pass/legalize/expand_scaled_mma.rs`);
//! 12. `sink_loads` (`pass/transform/sink_loads.rs`);
//! 13. `hoist_factor` (`pass/transform/hoist_factor.rs`);
//! 14. `select_to_branch` (`pass/transform/select_to_branch.rs`).
//!
//! `plan`, for each strategy:
//! 15. `data_partition` (`pass/data_partition`), then `pass::PIPELINE`;
//! 16. `split_extents` (`pass/split_extents`);
//! 17. plan search (`plan/plan_search.rs`), which runs 18 to 27 for each candidate.
//!
//! `Plan::new` (`plan/kernel_plan.rs`):
//! 18. the number of warps (`plan/num_warps.rs`), `rematerialize` (`plan/rematerialize.rs`); if it
//!     changes the module, 20 is omitted;
//! 19. layout inference (`layout_inference/dispatch.rs`), with the plans of MMAs (`mma`);
//! 20. `rewrite_mma_loops` (`plan/mma_loops.rs`):
//!     `register_operands` (`plan/register_operands.rs`),
//!     `thread_local_reduction` (`pass/transform/thread_local_reduction.rs`),
//!     `pipeline_dependent_mma` (`pass/transform/pipeline_dependent_mma.rs`), `pass::PIPELINE`, and
//!     layout inference again.
//!
//! `PlannedKernel::scheduled` (`plan/planned_kernel.rs`):
//! 21. offsets of block-local arrays, and of mbarriers with a wait limit;
//! 22. `select_tma_stores` (`schedule/store/tma_store.rs`);
//! 23. `plan_warp_specialization` (`schedule/warp_specialize/plan.rs`), with clusters, stage counts
//!     and ping-pong;
//! 24. `allocate_staging_buffers` (`schedule/store/tma_store.rs`); without a producer
//!     `select_privatized_atomics` (`schedule/store/privatize.rs`);
//! 25. steps (`schedule/build.rs`), `insert_waits` (`schedule/pipeline/mma_waits.rs`),
//!     `insert_sub_steps` (`schedule/sub_steps/walk.rs`), again with fewer hoisted operands and
//!     double buffers if they cost other steps shared memory;
//! 26. `overlap_work_with_mmas` (`schedule/pipeline/mma_overlap.rs`);
//! 27. `insert_try_waits` (`schedule/pipeline/try_wait.rs`), `order_mmas`
//!     (`schedule/pipeline/mma_order.rs`), which calls `order_exponentials`
//!     (`schedule/pipeline/exp_order.rs`). Verifiers run after 25, 26 and each of 27.
//!
//! `lower` and `emit` (`lower/driver.rs`):
//! 28. instructions of each step (`lower/dispatch.rs`);
//! 29. workarounds (`workarounds/mod.rs`);
//! 30. multiplications to 64 bits (`mul_wide.rs`);
//! 31. `.minnctapersm` (`register_pressure.rs`);
//! 32. text (`isa/emit.rs`).
//!
//! `compile_form` (`launch/compile/ptx.rs`) repeats 9 to 32 with one CTA per SM after spills.
//! `relax_floats` (`pass/transform/relax_floats.rs`) runs for a remark alone.
//! `Inspection::passes` shows the results of 6. No function shows all of them.

use crate::util::collect::CollectVec as _;
use std::borrow::Cow;

use super::cost::{CostInput, LaunchInfo, machine};
use super::plan::kernel_plan::Plan;
use super::plan::planned_kernel::{PlannedKernel, Verification};
use super::plan::{num_warps, plan_search};
use super::remarks::CodeRemarks;
#[cfg(any(test, feature = "_suite"))]
use super::schedule::{KernelInfo, Schedule};
#[cfg(any(test, feature = "_suite"))]
use super::tensor_map::TensorMap;
use super::{CompileOptions, Compiled, Optimization, PlanSearch, lower};
use crate::error::{Diagnostic, Error, Result};
use crate::ir::Module;
use crate::pass;
use crate::target::Target;

/// The result of a stage, or the reasons of its rejection.
type StageResult<T> = std::result::Result<T, Vec<Diagnostic>>;

/// Compiles the only entry of a verified and optimized module.
///
/// # Errors
/// [`Error::Unsupported`] names each op that cannot be lowered for this target, at the user's
/// source location.
pub fn compile(module: &Module, target: Target, options: &CompileOptions) -> Result<Compiled> {
    let (module, positive_params) = prepare_for_launch(module, options);
    let mut strategies = PlanStrategies::new(&module, target, options)?;
    while let Some(plan) = strategies.next_plan() {
        let (planned, entry) = (&*plan.module, &plan.module.entries[0]);
        let name = symbol(&entry.name);
        let kernel = PlannedKernel::scheduled(planned, plan.layouts, &plan.options, Verification::EachPass);
        let lowering = lower::lower(kernel, entry, &name);
        match lower::emit(lowering, entry, &name, &plan.options) {
            Ok(mut compiled) => {
                compiled.positive_params = positive_params;
                strategies.explain(&mut compiled.remarks);
                compiled.remarks.fast_float_mode = fast_float_mode(&module, target, options);
                return Ok(compiled);
            }
            Err(problems) => strategies.reject(problems),
        }
    }
    Err(strategies.into_error())
}

/// Minimum gain of the fast float mode that a remark states.
const MIN_FAST_GAIN: f64 = 0.03;

/// Returns the gain of `FloatMode::fast()` for a kernel with MMAs in loops, by the cost model.
/// Computed for remarks alone.
fn fast_float_mode(module: &Module, target: Target, options: &CompileOptions) -> Option<String> {
    let is_calibrated = target == Target::SM_90A;
    if options.plan_search != PlanSearch::Report || !is_calibrated || !plan_search::has_mma_in_loop(module) {
        return None;
    }
    let relaxed = pass::relax_floats(module)?;
    let options = CompileOptions { plan_search: PlanSearch::Calibrated, ..*options };
    let cycles = |module: &Module| {
        let cost = &mut |input: &CostInput<'_, '_>| input.cost(machine(target)).map(|cost| cost.cycles_per_cta());
        with_plan(module, target, &options, cost).ok().flatten()
    };
    let (full, fast) = (cycles(module)?, cycles(&relaxed)?);
    let gain = 1.0 - fast / full;
    (gain >= MIN_FAST_GAIN).then(|| {
        let percent = 100.0 * gain;
        format!("{percent:.0} % less time with `ct::with_mode(FloatMode::fast(), ..)`, which changes rounding and subnormal numbers")
    })
}

/// Calls `inspect` with the plan from which [`compile`] generates code, to be costed, without
/// properties of a launch. No code is made.
///
/// # Errors
/// Those of [`compile`] that a plan has.
pub(crate) fn with_plan<T>(
    module: &Module,
    target: Target,
    options: &CompileOptions,
    inspect: &mut dyn FnMut(&CostInput<'_, '_>) -> T,
) -> Result<T> {
    let module = prepare(module, options);
    let mut strategies = PlanStrategies::new(&module, target, options)?;
    while let Some(plan) = strategies.next_plan() {
        let body = plan.entry().body;
        let kernel = PlannedKernel::scheduled(&plan.module, plan.layouts, &plan.options, Verification::Off);
        if kernel.errors.is_empty() {
            let (context, schedule, ctas_per_sm) = (&kernel.info, &*kernel.schedule, kernel.ctas_per_sm());
            let launched = LaunchInfo::default();
            return Ok(inspect(&CostInput { context, body, schedule, ctas_per_sm, launched }));
        }
        strategies.reject(kernel.errors);
    }
    Err(strategies.into_error())
}

/// A schedule, with the kernel that it belongs to.
#[cfg(any(test, feature = "_suite"))]
pub(crate) struct Scheduled<'a> {
    /// The kernel as it is lowered.
    pub context: &'a KernelInfo<'a>,
    /// Its entry.
    pub body: crate::ir::BlockId,
    pub schedule: &'a Schedule,
    /// Tensor maps that the kernel receives.
    pub maps: Vec<TensorMap>,
}

/// Calls `inspect` with the schedule from which [`compile`] generates code. Inline PTX does not
/// replace other ops, so that the module defines the semantics of the steps.
///
/// # Errors
/// As [`compile`].
#[cfg(any(test, feature = "_suite"))]
pub(crate) fn with_schedule<T>(
    module: &Module,
    target: Target,
    options: &CompileOptions,
    inspect: &mut dyn FnMut(&Scheduled<'_>) -> T,
) -> Result<T> {
    let (module, _) = simplify_mma_loops(expand_scaled_mma(Cow::Borrowed(module)), options);
    let mut strategies = PlanStrategies::new(&module, target, options)?;
    while let Some(plan) = strategies.next_plan() {
        let (planned, entry) = (&*plan.module, &plan.module.entries[0]);
        let kernel = PlannedKernel::scheduled(planned, plan.layouts, &plan.options, Verification::EachPass);
        let lowering = lower::lower(kernel, entry, "kernel");
        if lowering.problems().is_empty() {
            let (context, maps) = (lowering.context(), lowering.maps());
            return Ok(inspect(&Scheduled { context, body: entry.body, schedule: lowering.schedule(), maps }));
        }
        strategies.reject(lowering.problems().to_vec());
    }
    Err(strategies.into_error())
}

/// Expands ops that no instructions are selected for, strips the semantics of inline PTX, and
/// simplifies loops with MMAs.
fn prepare<'a>(module: &'a Module, options: &CompileOptions) -> Cow<'a, Module> {
    prepare_for_launch(module, options).0
}

/// Returns the module of [`prepare`], and the parameters that it assumes to be positive.
fn prepare_for_launch<'a>(module: &'a Module, options: &CompileOptions) -> (Cow<'a, Module>, Vec<u32>) {
    let module = or_same(Cow::Borrowed(module), pass::strip_inline_ptx_semantics);
    simplify_mma_loops(expand_scaled_mma(or_same(module, pass::expand_bit_reverse)), options)
}

/// Minimum number of elements of a select that becomes a branch.
const MIN_SELECT_ELEMENTS: i64 = 2048;

/// Loads tiles after loops that do not use them, hoists factors out of reductions, and computes
/// masks in the iterations that need them. Returns the parameters that are assumed to be positive,
/// too.
fn simplify_mma_loops<'a>(mut module: Cow<'a, Module>, options: &CompileOptions) -> (Cow<'a, Module>, Vec<u32>) {
    let mut positive_params = Vec::new();
    if options.optimizations.contains(Optimization::SinkLoads) {
        module = or_same(module, pass::sink_loads);
    }
    if options.optimizations.contains(Optimization::HoistFactor) {
        let factors = factors(options.assumes_positive_params);
        positive_params = pass::positive_params(&module, factors);
        module = or_same(module, |module| pass::hoist_factor(module, factors));
    }
    if options.optimizations.contains(Optimization::SelectToBranch) {
        module = or_same(module, |module| pass::select_to_branch(module, MIN_SELECT_ELEMENTS));
    }
    (module, positive_params)
}

/// Returns the factors that are hoisted out of reductions.
fn factors(assumes_positive_params: bool) -> pass::Factors {
    if assumes_positive_params { pass::Factors::PositiveParams } else { pass::Factors::Constants }
}

/// Expands MMAs with scaled operands.
fn expand_scaled_mma(module: Cow<'_, Module>) -> Cow<'_, Module> {
    or_same(module, |module| pass::expand_scaled_mma(module, false))
}

/// The result of a pass that returns `None` if it changes nothing.
fn or_same(module: Cow<'_, Module>, pass: impl FnOnce(&Module) -> Option<Module>) -> Cow<'_, Module> {
    pass(&module).map_or(module, Cow::Owned)
}

/// Strategy for planning a kernel.
#[derive(Clone, Copy, Debug)]
struct Strategy {
    /// Consumer groups that each compute a share of the rows of a tile.
    data_partitions: u32,
    /// TMA and warp specialization are available.
    tma: bool,
    /// The plan search selects what the options leave open.
    search: bool,
}

impl Strategy {
    /// The strategies for a module, in the order of preference: with data partitions, without, and
    /// without TMA; each first with the plan that the search selects, then with the default plan.
    fn in_order(module: &Module, options: &CompileOptions) -> Vec<Strategy> {
        let body = module.entries[0].body;
        let requested = num_warps::requested_data_partitions(module, body, options);
        let mut kinds = vec![(1, options.tma)];
        if requested > 1 {
            kinds.insert(0, (requested, options.tma));
        }
        // Data partitions are consumer groups, which need a producer.
        if options.tma && pass::data_partition::count(module, body) == 1 {
            kinds.push((1, false));
        }
        let searches: &[bool] = if options.plan_search == PlanSearch::Off { &[false] } else { &[true, false] };
        let all =
            |(data_partitions, tma)| searches.iter().map(move |&search| Strategy { data_partitions, tma, search });
        kinds.into_iter().flat_map(all).collect_vec()
    }
}

/// The plans of a kernel, one for each strategy, and the reasons against those that a stage
/// rejects.
struct PlanStrategies<'a> {
    module: &'a Module,
    target: Target,
    options: &'a CompileOptions,
    strategies: std::vec::IntoIter<Strategy>,
    /// The strategy and the options of the last plan.
    last: Option<(Strategy, CompileOptions)>,
    /// The candidates of the plan search, one line each.
    considered: Vec<String>,
    /// The rejected strategies, each with the reason of its rejection.
    rejected: Vec<(Strategy, Vec<Diagnostic>)>,
}

impl<'a> PlanStrategies<'a> {
    /// Returns the strategies for a module of one entry.
    fn new(module: &'a Module, target: Target, options: &'a CompileOptions) -> Result<PlanStrategies<'a>> {
        if module.entries.len() != 1 {
            let message = format!("a module of one entry is needed, not of {}", module.entries.len());
            return Err(Error::Unsupported(vec![Diagnostic::new(message, None)]));
        }
        let strategies = Strategy::in_order(module, options).into_iter();
        Ok(PlanStrategies {
            module,
            target,
            options,
            strategies,
            last: None,
            considered: Vec::new(),
            rejected: Vec::new(),
        })
    }

    /// Plans the kernel by the next strategy that has a plan.
    fn next_plan(&mut self) -> Option<Plan<'a>> {
        loop {
            let strategy = self.strategies.next()?;
            let plan = match plan(self.module, self.target, self.options, strategy, &mut self.considered) {
                Ok(plan) => plan,
                Err(problems) => {
                    self.rejected.push((strategy, problems));
                    continue;
                }
            };
            // The search may select the default plan, which is rejected only once.
            let is_same = |&(last, options): &(Strategy, CompileOptions)| {
                last.data_partitions == strategy.data_partitions && options == plan.options
            };
            if strategy.search || !self.last.as_ref().is_some_and(is_same) {
                self.last = Some((strategy, plan.options));
                return Some(plan);
            }
        }
    }

    /// Records the reasons against the last plan.
    fn reject(&mut self, problems: Vec<Diagnostic>) {
        self.rejected.extend(self.last.map(|(strategy, _)| (strategy, problems)));
    }

    /// Returns the error of a kernel without an accepted plan.
    fn into_error(mut self) -> Error {
        Error::Unsupported(self.rejected.pop().map(|(_, problems)| problems).unwrap_or_default())
    }

    /// Adds to the remarks of the last plan why it was selected.
    fn explain(self, remarks: &mut CodeRemarks) {
        remarks.data_partition_rejected = self.why_not_partitioned();
        remarks.tma_rejected = self.why_no_tma();
        remarks.plans_considered = self.considered;
    }

    /// The reason why no tile is divided, if the options request a number of warps.
    fn why_not_partitioned(&self) -> Option<String> {
        let is_divided = |strategy: &Strategy| strategy.data_partitions > 1;
        self.options.num_warps?;
        (!is_divided(&self.last?.0)).then(|| self.reason(is_divided))?
    }

    /// The reason why the kernel uses neither TMA nor warp specialization, if the options allow
    /// them.
    fn why_no_tma(&self) -> Option<String> {
        let (strategy, options) = self.last?;
        if strategy.tma && !options.tma {
            return Some("by the cost model copies by threads take less time".to_owned());
        }
        (self.options.tma && !strategy.tma)
            .then(|| self.reason(|strategy| strategy.tma && strategy.data_partitions == 1))?
    }

    /// The first problem of the last rejected strategy of a kind.
    fn reason(&self, is_of_kind: impl Fn(&Strategy) -> bool) -> Option<String> {
        let (_, problems) = self.rejected.iter().rev().find(|(strategy, _)| is_of_kind(strategy))?;
        problems.first().map(ToString::to_string)
    }
}

/// Plans a kernel by a strategy. `considered` receives the candidates of a plan search.
fn plan<'a>(
    module: &'a Module,
    target: Target,
    options: &CompileOptions,
    strategy: Strategy,
    considered: &mut Vec<String>,
) -> StageResult<Plan<'a>> {
    let module = partition_data(module, target, strategy.data_partitions)?;
    let module = pass::split_extents(&module, true)?.map_or(module, Cow::Owned);
    let mut options = CompileOptions { tma: strategy.tma, ..*options };
    if strategy.search {
        let found = plan_search::search(&module, &module.entries[0], target, &options);
        (options, *considered) = (found.options, found.considered);
    }
    options.plan_search = PlanSearch::Off;
    Ok(Plan::new(module, target, options))
}

/// Divides the rows of the kernel's tiles among consumer groups.
fn partition_data(module: &Module, target: Target, data_partitions: u32) -> StageResult<Cow<'_, Module>> {
    if data_partitions == 1 {
        return Ok(Cow::Borrowed(module));
    }
    if target.arch != 90 || !target.accelerated {
        let message = format!("{target} has no products that run on their own");
        return Err(vec![Diagnostic::new(message, None)]);
    }
    pass::data_partition::run(module, data_partitions).map(Cow::Owned).map_err(|problem| vec![problem])
}

/// A module after every rewriting that precedes instruction selection, wherever it applies. It
/// means the same; for tests. `assumes_positive_params`: parameters of f32 are in the range of
/// `hoist_factor`.
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub fn rewritten(module: &Module, assumes_positive_params: bool) -> Module {
    let mut module = pass::expand_scaled_mma(module, false).unwrap_or_else(|| module.clone());
    if let Ok(Some(cut)) = pass::split_extents(&module, true) {
        module = cut;
    }
    module = super::plan::rematerialize::reloaded(&module, module.entries[0].body, 1).unwrap_or(module);
    module = pass::sink_loads(&module).unwrap_or(module);
    module = pass::hoist_factor(&module, factors(assumes_positive_params)).unwrap_or(module);
    module = pass::select_to_branch(&module, 2).unwrap_or(module);
    pass::pipeline_dependent_mma(&mut module, &|_| true);
    pass::optimize(&mut module);
    module
}

/// Runs the passes that precede a schedule, by each strategy, on a verified and optimized module.
/// Inline PTX keeps its semantics. For tests that record passes.
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub fn run_passes(module: &Module, target: Target, options: &CompileOptions) {
    let (module, _) = simplify_mma_loops(expand_scaled_mma(Cow::Borrowed(module)), options);
    for strategy in Strategy::in_order(&module, options) {
        // A rejected strategy has passes, too.
        let _ = plan(&module, target, options, strategy, &mut Vec::new());
    }
}

/// Runs the passes that precede instruction selection, and that of the fast float mode, each on a
/// verified and optimized module. For tests that record passes.
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub fn run_selection_passes(module: &Module) {
    let passes = [pass::strip_inline_ptx_semantics, pass::expand_bit_reverse, pass::relax_floats];
    passes.iter().for_each(|pass| drop(pass(module)));
}

/// A module after [`rewritten`] as a persistent form, whose last parameters are the extents of the
/// grid; `None` if it has none. For tests.
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub fn rewritten_persistent(module: &Module, assumes_positive_params: bool) -> Option<Module> {
    pass::persistent(&rewritten(module, assumes_positive_params))
}

/// A PTX identifier made from a kernel's name.
fn symbol(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if plain.starts_with(|c: char| c.is_ascii_alphabetic()) { plain } else { format!("kernel_{plain}") }
}
