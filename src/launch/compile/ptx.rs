//! Compilation by the PTX back end: generates text, which the driver assembles unless the machine
//! code is in the disk cache.

use crate::util::collect::CollectVec as _;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::assert_report;
use super::check_hints::{assembly, wants_lines};
use super::executable::{GpuCode, KernelVariant, PersistentVariant, PositiveParams, TmaVariant};
use super::kernel_source::{Source, SourceForm};
use super::tensor_map_cache::TensorMaps;
use crate::backend::ptx::{
    self, CompileOptions, FailureSites, MeasuredEvent, OptimizationSet, ParamKind, StampedSteps,
};
use crate::backend::{Assembly, Hints};
use crate::cache::disk::{ContentHash, DiskCache};
use crate::error::{Error, Result};
use crate::ir::{Global, Module};
use crate::launch::inspect::dump::Dump;
use crate::launch::inspect::remarks::{Remarks, Stages, wanted};
use crate::launch::inspect::spills::Spills;
use crate::launch::inspect::trace::LaunchTrace;
use crate::pass;
use crate::runtime::{
    Cubin, Gpu, GpuKernel, LaunchConfig, assemble, compile_limit, remarks, spills, wants_whole_program, within,
};
use crate::target::Target;
use crate::util::process::PerProcess;
use crate::util::report;

/// Use of tensor maps by a kernel. Without them it has no warp specialization.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TensorMapUse<'a> {
    /// The kernel may have tensor maps.
    Allowed,
    /// The kernel has no tensor maps, for this reason.
    Rejected(&'a str),
}

impl TensorMapUse<'_> {
    /// Returns the choice for a module. A kernel with globals has one form, which must support all
    /// arrays.
    pub fn for_module(module: &Module) -> TensorMapUse<'static> {
        match module.globals.is_empty() {
            true => TensorMapUse::Allowed,
            false => TensorMapUse::Rejected(
                "a kernel with globals has one form, which runs for arrays without tensor maps, too",
            ),
        }
    }

    pub fn are_allowed(self) -> bool {
        matches!(self, TensorMapUse::Allowed)
    }
}

/// Generates PTX for all numbers among the parameters.
pub(crate) fn generate(module: &Module, target: Target, hints: Hints, maps: TensorMapUse<'_>) -> Result<ptx::Compiled> {
    let options = CompileOptions { assumes_positive_params: false, ..options(hints, maps.are_allowed())? };
    generate_by(module, target, &options, maps)
}

fn generate_by(
    module: &Module,
    target: Target,
    options: &CompileOptions,
    maps: TensorMapUse<'_>,
) -> Result<ptx::Compiled> {
    let mut code = ptx::compile(module, target, options)?;
    if let TensorMapUse::Rejected(reason) = maps {
        code.remarks.tma_rejected = Some(reason.to_owned());
    }
    if let Some(what) = code.remarks.spill_warning(OVERFULL) {
        warn_once(&code.entry, &what);
    }
    Ok(code)
}

/// Returns the schedule of the PTX as text, without the values that are computed at their uses.
pub(crate) fn schedule(module: &Module, target: Target, hints: Hints, tma: bool) -> Result<String> {
    full_schedule(module, target, hints, tma).map(|text| ptx::schedule::without_deferred(&text))
}

/// Returns the complete schedule of the PTX as text.
pub(crate) fn full_schedule(module: &Module, target: Target, hints: Hints, tma: bool) -> Result<String> {
    schedule_by(module, target, options(hints, tma)?)
}

fn schedule_by(module: &Module, target: Target, options: CompileOptions) -> Result<String> {
    Ok(ptx::compile(module, target, &CompileOptions { schedule: true, ..options })?.schedule)
}

/// Returns the schedule of the PTX as an SVG image, simulated by the cost model.
pub(crate) fn picture(name: &str, module: &Module, target: Target, hints: Hints, tma: bool) -> Result<String> {
    picture_by(name, module, target, &options(hints, tma)?)
}

fn picture_by(name: &str, module: &Module, target: Target, options: &CompileOptions) -> Result<String> {
    let title = format!("{name}, {target}");
    let draw = &mut |subject: &ptx::CostInput<'_, '_>| subject.picture(ptx::machine(target), &title);
    ptx::with_plan(module, target, options, draw)?.ok_or_else(stuck)
}

/// Returns the steps of a CTA by the cost model; none if the kernel has no plan.
fn modelled(module: &Module, target: Target, options: &CompileOptions) -> Vec<MeasuredEvent> {
    let look = &mut |subject: &ptx::CostInput<'_, '_>| ptx::modelled_events(subject, ptx::machine(target));
    ptx::with_plan(module, target, options, look).unwrap_or_default()
}

