//! Compiling through the Tile IR back end: bytecode to the driver's own compiler, or to `tileiras`.

use super::compile::GpuCode;
use super::dump::Dump;
use super::promise::{Checks, Promised, Source};
use super::remarks::Remarks;
use crate::backend::Hints;
use crate::backend::ptx::ParamKind;
use crate::backend::tileir::{self, Assembler, CompileOptions, Guards};
use crate::cache::disk::{ContentKey, DiskCache};
use crate::error::{Error, Result};
use crate::ir::{Module, PrintOptions};
use crate::runtime::{Gpu, GpuKernel};
use crate::target::Target;

/// First driver with a compiler for Tile IR, as `cuDriverGetVersion` counts: 13.1.
const FIRST_DRIVER: i32 = 13_010;
/// First architecture that drivers compile Tile IR for.
const FIRST_ARCH: u32 = 100;

/// Does the driver of this GPU take bytecode?
pub(super) fn driver_compiles(gpu: &Gpu) -> bool {
    gpu.target().arch >= FIRST_ARCH && gpu.driver_version().is_ok_and(|version| version >= FIRST_DRIVER)
}

/// Which way bytecode goes; `CUTLET_TILEIR` names one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Driver,
    Tileiras,
}

fn ways(gpu: &Gpu, tried: &mut Vec<String>) -> Result<Vec<Way>> {
    match std::env::var("CUTLET_TILEIR").as_deref() {
        Ok("driver") => return Ok(vec![Way::Driver]),
        Ok("tileiras") => return Ok(vec![Way::Tileiras]),
        Ok("") | Err(_) => {}
        Ok(other) => {
            return Err(Error::argument(format!("CUTLET_TILEIR is `{other}`: expected driver or tileiras")));
        }
    }
    if driver_compiles(gpu) {
        return Ok(vec![Way::Driver, Way::Tileiras]);
    }
    let version = gpu.driver_version().unwrap_or(0);
    tried.push(format!(
        "the driver was not asked: it is of CUDA {}.{} for {}, and compiles Tile IR from CUDA 13.1 on for sm_100 and later",
        version / 1000,
        version % 1000 / 10,
        gpu.target()
    ));
    Ok(vec![Way::Tileiras])
}

/// Compiles a module for a GPU through Tile IR.
///
/// # Errors
/// [`Error::Kernel`] and [`Error::Unsupported`] at the user's places; [`Error::Compile`] with everything
/// that was tried when no way led to a kernel.
pub(super) fn compile(
    name: &str,
    module: &Module,
    gpu: &'static Gpu,
    hints: Hints,
    guards: Guards,
    dump: &Dump,
) -> Result<GpuCode> {
    let code = tileir::compile(module, gpu.target(), &CompileOptions { version: None, guards, hints })?;
    dump.write("tileir", code.module.to_text(PrintOptions::default()).as_bytes())?;
    dump.write("tilebc", &code.bytecode)?;
    let mut tried = Vec::new();
    for way in ways(gpu, &mut tried)? {
        let kernel = match way {
            Way::Driver => {
                GpuKernel::load_tile_ir(gpu, &code.bytecode, &code.entry).map_err(|e| format!("the driver: {e}"))
            }
            Way::Tileiras => match cubin(&code.entry, &code.bytecode, gpu.target()) {
                // The user's own affair: another way would not help.
                Err(error @ Error::Unsupported(_)) => return Err(error),
                Err(error) => Err(format!("tileiras: {error}")),
                Ok(cubin) => {
                    dump.write("cubin", &cubin)?;
                    GpuKernel::load_tile_cubin(gpu, &cubin, &code.entry).map_err(|e| format!("its cubin: {e}"))
                }
            },
        };
        match kernel {
            Ok(kernel) => {
                let word = |(index, param): (usize, &tileir::Param)| ParamKind::Word {
                    index: index as u32,
                    bytes: param.bytes,
                };
                let params = code.params.iter().enumerate().map(word).collect();
                let promises = (!code.promises.is_empty()).then(|| {
                    let source = Source { name: name.into(), module: module.clone(), gpu, hints };
                    Box::new(Promised::new(Checks::new(code.promises, &code.params), source))
                });
                let remarks = Remarks::of_gpu(name, gpu, &kernel, None, Vec::new())?;
                return Ok(GpuCode { kernel, params, remarks, promises, maps: None });
            }
            Err(problem) => tried.push(problem),
        }
    }
    Err(Error::Compile { kernel: name.into(), stage: "every way for Tile IR", log: tried.join("\n") })
}

/// Machine code of a kernel from the disk cache or from the assembler.
///
/// Kept under two names: with the assembler's version, and for machines that have no assembler
/// without it.
pub(super) fn cubin(entry: &str, bytecode: &[u8], target: Target) -> Result<Vec<u8>> {
    let key = |assembler: &str| {
        let target = format!("sm_{}", target.arch);
        ContentKey::of(&[b"tileir 1", bytecode, target.as_bytes(), assembler.as_bytes()])
    };
    let disk = DiskCache::from_env();
    let kept = |key: &ContentKey| disk.as_ref().and_then(|disk| disk.get(key));
    let any = key("");
    let assembler = match Assembler::find() {
        Ok(assembler) => assembler,
        Err(error) => return kept(&any).ok_or(error),
    };
    let own = key(&assembler.identity()?);
    if let Some(cubin) = kept(&own) {
        return Ok(cubin);
    }
    let cubin = assembler.assemble(entry, bytecode, target)?;
    if let Some(disk) = &disk {
        disk.put(&own, &cubin);
        disk.put(&any, &cubin);
    }
    Ok(cubin)
}
