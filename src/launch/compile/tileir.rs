//! Compilation by the Tile IR back end: generates bytecode, which the driver's compiler or
//! `tileiras` assembles.

use super::check_hints::assembly;
use super::executable::{GpuCode, KernelVariant, LaunchGuard};
use super::guard_check::GuardCheck;
use super::kernel_source::{Source, SourceForm};
use super::tileir_route::{TileIrAssembler, assemblers};
use crate::backend::ptx::ParamKind;
use crate::backend::tileir::{self, Assembler, CompileOptions, Guards};
use crate::backend::{Assembly, Hints};
use crate::cache::disk::{ContentHash, DiskCache};
use crate::error::{Error, Result};
use crate::ir::{Module, PrintOptions};
use crate::launch::inspect::dump::Dump;
use crate::launch::inspect::remarks::{Remarks, Stages};
use crate::runtime::{Gpu, GpuKernel, compile_limit, within};
use crate::target::Target;
use crate::util::collect::CollectVec as _;

/// Compiles a module for a GPU by the Tile IR back end.
///
/// # Errors
/// [`Error::Kernel`] and [`Error::Unsupported`] at the user's locations; [`Error::Compile`] with
/// the messages of all assemblers, if each fails.
pub(crate) fn compile(
    name: &str,
    module: &Module,
    gpu: &'static Gpu,
    hints: Hints,
    guards: Guards,
    dump: &Dump,
) -> Result<GpuCode> {
    let mut stages = Stages::default();
    let options = CompileOptions { version: None, guards, hints };
    let code = stages.time("code", || tileir::compile(module, gpu.target(), &options))?;
    dump.write("tileir", code.module.to_text(PrintOptions::default()).as_bytes())?;
    dump.write("tilebc", &code.bytecode)?;
    let requested = std::env::var("CUTLET_TILEIR").ok();
    let (found, mut tried) = assemblers(gpu.target(), gpu.driver_version().unwrap_or(0), requested.as_deref())?;
    for assembler in found {
        let kernel = stages
            .time("assembler", || loaded(assembler, gpu, (&code.bytecode, &code.entry, assembly(hints)), dump))?;
        match kernel {
            Ok(kernel) => {
                let word = |(index, param): (usize, &tileir::Param)| ParamKind::Word {
                    index: index as u32,
                    bytes: param.bytes,
                };
                let params = code.params.iter().enumerate().map(word).collect_vec();
                let guard = (!code.conditions.is_empty()).then(|| {
                    let source =
                        Source { name: name.into(), module: module.clone(), gpu, hints, form: SourceForm::default() };
                    let check = GuardCheck::new(code.conditions, &code.params);
                    Box::new(LaunchGuard { check, guarded: guarded(source) })
                });
                let remarks = Remarks::of_gpu(name, gpu, &kernel, None, Vec::new(), stages)?;
                let globals =
                    module.globals.iter().map(|global| (global.name.clone(), global.name.clone())).collect_vec();
                return Ok(GpuCode {
                    kernel,
                    params,
                    positive: None,
                    remarks,
                    guard,
                    maps: None,
                    persistent: None,
                    persistent_ctas: None,
                    globals,
                    failure: None,
                    trace: None,
                });
            }
            Err(problem) => tried.push(problem),
        }
    }
    Err(Error::Compile { kernel: name.into(), stage: "every assembler of Tile IR", log: tried.join("\n") })
}