pub(crate) fn stuck() -> crate::Error {
    crate::Error::argument("the schedule does not terminate, which is a defect of this crate".to_owned())
}

/// Returns the optimizations that `CUTLET_DISABLE` enables. It is read once, so it is equal for all
/// kernels of the process.
///
/// # Errors
/// [`Error::Argument`] with all names, if a name is unknown.
pub(crate) fn optimizations_from_env() -> Result<OptimizationSet> {
    static ENABLED: OnceLock<(String, std::result::Result<OptimizationSet, String>)> = OnceLock::new();
    let (value, enabled) = ENABLED.get_or_init(|| {
        let value = std::env::var("CUTLET_DISABLE").unwrap_or_default();
        let enabled = OptimizationSet::all_but(&value);
        (value, enabled)
    });
    enabled.clone().map_err(|problem| Error::environment("CUTLET_DISABLE", value, problem))
}

/// Returns the steps with time stamps: those of `CUTLET_TRACE_STEPS`, which is read once.
///
/// # Errors
/// [`Error::Argument`] if its value is unknown.
fn stamped_steps(trace: bool) -> Result<StampedSteps> {
    static VALUE: OnceLock<String> = OnceLock::new();
    let value = VALUE.get_or_init(|| std::env::var("CUTLET_TRACE_STEPS").unwrap_or_default());
    match &**value {
        _ if !trace => Ok(StampedSteps::None),
        "" => Ok(StampedSteps::KeepOverlap),
        "all" => Ok(StampedSteps::All),
        _ => Err(Error::environment("CUTLET_TRACE_STEPS", value, "the value is `all`, or the variable is not set")),
    }
}

pub(crate) fn options(hints: Hints, tma: bool) -> Result<CompileOptions> {
    // The launch uses `persistent`, and the interpreter uses `loop_limit`. `wants_lines` uses the
    // next two, and `assembly` the last two.
    let Hints {
        num_warps,
        occupancy,
        num_stages,
        num_ctas,
        code_limit,
        wait_limit,
        plan,
        persistent: _,
        deterministic: _,
        trace,
        loop_limit: _,
        line_info: _,
        device_debug: _,
        opt_level: _,
        memcheck: _,
    } = hints;
    let line_info = wants_lines(hints);
    let plan_search = match plan.disable_search {
        true => ptx::PlanSearch::Off,
        false if wanted() => ptx::PlanSearch::Report,
        false => ptx::PlanSearch::Calibrated,
    };
    let optimizations = plan.optimizations.intersection(optimizations_from_env()?);
    Ok(CompileOptions {
        num_warps,
        occupancy,
        num_stages,
        num_ctas,
        code_limit,
        wait_limit,
        stamped: stamped_steps(trace)?,
        tma: tma && !plan.disable_tma_loads,
        line_info,
        // A trace names the lines of its schedule.
        schedule: trace,
        plan_search,
        has_many_blocks: false,
        pingpong: !plan.disable_pingpong,
        loaded_operands_in_registers: false,
        assumes_positive_params: true,
        optimizations,
    })
}

/// Minimum number of tile blocks for each CTA of a persistent form.
pub(crate) const MIN_ROUNDS: u64 = 2;

/// Ratio of needed to available registers from which a warning is written without a request.
const OVERFULL: u32 = 2;

/// Reports a warning about a kernel, once for each text.
fn warn_once(kernel: &str, what: &str) {
    static REPORTED: PerProcess<Mutex<BTreeSet<String>>> = PerProcess::new();
    let text = format!("kernel `{kernel}`: {what}");
    let mut reported = REPORTED.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if !reported.contains(&text) {
        report::warning(&text);
        reported.insert(text);
    }
}

/// Returns the same kernel with other hints, or without tensor maps, to be compiled on demand.
fn other(source: Arc<Source>, hints: Hints, maps: TensorMapUse<'static>) -> KernelVariant {
    KernelVariant::new(move || {
        let Source { name, module, gpu, form, .. } = &*source;
        let persistent = if form.is_persistent { " persistent" } else { "" };
        let maps_of_form = if maps.are_allowed() { "" } else { " without maps" };
        let numbers = if form.assumes_nothing { " for all numbers" } else { "" };
        let what = format!("{:?} {hints:?}{persistent}{maps_of_form}{numbers}", gpu.target());
        let dump = Dump::from_env(name, module, &what);
        compile_form(name, module, gpu, hints, maps, &dump, *form)
    })
}

