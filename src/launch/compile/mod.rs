//! Compilation of a trace to an executable: passes, then the back end.
//!
//! The head of `backend/ptx/compile.rs` lists all passes in order, those of this file first.

use super::checks::Recorded;
use super::checks::races::RaceCheck;
use super::checks::unwritten::UnwrittenCheck;
use super::inspect::bug_report;
use super::inspect::dump::Dump;
use super::inspect::profile::Profiled;
use super::inspect::remarks::{Remarks, Stages};
use super::options::CompileRequest;
use crate::backend::tileir::Guards;
use crate::backend::{Hints, cpu};
use crate::error::{Error, Result};
use crate::ir::{Module, Opcode, Type, verify};
use crate::pass;
use crate::runtime::{Backend, Device};
use crate::util::collect::CollectVec as _;
use crate::util::{report, span};
use executable::{Code, Executable, GpuCode};
use preconditions::Preconditions;
use ptx::TensorMapUse;

/// Form of the code of a trace.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Optimized.
    Optimized,
    /// As written by the user, without any pass: for the checks of the cpu back end.
    Unoptimized,
    /// Optimized, with assumptions of the user as assertions and a record of accesses: for the
    /// checks of a GPU.
    Instrumented(Recorded),
}

/// Mode of the passes of a trace.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct PassMode {
    form: Form,
    /// Floats are elements of a ring of integers.
    exact: bool,
}

impl PassMode {
    /// Mode without checks, in which floats are floats.
    pub const OPTIMIZED: PassMode = PassMode { form: Form::Optimized, exact: false };

    /// Returns the mode for a back end; `checks`: the code has checks.
    pub fn new(backend: Backend, checks: bool, recorded: Recorded) -> PassMode {
        let form = match (checks, backend) {
            (false, _) => Form::Optimized,
            (true, Backend::Cpu) => Form::Unoptimized,
            (true, Backend::Ptx | Backend::TileIr) => Form::Instrumented(recorded),
        };
        PassMode { form, exact: false }
    }

    /// Selects exact mode.
    pub fn exact(self, exact: bool) -> PassMode {
        PassMode { exact, ..self }
    }
}

impl From<&CompileRequest> for PassMode {
    fn from(request: &CompileRequest) -> PassMode {
        PassMode::new(request.backend, request.checks, request.recorded).exact(request.exact)
    }
}

/// Verifies a trace, splits off the preconditions of launches, executes the passes and verifies
/// again.
///
/// # Errors
/// [`Error::Kernel`] for an ill-formed trace, and for ops without a form in exact mode;
/// [`Error::Compile`] if a pass makes it ill-formed.
pub(super) fn optimize(name: &str, module: Module, mode: PassMode) -> Result<(Module, Option<Preconditions>)> {
    let (module, checks) = optimize_with_checks(name, module, mode)?;
    let required = checks.map(|checks| Preconditions::new(name, &checks)).transpose()?;
    Ok((module, required))
}

/// [`optimize`] with the preconditions as a module.
pub(super) fn optimize_with_checks(name: &str, module: Module, mode: PassMode) -> Result<(Module, Option<Module>)> {
    optimize_watched(name, module, mode, &mut |_, _| {})
}