/// Loads bytecode that was generated earlier and checks the bounds of tiles itself, or its machine
/// code for this GPU. `module`: the source of the bytecode.
///
/// # Errors
/// As [`compile`].
pub(crate) fn load(
    name: &str,
    module: &Module,
    gpu: &'static Gpu,
    (entry, params): (&str, &[ParamKind]),
    (bytecode, machine_code): (&[u8], Option<&[u8]>),
    assembly: Assembly,
) -> Result<GpuCode> {
    let mut stages = Stages::default();
    let completed = |kernel: GpuKernel, stages| {
        let remarks = Remarks::of_gpu(name, gpu, &kernel, None, Vec::new(), stages)?;
        let globals = module.globals.iter().map(|global| (global.name.clone(), global.name.clone())).collect_vec();
        let params = params.to_vec();
        Ok(GpuCode {
            kernel,
            params,
            positive: None,
            remarks,
            guard: None,
            maps: None,
            persistent: None,
            persistent_ctas: None,
            globals,
            failure: None,
            trace: None,
        })
    };
    if let Some(kernel) = machine_code.and_then(|code| GpuKernel::load_tile_cubin(gpu, code, entry).ok()) {
        return completed(kernel, stages);
    }
    let dump = Dump::from_env(name, module, &format!("{:?} from a bundle", gpu.target()));
    let requested = std::env::var("CUTLET_TILEIR").ok();
    let (found, mut tried) = assemblers(gpu.target(), gpu.driver_version().unwrap_or(0), requested.as_deref())?;
    for assembler in found {
        match stages.time("assembler", || loaded(assembler, gpu, (bytecode, entry, assembly), &dump))? {
            Ok(kernel) => return completed(kernel, stages),
            Err(problem) => tried.push(problem),
        }
    }
    Err(Error::Compile { kernel: name.into(), stage: "every assembler of Tile IR", log: tried.join("\n") })
}

/// Loads a kernel by one of the assemblers, or returns the reason of its failure.
///
/// # Errors
/// [`Error::Unsupported`]: the error of the user's code, which another assembler would report, too.
fn loaded(
    assembler: TileIrAssembler,
    gpu: &'static Gpu,
    (bytecode, entry, assembly): (&[u8], &str, Assembly),
    dump: &Dump,
) -> Result<std::result::Result<GpuKernel, String>> {
    if assembler == TileIrAssembler::Driver {
        let (own_bytecode, own_entry) = (bytecode.to_owned(), entry.to_owned());
        let work = move || GpuKernel::load_tile_ir(gpu, &own_bytecode, assembly, &own_entry);
        let kernel = within(compile_limit()?, entry, "the driver's Tile IR compiler", work);
        return Ok(kernel.map_err(|error| format!("the driver: {error}")));
    }
    let load = |cubin: &[u8]| GpuKernel::load_tile_cubin(gpu, cubin, entry);
    match assembled(entry, (bytecode, assembly), gpu.target(), load) {
        Err(error @ Error::Unsupported(_)) => Err(error),
        Err(error) => Ok(Err(format!("tileiras: {error}"))),
        Ok((cubin, kernel)) => {
            dump.write("cubin", &cubin)?;
            Ok(Ok(kernel))
        }
    }
}

/// Returns the form of the kernel without assumptions, to be compiled on demand.
fn guarded(source: Source) -> KernelVariant {
    KernelVariant::new(move || {
        let Source { name, module, gpu, hints, .. } = &source;
        let dump = Dump::from_env(name, module, &format!("{:?} {hints:?} guarded", gpu.target()));
        compile(name, module, gpu, *hints, Guards::Kernel, &dump)
    })
}

/// Returns the machine code of a kernel, from the disk cache or from the assembler, and the result
/// of `load`. If `load` rejects code of the disk cache, this is a cache miss.
///
/// The cache has two entries for the code: one with the version of the assembler, and one without
/// it, for machines without an assembler.
pub(crate) fn assembled<X>(
    entry: &str,
    (bytecode, assembly): (&[u8], Assembly),
    target: Target,
    load: impl Fn(&[u8]) -> Result<X>,
) -> Result<(Vec<u8>, X)> {
    let key = |assembler: &str| {
        let target = format!("sm_{}", target.arch);
        ContentHash::new(&[b"tileir 2", bytecode, target.as_bytes(), assembler.as_bytes(), &assembly.key()])
    };
    let disk = DiskCache::from_env();
    let kept = |key: &ContentHash| {
        let cubin = disk.as_ref().and_then(|disk| disk.get(key))?;
        load(&cubin).ok().map(|loaded| (cubin, loaded))
    };
    let any = key("");
    let mut assembler = match Assembler::find() {
        Ok(assembler) => assembler,
        Err(error) => return kept(&any).ok_or(error),
    };
    if let Some(limit) = compile_limit()? {
        assembler.time_limit = limit.time;
    }
    let own = key(&assembler.identity()?);
    if let Some(found) = kept(&own) {
        return Ok(found);
    }
    let cubin = assembler.assemble_as(entry, bytecode, target, assembly)?;
    let loaded = load(&cubin)?;
    if let Some(disk) = &disk {
        disk.put(&own, &cubin);
        disk.put(&any, &cubin);
    }
    Ok((cubin, loaded))
}