/// Returns the persistent form of a kernel, to be compiled on demand; `None` if it has none.
fn persistent(source: &Arc<Source>, ctas: u32) -> Option<Box<PersistentVariant>> {
    let Source { module, gpu, hints, form: source_form, .. } = &**source;
    let target = gpu.target();
    let is_allowed = hints.persistent != Some(false) && hints.num_ctas.is_none() && !source_form.is_persistent;
    let enabled = hints.plan.optimizations.intersection(optimizations_from_env().ok()?);
    if !is_allowed || target.arch != 90 || !enabled.contains(ptx::Optimization::Persistent) {
        return None;
    }
    let form = pass::persistent(module)?;
    let source_form = SourceForm { is_persistent: true, ..*source_form };
    let source = Source { name: source.name.clone(), module: form, gpu, hints: *hints, form: source_form };
    Some(Box::new(PersistentVariant {
        min_tile_blocks: if hints.persistent == Some(true) { 1 } else { MIN_ROUNDS * u64::from(ctas) },
        variant: other(Arc::new(source), *hints, TensorMapUse::Allowed),
        is_rejected: AtomicBool::new(false),
    }))
}

/// Compiles a module for a GPU by the PTX back end.
///
/// # Errors
/// [`crate::Error::Unsupported`] at the user's locations, [`crate::Error::Compile`] with the
/// assembler's log.
pub(crate) fn compile(
    name: &str,
    module: &Module,
    gpu: &'static Gpu,
    hints: Hints,
    maps: TensorMapUse<'_>,
    dump: &Dump,
) -> Result<GpuCode> {
    compile_form(name, module, gpu, hints, maps, dump, SourceForm::default())
}

fn compile_form(
    name: &str,
    module: &Module,
    gpu: &'static Gpu,
    hints: Hints,
    maps: TensorMapUse<'_>,
    dump: &Dump,
    form: SourceForm,
) -> Result<GpuCode> {
    let tma = maps.are_allowed();
    let mut stages = Stages::default();
    let target = gpu.target();
    // A kernel with globals has one form, which must support all numbers.
    let assumes_positive_params = !form.assumes_nothing && module.globals.is_empty();
    let mut used =
        CompileOptions { has_many_blocks: form.is_persistent, assumes_positive_params, ..options(hints, tma)? };
    let mut code = stages.time("code", || generate_by(module, target, &used, maps))?;
    let load = |code: &ptx::Compiled| assembled(name, gpu, (&code.text, &code.entry), config(code), assembly(hints));
    let (mut kernel, mut cubin) = stages.time("assembler", || load(&code))?;
    if code.min_blocks > 1 && hints.occupancy.is_none() && (spills(&cubin.log) || kernel.resources()?.1 > 0) {
        // The planned occupancy is not reached, and spills cost more than the occupancy gains.
        used.occupancy = Some(1);
        code = stages.time("code again", || generate_by(module, target, &used, maps))?;
        (kernel, cubin) = stages.time("assembler again", || load(&code))?;
    }
    dump.write("layout", code.layout.as_bytes())?;
    if dump.is_wanted() {
        dump.write("schedule", schedule_by(module, target, used)?.as_bytes())?;
        dump.write("svg", picture_by(name, module, target, &used)?.as_bytes())?;
    }
    dump.write("ptx", code.text.as_bytes())?;
    if !cubin.bytes.is_empty() {
        dump.write("cubin", &cubin.bytes)?;
    }
    dump.write("log", cubin.log.as_bytes())?;
    let mut remarks = Remarks::of_gpu(name, gpu, &kernel, Some(code.remarks), remarks(&cubin.log), stages)?;
    if remarks.local_bytes() > 0 && (wanted() || dump.is_wanted()) {
        let lined = ptx::compile(module, target, &CompileOptions { line_info: true, ..used })?;
        // Remarks without lines are better than no kernel.
        if let Ok(spills) = Spills::by_driver(gpu, &lined, hints) {
            dump.write("spills", format!("{spills}\n").as_bytes())?;
            remarks.add_spills(spills);
        }
    }
    let trace = match code.stamps {
        Some(stamps) => {
            let modelled = modelled(module, target, &used);
            Some(LaunchTrace::new(gpu, (name, module), stamps, (code.schedule, modelled))?)
        }
        None => None,
    };
    let source = Source { name: name.into(), module: module.clone(), gpu, hints, form };
    let positive = positive(&source, code.positive_params, maps);
    Ok(GpuCode { trace, positive, ..completed(source, kernel, code.params, code.failures, remarks)? })
}