/// [`optimize_with_checks`] with an observer of the module before the passes ("trace") and after
/// each pass.
pub(super) fn optimize_watched(
    name: &str,
    mut module: Module,
    mode: PassMode,
    look: &mut dyn FnMut(&'static str, &Module),
) -> Result<(Module, Option<Module>)> {
    verify(&module).map_err(Error::Kernel)?;
    pass::check_cluster_exchanges(&module).map_err(Error::Kernel)?;
    pass::check_rowwise(&module).map_err(Error::Kernel)?;
    module.rowwise.clear();
    if mode.form == Form::Optimized {
        // Before the conditions of launches are moved out of the kernel.
        pass::manager::apply("remove_proved_checks", &mut module, pass::remove_proved_checks);
    }
    let required = pass::split_preconditions(&mut module);
    if mode.exact {
        pass::exact(&mut module).map_err(Error::Kernel)?;
    }
    match mode.form {
        Form::Optimized => {}
        Form::Unoptimized => return Ok((module, required)),
        Form::Instrumented(recorded) => {
            pass::assume_to_assert(&mut module);
            if recorded.races {
                pass::record_accesses(&mut module);
            }
            if recorded.writes {
                pass::record_writes(&mut module);
            }
        }
    }
    module.written.clear();
    look("trace", &module);
    pass::optimize_with_observer(&mut module, look);
    verify(&module).map_err(|problems| Error::Compile {
        kernel: name.into(),
        stage: "the verifier after the passes",
        log: problems.iter().map(ToString::to_string).collect_vec().join("\n"),
    })?;
    Ok((module, required))
}

/// Checks that a kernel is deterministic, if the hints require it.
///
/// # Errors
/// [`Error::Kernel`] with the ops whose results depend on the order of tile blocks.
pub(super) fn check_determinism(module: &Module, hints: Hints) -> Result<()> {
    if hints.deterministic { pass::check_determinism(module).map_err(Error::Kernel) } else { Ok(()) }
}

/// Inserts a wait for the preceding kernel at the start of a kernel that has none.
fn wait_first(module: &mut Module) {
    let Some((body, loc)) = module.entries.first().map(|entry| (entry.body, entry.loc)) else { return };
    let mut waits = false;
    module.walk(body, &mut |id| waits |= module.op(id).code == Opcode::GdcWait);
    if !waits {
        let token = module.intern(Type::Token);
        let wait = module.add_op(Opcode::GdcWait, &[&[]], vec![], vec![], &[token], loc);
        module.block_mut(body).ops.insert(0, wait);
    }
}

/// Compiles a trace for a device, and writes a bug report of an internal error if requested.
/// `stages`: the preceding stages.
pub(super) fn compile(
    name: &str,
    module: Module,
    device: Device,
    request: CompileRequest,
    stages: Stages,
) -> Result<Executable> {
    let _span = span::compile(name, &request.backend);
    check_determinism(&module, request.hints)?;
    let Some(folder) = bug_report::folder() else { return build(name, module, device, request, stages) };
    let trace = module.clone();
    build(name, module, device, request, stages).map_err(|error| {
        let mode = PassMode::from(&request);
        let case = bug_report::Case { kernel: name, trace: &trace, device, request };
        case.reported(&folder, error, |name, module| Ok(optimize(name, module, mode)?.0))
    })
}

/// Builds code, and builds it again without tensor maps if the assembler rejects it: code with warp
/// specialization has additional limits in the assembler. The remarks of the second form have the
/// message of the assembler.
///
/// # Errors
/// The first error, if the second form fails, too.
fn within_limits<T>(maps: TensorMapUse<'_>, build: impl Fn(TensorMapUse<'_>) -> Result<T>) -> Result<T> {
    build(maps).or_else(|problem| match (&problem, maps) {
        (Error::Compile { stage, log, .. }, TensorMapUse::Allowed) => {
            let log: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect_vec();
            let reason = format!("{stage} refused the form with tensor maps: {}", log.join("; "));
            build(TensorMapUse::Rejected(&reason)).map_err(|_| problem)
        }
        _ => Err(problem),
    })
}

