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
#[inline]
pub(super) fn driver_compiles(gpu: &Gpu) -> bool {
    // Every launch asks: the driver only where its answer matters.
    gpu.target().arch >= FIRST_ARCH && compiles(gpu.target(), gpu.driver_version().unwrap_or(0))
}

fn compiles(target: Target, driver: i32) -> bool {
    target.arch >= FIRST_ARCH && driver >= FIRST_DRIVER
}

/// Which way bytecode goes; `CUTLET_TILEIR` names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Driver,
    Tileiras,
}

/// The ways for a target and a driver, best first, and why others are none.
fn ways(target: Target, driver: i32, wish: Option<&str>) -> Result<(Vec<Way>, Vec<String>)> {
    match wish {
        Some("driver") => return Ok((vec![Way::Driver], Vec::new())),
        Some("tileiras") => return Ok((vec![Way::Tileiras], Vec::new())),
        Some("") | None => {}
        Some(other) => {
            return Err(Error::argument(format!("CUTLET_TILEIR is `{other}`: expected driver or tileiras")));
        }
    }
    if compiles(target, driver) {
        return Ok((vec![Way::Driver, Way::Tileiras], Vec::new()));
    }
    let (major, minor) = (driver / 1000, driver % 1000 / 10);
    let reason = format!(
        "the driver was not asked: it is of CUDA {major}.{minor} for {target}, and compiles Tile IR from CUDA 13.1 on \
         for sm_100 and later"
    );
    Ok((vec![Way::Tileiras], vec![reason]))
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
    let wish = std::env::var("CUTLET_TILEIR").ok();
    let (ways, mut tried) = ways(gpu.target(), gpu.driver_version().unwrap_or(0), wish.as_deref())?;
    for way in ways {
        let kernel = match way {
            Way::Driver => {
                GpuKernel::load_tile_ir(gpu, &code.bytecode, &code.entry).map_err(|e| format!("the driver: {e}"))
            }
            Way::Tileiras => {
                let load = |cubin: &[u8]| GpuKernel::load_tile_cubin(gpu, cubin, &code.entry);
                match assembled(&code.entry, &code.bytecode, gpu.target(), load) {
                    // The user's own affair: another way would not help.
                    Err(error @ Error::Unsupported(_)) => return Err(error),
                    Err(error) => Err(format!("tileiras: {error}")),
                    Ok((cubin, kernel)) => {
                        dump.write("cubin", &cubin)?;
                        Ok(kernel)
                    }
                }
            }
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

/// Machine code of a kernel from the disk cache or from the assembler, and what `load` makes of it. Code from the
/// disk cache that it refuses is a miss.
///
/// Kept under two names: with the assembler's version, and for machines that have no assembler
/// without it.
pub(super) fn assembled<X>(
    entry: &str,
    bytecode: &[u8],
    target: Target,
    load: impl Fn(&[u8]) -> Result<X>,
) -> Result<(Vec<u8>, X)> {
    let key = |assembler: &str| {
        let target = format!("sm_{}", target.arch);
        ContentKey::of(&[b"tileir 1", bytecode, target.as_bytes(), assembler.as_bytes()])
    };
    let disk = DiskCache::from_env();
    let kept = |key: &ContentKey| {
        let cubin = disk.as_ref().and_then(|disk| disk.get(key))?;
        load(&cubin).ok().map(|loaded| (cubin, loaded))
    };
    let any = key("");
    let assembler = match Assembler::find() {
        Ok(assembler) => assembler,
        Err(error) => return kept(&any).ok_or(error),
    };
    let own = key(&assembler.identity()?);
    if let Some(found) = kept(&own) {
        return Ok(found);
    }
    let cubin = assembler.assemble(entry, bytecode, target)?;
    let loaded = load(&cubin)?;
    if let Some(disk) = &disk {
        disk.put(&own, &cubin);
        disk.put(&any, &cubin);
    }
    Ok((cubin, loaded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blackwell_and_a_new_driver_compile_by_themselves() {
        let target = |name: &str| name.parse::<Target>().expect("a target");
        for (name, driver, compiled) in
            [("sm_100", 13_010, true), ("sm_120", 13_020, true), ("sm_100", 13_000, false), ("sm_90a", 13_020, false)]
        {
            assert_eq!(compiles(target(name), driver), compiled, "{name} {driver}");
            let (found, reasons) = ways(target(name), driver, None).expect("no wish");
            let expected: &[Way] = if compiled { &[Way::Driver, Way::Tileiras] } else { &[Way::Tileiras] };
            assert_eq!((found.as_slice(), reasons.is_empty()), (expected, compiled), "{name} {driver}");
        }
        let (_, reasons) = ways(target("sm_90a"), 13_000, None).expect("no wish");
        assert!(reasons[0].contains("CUDA 13.0 for sm_90a") && reasons[0].contains("sm_100 and later"), "{reasons:?}");
        // A wish is followed, whatever is there.
        assert_eq!(ways(target("sm_90a"), 13_000, Some("driver")).expect("a wish").0, [Way::Driver]);
        assert_eq!(ways(target("sm_100"), 13_010, Some("tileiras")).expect("a wish").0, [Way::Tileiras]);
        let error = ways(target("sm_100"), 13_010, Some("nvcc")).expect_err("no such way").to_string();
        assert!(error.contains("expected driver or tileiras"), "{error}");
    }
}