/// Returns the parameters that the code assumes to be positive, with the form for all numbers.
fn positive(source: &Source, params: Vec<u32>, maps: TensorMapUse<'_>) -> Option<Box<PositiveParams>> {
    if params.is_empty() {
        return None;
    }
    let Source { name, module, gpu, hints, form } = source;
    let form = SourceForm { assumes_nothing: true, ..*form };
    let source = Source { name: name.clone(), module: module.clone(), gpu, hints: *hints, form };
    let maps = match maps {
        TensorMapUse::Allowed => TensorMapUse::Allowed,
        TensorMapUse::Rejected(_) => TensorMapUse::Rejected("the form for other numbers has no tensor maps"),
    };
    Some(Box::new(PositiveParams { params, without: other(Arc::new(source), *hints, maps) }))
}

fn config(code: &ptx::Compiled) -> LaunchConfig {
    LaunchConfig { threads: code.threads, shared_bytes: code.shared_bytes, cluster: code.cluster }
}

/// Returns a loaded kernel with the data of its launches: tensor maps, the note of failures,
/// the names of globals.
fn completed(
    source: Source,
    kernel: GpuKernel,
    params: Vec<ParamKind>,
    failures: FailureSites,
    remarks: Remarks,
) -> Result<GpuCode> {
    let has_note = params.iter().any(|param| matches!(param, ParamKind::Failure));
    let failure = if has_note { Some(assert_report::note(source.gpu, &source.name, failures)?) } else { None };
    let symbol = |(index, global): (usize, &Global)| (global.name.clone(), ptx::global_symbol(index));
    let globals = source.module.globals.iter().enumerate().map(symbol).collect_vec();
    let ctas = remarks.blocks_per_multiprocessor() * source.gpu.multiprocessors as u32;
    let most = if source.hints.plan.max_ctas == 0 { u32::MAX } else { source.hints.plan.max_ctas };
    let persistent_ctas = source.form.is_persistent.then_some(ctas.min(most).max(1));
    let source = Arc::new(source);
    let mut persistent_form = None;
    // Loads by threads take longer in the persistent form of a kernel.
    let loads_by_tma = remarks.code().is_some_and(|code| !code.has_loads_in_mma_loops);
    let maps = TensorMaps::new(&params).map(|maps| {
        let is_wanted = loads_by_tma || source.hints.persistent == Some(true);
        persistent_form = if is_wanted { persistent(&source, ctas) } else { None };
        let hints = source.hints;
        let without_maps =
            other(source.clone(), hints, TensorMapUse::Rejected("arrays of this launch have no tensor maps"));
        let exchanges = source.module.cluster_size(source.module.entries[0].body).is_some();
        let without_cluster =
            (!exchanges).then(|| other(source, Hints { num_ctas: None, ..hints }, TensorMapUse::Allowed));
        Box::new(TmaVariant { maps, without_maps, without_cluster })
    });
    Ok(GpuCode {
        kernel,
        params,
        remarks,
        guard: None,
        positive: None,
        maps,
        persistent: persistent_form,
        persistent_ctas,
        globals,
        failure,
        trace: None,
    })
}

/// PTX that was generated earlier, and the data of its launches.
pub(crate) struct PrebuiltPtx<'a> {
    pub text: &'a str,
    /// Machine code of the PTX for this GPU.
    pub machine_code: Option<&'a [u8]>,
    pub entry: &'a str,
    pub config: LaunchConfig,
    pub params: &'a [ParamKind],
    pub failures: &'a FailureSites,
}

/// Loads PTX that was generated earlier. `module` is its source, for launches that need another
/// form.
///
/// # Errors
/// [`crate::Error::Compile`] with the assembler's log, [`crate::Error::Driver`].
pub(crate) fn load(
    name: &str,
    module: &Module,
    gpu: &'static Gpu,
    hints: Hints,
    code: PrebuiltPtx<'_>,
) -> Result<GpuCode> {
    let mut stages = Stages::default();
    let whole = code.machine_code.and_then(|bytes| GpuKernel::load(gpu, bytes, code.entry, code.config).ok());
    let (kernel, log) = match whole {
        Some(kernel) => (kernel, String::new()),
        // A driver that does not support this machine code assembles the PTX.
        None => {
            let names = (code.text, code.entry);
            let made = stages.time("assembler", || assembled(name, gpu, names, code.config, assembly(hints)))?;
            (made.0, made.1.log)
        }
    };
    let remarks = Remarks::of_gpu(name, gpu, &kernel, None, remarks(&log), stages)?;
    let source = Source {
        name: name.into(),
        module: module.clone(),
        gpu,
        hints,
        form: SourceForm { assumes_nothing: true, ..SourceForm::default() },
    };
    completed(source, kernel, code.params.to_vec(), code.failures.clone(), remarks)
}