fn build(
    name: &str,
    module: Module,
    device: Device,
    request: CompileRequest,
    mut stages: Stages,
) -> Result<Executable> {
    let unchecked_stores = Some(pass::unchecked_stores(&module).into());
    let (mut module, required) = stages.time("passes", || optimize(name, module, PassMode::from(&request)))?;
    if request.programmatic_launch {
        wait_first(&mut module);
    }
    let dump = Dump::from_env(name, &module, &format!("{:?} {request:?}", device.target()));
    dump.write_module(&module)?;
    let mut code = match device.as_gpu() {
        None => {
            let mut own = Stages::default();
            let program = own.time("code", || cpu::Program::compile(&module))?;
            let program = program.with_loop_limit(request.hints.loop_limit);
            preview(name, &module, request, &dump)?;
            Code::Cpu(Box::new(program), Remarks::of_interpreted(name, own))
        }
        Some(gpu) if request.backend == Backend::TileIr => {
            // Globals are part of the code, so there is one form for all launches.
            let guards = if module.globals.is_empty() { Guards::Launch } else { Guards::Kernel };
            Code::Gpu(tileir::compile(name, &module, gpu, request.hints, guards, &dump)?)
        }
        Some(gpu) => {
            let build = |maps: TensorMapUse<'_>| ptx::compile(name, &module, gpu, request.hints, maps, &dump);
            Code::Gpu(within_limits(TensorMapUse::for_module(&module), build)?)
        }
    };
    match &mut code {
        Code::Cpu(_, remarks) | Code::Gpu(GpuCode { remarks, .. }) => remarks.precede(stages),
    }
    let recording = module.recording.as_ref();
    let races = recording.filter(|recording| recording.has_accesses());
    let races = races.map(|recording| Box::new(RaceCheck::new(&module, recording)));
    let written = recording.and_then(|recording| recording.written.as_ref());
    let unwritten = written.map(|arrays| Box::new(UnwrittenCheck::new(arrays)));
    if recording.is_some_and(|recording| recording.is_unlogged) {
        report::warning(&format!(
            "kernel `{name}`: the check `races` compares no accesses that an order could separate, since the kernel exchanges \
             tiles within clusters"
        ));
    }
    let (required, profiled) = (required.map(Box::new), Profiled::new(name, device, &module));
    Ok(Executable { code, required, races, unwritten, unchecked_stores, profiled })
}

/// Generates the code of a kernel for the target of `CUTLET_TARGET`, if it is requested.
fn preview(name: &str, module: &Module, request: CompileRequest, dump: &Dump) -> Result<()> {
    // Checks interpret the kernel as written.
    let optimized = request.checks.then(|| {
        let mut module = module.clone();
        module.written.clear();
        pass::optimize(&mut module);
        module
    });
    target_preview::generate(name, optimized.as_ref().unwrap_or(module), request.hints, dump)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn refused() -> Error {
        let log = "ptxas error : one\n\n  ptxas fatal : two\n".to_owned();
        Error::Compile { kernel: "k".to_owned(), stage: "the driver's PTX assembler", log }
    }

    #[test]
    fn the_form_without_tensor_maps_knows_why_the_assembler_refused_the_other() {
        let reason = within_limits(TensorMapUse::Allowed, |maps| match maps {
            TensorMapUse::Allowed => Err(refused()),
            TensorMapUse::Rejected(reason) => Ok(reason.to_owned()),
        });
        let wanted =
            "the driver's PTX assembler refused the form with tensor maps: ptxas error : one; ptxas fatal : two";
        assert_eq!(reason.unwrap(), wanted);
    }

    #[test]
    fn a_kernel_is_built_once_more_at_most_and_only_for_the_assembler() {
        let built = |maps, problem: &dyn Fn() -> Error| {
            let forms = RefCell::new(Vec::new());
            let result = within_limits(maps, |maps| {
                forms.borrow_mut().push(matches!(maps, TensorMapUse::Allowed));
                Err::<(), _>(problem())
            });
            (forms.into_inner(), result.unwrap_err().to_string())
        };
        let (forms, problem) = built(TensorMapUse::Allowed, &refused);
        assert_eq!(forms, [true, false]);
        assert!(problem.contains("ptxas error : one"), "{problem}");
        assert_eq!(built(TensorMapUse::Rejected("globals"), &refused).0, [false]);
        assert_eq!(built(TensorMapUse::Allowed, &|| Error::NoDevice("none".to_owned())).0, [true]);
    }
}
pub(super) mod assert_report;
pub(super) mod check_hints;
pub(super) mod executable;
pub(super) mod global;
pub(super) mod guard_check;
pub(super) mod kernel_source;
pub(super) mod offline_ptxas;
pub(super) mod params;
pub(super) mod preconditions;
pub(super) mod ptx;
mod target_preview;
pub(super) mod tensor_map_cache;
pub(super) mod tileir;
pub(super) mod tileir_route;
