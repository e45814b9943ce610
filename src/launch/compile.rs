//! From a trace to something that runs: passes, then the back end.

use super::choices::Wishes;
use super::dump::Dump;
use super::executable::{Code, Executable, GpuCode};
use super::profile::Profiled;
use super::remarks::{Remarks, Stages};
use super::require::Requirements;
use super::{ptx, report, tileir};
use crate::backend::cpu;
use crate::backend::tileir::Guards;
use crate::error::{Error, Result};
use crate::ir::{Module, Opcode, Type, verify};
use crate::pass;
use crate::runtime::{Backend, Device};

/// What the passes make of a trace.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// What runs fast.
    Plain,
    /// What the user wrote, without any pass: for the checks of the cpu back end.
    Written,
    /// With promises of the user's as assertions: for those of a GPU.
    Asserted,
}

impl Form {
    /// The form of code by a back end; `checked`: is it made for checks?
    pub fn of(generator: Backend, checked: bool) -> Form {
        match (checked, generator) {
            (false, _) => Form::Plain,
            (true, Backend::Cpu) => Form::Written,
            (true, Backend::Ptx | Backend::TileIr) => Form::Asserted,
        }
    }
}

/// Verifies a trace, takes the conditions of launches out of it, runs the passes and verifies again.
///
/// # Errors
/// [`Error::Kernel`] for a trace that is ill-formed, [`Error::Compile`] for a pass that broke it.
pub(super) fn optimise(name: &str, module: Module, form: Form) -> Result<(Module, Option<Requirements>)> {
    let (module, checks) = optimise_apart(name, module, form)?;
    let required = checks.map(|checks| Requirements::new(name, &checks)).transpose()?;
    Ok((module, required))
}

/// [`optimise`] with the conditions as a module.
pub(super) fn optimise_apart(name: &str, module: Module, form: Form) -> Result<(Module, Option<Module>)> {
    optimise_watched(name, module, form, &mut |_, _| {})
}

/// [`optimise_apart`], with a look at the module before the passes ("trace") and after each.
pub(super) fn optimise_watched(
    name: &str,
    mut module: Module,
    form: Form,
    look: &mut dyn FnMut(&'static str, &Module),
) -> Result<(Module, Option<Module>)> {
    verify(&module).map_err(Error::Kernel)?;
    let required = pass::split_required(&mut module);
    match form {
        Form::Plain => {}
        Form::Written => return Ok((module, required)),
        Form::Asserted => pass::check_promises(&mut module),
    }
    module.written.clear();
    look("trace", &module);
    pass::optimize_watched(&mut module, look);
    verify(&module).map_err(|problems| Error::Compile {
        kernel: name.into(),
        stage: "the verifier after the passes",
        log: problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    })?;
    Ok((module, required))
}

/// Lets a kernel that never waits for the one before it do so before all else.
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

/// Compiles a trace for a device, and writes a report of a defect if that is wished for. `stages`: what was done before.
pub(super) fn compile(
    name: &str,
    module: Module,
    device: Device,
    wishes: Wishes,
    stages: Stages,
) -> Result<Executable> {
    let Some(folder) = report::folder() else { return build(name, module, device, wishes, stages) };
    let trace = module.clone();
    build(name, module, device, wishes, stages).map_err(|error| {
        let form = Form::of(wishes.generator, wishes.checked);
        let case = report::Case { kernel: name, trace: &trace, device, wishes };
        case.reported(&folder, error, |name, module| Ok(optimise(name, module, form)?.0))
    })
}

fn build(name: &str, module: Module, device: Device, wishes: Wishes, mut stages: Stages) -> Result<Executable> {
    let (mut module, required) =
        stages.time("passes", || optimise(name, module, Form::of(wishes.generator, wishes.checked)))?;
    if wishes.dependent {
        wait_first(&mut module);
    }
    let dump = Dump::from_env(name, &module, &format!("{:?} {wishes:?}", device.target()));
    dump.write_module(&module)?;
    // Globals live in the code: there is one form of it for all launches.
    let has_globals = !module.globals.is_empty();
    let mut code = match device.as_gpu() {
        None => {
            let mut own = Stages::default();
            let program = own.time("code", || cpu::Program::compile(&module))?;
            let program = program.with_loop_limit(wishes.hints.loop_limit);
            Code::Cpu(Box::new(program), Remarks::of_interpreted(name, own))
        }
        Some(gpu) if wishes.generator == Backend::TileIr => {
            let guards = if has_globals { Guards::Kernel } else { Guards::Launch };
            Code::Gpu(tileir::compile(name, &module, gpu, wishes.hints, guards, &dump)?)
        }
        Some(gpu) if has_globals => Code::Gpu(ptx::compile(name, &module, gpu, wishes.hints, false, &dump)?),
        Some(gpu) => {
            let build = |tma| ptx::compile(name, &module, gpu, wishes.hints, tma, &dump);
            // The assembler has limits of its own for kernels whose warps have roles: the plain form has fewer.
            let code = build(true).or_else(|problem| match problem {
                Error::Compile { .. } => build(false).map_err(|_| problem),
                other => Err(other),
            });
            Code::Gpu(code?)
        }
    };
    match &mut code {
        Code::Cpu(_, remarks) | Code::Gpu(GpuCode { remarks, .. }) => remarks.precede(stages),
    }
    Ok(Executable { code, required: required.map(Box::new), profiled: Profiled::new(name, device, &module) })
}