/// Assembles PTX, or reads its machine code from the disk cache, and loads the kernel. If the text
/// needs the whole-program mode of the driver, the driver caches the code itself and returns no log
/// for cached code.
fn assembled(
    name: &str,
    gpu: &'static Gpu,
    (text, entry): (&str, &str),
    config: LaunchConfig,
    assembly: Assembly,
) -> Result<(GpuKernel, Cubin)> {
    let compiler = "the driver's PTX assembler";
    let (own_name, own_text, own_entry) = (name.to_owned(), text.to_owned(), entry.to_owned());
    if wants_whole_program(text) {
        let work = move || GpuKernel::load_ptx(gpu, &own_name, (&own_text, assembly), &own_entry, config);
        let (kernel, log) = within(compile_limit()?, name, compiler, work)?;
        return Ok((kernel, Cubin { bytes: Vec::new(), log }));
    }
    let load = |cubin: &Cubin| GpuKernel::load(gpu, &cubin.bytes, entry, config);
    let disk = DiskCache::from_env();
    let key = cubin_key(gpu, text, assembly)?;
    // A cubin that the driver rejects despite a correct checksum is a cache miss, too.
    let kept = disk.as_ref().and_then(|disk| disk.get(&key)).and_then(|bytes| unpack(&bytes));
    if let Some(found) = kept.and_then(|cubin| load(&cubin).ok().map(|kernel| (kernel, cubin))) {
        return Ok(found);
    }
    let work = move || assemble(gpu, &own_name, &own_text, assembly);
    let cubin = within(compile_limit()?, name, compiler, work)?;
    let kernel = load(&cubin)?;
    if let Some(disk) = &disk {
        disk.put(&key, &pack(&cubin));
    }
    Ok((kernel, cubin))
}

/// Returns the cache key of machine code. The options of the assembler are in [`assemble`]; change
/// the first part of the key with them.
fn cubin_key(gpu: &Gpu, ptx: &str, assembly: Assembly) -> Result<ContentHash> {
    let (driver, target) = (gpu.driver_identity()?, gpu.target().to_string());
    Ok(ContentHash::new(&[b"link 2", ptx.as_bytes(), target.as_bytes(), driver.as_bytes(), &assembly.key()]))
}

/// Encodes log and code as one entry of the disk cache: length of the log, log, code.
fn pack(cubin: &Cubin) -> Vec<u8> {
    [&(cubin.log.len() as u64).to_le_bytes()[..], cubin.log.as_bytes(), &cubin.bytes].concat()
}

fn unpack(bytes: &[u8]) -> Option<Cubin> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (log, code) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    Some(Cubin { bytes: code.to_vec(), log: String::from_utf8_lossy(log).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ptx::Optimization;

    /// Environment variable of the child processes of the test below.
    const CHILD: &str = "CUTLET_TEST_DISABLE_CHILD";

    #[test]
    fn the_environment_disables_optimizations() {
        let set = OptimizationSet::ALL.without(Optimization::TryWait).without(Optimization::ExpOrder);
        if let Some(child) = std::env::var_os(CHILD) {
            let found = options(Hints::new(), true);
            match child == "known" {
                true => assert_eq!(found.unwrap().optimizations, set),
                false => {
                    let error = found.unwrap_err().to_string();
                    assert!(error.contains("CUTLET_DISABLE=nothing") && error.contains("try_wait"), "{error}");
                }
            }
            return;
        }
        for (child, value) in [("known", "try_wait,exp_order"), ("unknown", "nothing")] {
            let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
            command.args(["the_environment_disables_optimizations", "--test-threads=1"]);
            command.env(CHILD, child).env("CUTLET_DISABLE", value).stdout(std::process::Stdio::null());
            assert!(command.status().expect("a process").success(), "{child}");
        }
    }

    #[test]
    fn cache_entries_hold_log_and_code() {
        let cubin = Cubin { bytes: vec![1, 2, 3], log: "0 bytes spill stores".into() };
        let back = unpack(&pack(&cubin)).unwrap();
        assert_eq!((back.bytes, back.log), (cubin.bytes, cubin.log));
        assert!(unpack(&[9, 0, 0, 0, 0, 0, 0, 0, 1]).is_none());
        assert!(unpack(&[1]).is_none());
    }
}
