//! From a trace to something that runs: passes, back end, assembler, caches of code.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::dump::Dump;
use super::promise::Promised;
use super::remarks::Remarks;
use super::specialise::Wishes;
use super::tensor_map::{Encoded, TensorMaps};
use crate::backend::cpu;
use crate::backend::ptx::{self, CompileOptions, ParamKind};
use crate::backend::tileir::Guards;
use crate::backend::{Hints, ParamWord};
use crate::cache::disk::{ContentKey, DiskCache};
use crate::error::{Diagnostic, Error, Result};
use crate::ir::{Module, verify};
use crate::pass;
use crate::runtime::{
    Backend, Cubin, Device, Gpu, GpuKernel, LaunchConfig, assemble, remarks, spills, wants_whole_program,
};
use crate::target::Target;

/// A compiled kernel.
pub(crate) enum Executable {
    Cpu(Box<cpu::Program>, Remarks),
    Gpu(GpuCode),
}

impl Executable {
    pub fn remarks(&self) -> &Remarks {
        match self {
            Executable::Cpu(_, remarks) | Executable::Gpu(GpuCode { remarks, .. }) => remarks,
        }
    }
}

/// A kernel on a GPU.
pub(crate) struct GpuCode {
    pub kernel: GpuKernel,
    /// Where its parameters come from, in order.
    pub params: Vec<ParamKind>,
    /// What became of it, for people.
    pub remarks: Remarks,
    /// What must hold at each launch.
    pub promises: Option<Box<Promised>>,
    /// The tensor maps among the parameters.
    pub maps: Option<Box<Mapped>>,
}

/// The tensor maps of a kernel, and the kernels for launches that it is not for.
pub(crate) struct Mapped {
    maps: TensorMaps,
    /// For arrays that have no maps.
    plain: OnceLock<Box<GpuCode>>,
    /// For grids that clusters do not divide.
    single: OnceLock<Box<GpuCode>>,
    building: Mutex<()>,
    source: Source,
}

/// What a kernel was made from.
struct Source {
    name: String,
    module: Module,
    gpu: &'static Gpu,
    hints: Hints,
}

impl GpuCode {
    /// The kernel that runs with this grid (any, if it is not known) and these parameter words, and its maps: this
    /// one, the one without tensor maps, or the one without clusters.
    ///
    /// # Errors
    /// Those of compiling another one.
    #[inline]
    pub fn for_launch(&self, grid: Option<[u32; 3]>, words: &[ParamWord]) -> Result<(&GpuCode, Option<Encoded>)> {
        let Some(mapped) = &self.maps else { return Ok((self, None)) };
        let cluster = self.kernel.cluster();
        if cluster > 1 && grid.is_none_or(|[x, ..]| !x.is_multiple_of(cluster)) {
            return mapped.single()?.for_launch(grid, words);
        }
        match mapped.maps.encoded(words) {
            Some(maps) => Ok((self, Some(maps))),
            None => Ok((mapped.plain()?, None)),
        }
    }
}

impl Mapped {
    /// The kernel without tensor maps; compiled when it is first asked for.
    ///
    /// # Errors
    /// Those of compiling.
    #[cold]
    fn plain(&self) -> Result<&GpuCode> {
        self.other(&self.plain, self.source.hints, false)
    }

    /// The kernel without clusters; compiled when it is first asked for.
    ///
    /// # Errors
    /// Those of compiling.
    #[cold]
    fn single(&self) -> Result<&GpuCode> {
        self.other(&self.single, Hints { num_ctas: None, ..self.source.hints }, true)
    }

    fn other<'a>(&'a self, place: &'a OnceLock<Box<GpuCode>>, hints: Hints, tma: bool) -> Result<&'a GpuCode> {
        let _only_one = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = place.get() {
            return Ok(code);
        }
        let Source { name, module, gpu, .. } = &self.source;
        let maps = if tma { "" } else { " without maps" };
        let dump = Dump::from_env(name, module, &format!("{:?} {hints:?}{maps}", gpu.target()));
        let code = compile_gpu(name, module, gpu, hints, tma, &dump)?;
        Ok(place.get_or_init(|| Box::new(code)))
    }
}

/// Verifies a trace, runs the passes and verifies again.
///
/// # Errors
/// [`Error::Kernel`] for a trace that is ill-formed, [`Error::Compile`] for a pass that broke it.
pub(super) fn optimise(name: &str, mut module: Module) -> Result<Module> {
    verify(&module).map_err(Error::Kernel)?;
    pass::optimize(&mut module);
    verify(&module).map_err(|problems| Error::Compile {
        kernel: name.into(),
        stage: "the verifier after the passes",
        log: problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    })?;
    Ok(module)
}

/// Compiles a trace for a device.
pub(super) fn compile(name: &str, module: Module, device: Device, wishes: Wishes) -> Result<Executable> {
    let module = optimise(name, module)?;
    let dump = Dump::from_env(name, &module, &format!("{:?} {wishes:?}", device.target()));
    dump.write_module(&module)?;
    match device.as_gpu() {
        None => Ok(Executable::Cpu(Box::new(cpu::Program::compile(&module)?), Remarks::of_interpreted(name))),
        Some(gpu) if wishes.generator == Backend::TileIr => {
            check_hints(wishes.hints)?;
            Ok(Executable::Gpu(super::tileir::compile(name, &module, gpu, wishes.hints, Guards::Launch, &dump)?))
        }
        Some(gpu) => {
            let build = |tma| compile_gpu(name, &module, gpu, wishes.hints, tma, &dump);
            // The assembler has limits of its own for kernels whose warps have roles: the plain form has fewer.
            let code = build(true).or_else(|problem| match problem {
                Error::Compile { .. } => build(false).map_err(|_| problem),
                other => Err(other),
            });
            Ok(Executable::Gpu(code?))
        }
    }
}

/// Generates PTX; `tma`: the kernel may take tensor maps.
pub(super) fn generate(module: &Module, target: Target, hints: Hints, tma: bool) -> Result<ptx::Compiled> {
    check_hints(hints)?;
    let Hints { num_warps, occupancy, stages, num_ctas } = hints;
    ptx::compile(module, target, &CompileOptions { num_warps, occupancy, stages, num_ctas, tma })
}

fn check_hints(hints: Hints) -> Result<()> {
    let problem = match hints {
        Hints { num_warps: Some(n), .. } if !(n.is_power_of_two() && n <= 32) => {
            format!("num_warps is {n}: a power of two from 1 to 32 is needed")
        }
        Hints { num_ctas: Some(n), .. } if !(n.is_power_of_two() && n <= 16) => {
            format!("num_ctas is {n}: a power of two from 1 to 16 is needed")
        }
        Hints { occupancy: Some(n), .. } if !(1..=32).contains(&n) => {
            format!("occupancy is {n}: 1 to 32 tile blocks fit on a multiprocessor")
        }
        Hints { stages: Some(0), .. } => "stages is 0: a pipeline has at least one".into(),
        _ => return Ok(()),
    };
    Err(Error::Argument(Diagnostic::new(format!("hints of this launch: {problem}"), None)))
}

fn compile_gpu(
    name: &str,
    module: &Module,
    gpu: &'static Gpu,
    hints: Hints,
    tma: bool,
    dump: &Dump,
) -> Result<GpuCode> {
    let mut code = generate(module, gpu.target(), hints, tma)?;
    let (mut kernel, mut cubin) = assembled(name, gpu, &code)?;
    if code.min_blocks > 1 && hints.occupancy.is_none() && (spills(&cubin.log) || kernel.resources()?.1 > 0) {
        // So many blocks do not fit after all; memory traffic for registers costs more than they bring.
        code = generate(module, gpu.target(), Hints { occupancy: Some(1), ..hints }, tma)?;
        (kernel, cubin) = assembled(name, gpu, &code)?;
    }
    dump.write("layout", code.layout.as_bytes())?;
    dump.write("ptx", code.text.as_bytes())?;
    if !cubin.bytes.is_empty() {
        dump.write("cubin", &cubin.bytes)?;
    }
    dump.write("log", cubin.log.as_bytes())?;
    let maps = TensorMaps::of(&code.params).map(|maps| {
        let source = Source { name: name.into(), module: module.clone(), gpu, hints };
        Box::new(Mapped { maps, plain: OnceLock::new(), single: OnceLock::new(), building: Mutex::new(()), source })
    });
    let remarks = Remarks::of_gpu(name, gpu, &kernel, Some(code.remarks), remarks(&cubin.log))?;
    Ok(GpuCode { kernel, params: code.params, remarks, promises: None, maps })
}

/// The machine code of PTX, from the disk cache or the assembler, and the kernel loaded from it. Of a whole
/// program the driver keeps the code for itself, and has no log of it if it did so earlier.
fn assembled(name: &str, gpu: &'static Gpu, code: &ptx::Compiled) -> Result<(GpuKernel, Cubin)> {
    let config = LaunchConfig { threads: code.threads, shared_bytes: code.shared_bytes, cluster: code.cluster };
    if wants_whole_program(&code.text) {
        let (kernel, log) = GpuKernel::load_ptx(gpu, name, &code.text, &code.entry, config)?;
        return Ok((kernel, Cubin { bytes: Vec::new(), log }));
    }
    let load = |cubin: &Cubin| GpuKernel::load(gpu, &cubin.bytes, &code.entry, config);
    let disk = DiskCache::from_env();
    let key = content_key(gpu, &code.text)?;
    // A cubin that the driver refuses although its checksum is right is a miss, too.
    let kept = disk.as_ref().and_then(|disk| disk.get(&key)).and_then(|bytes| unpack(&bytes));
    if let Some(found) = kept.and_then(|cubin| load(&cubin).ok().map(|kernel| (kernel, cubin))) {
        return Ok(found);
    }
    let cubin = assemble(gpu, name, &code.text)?;
    let kernel = load(&cubin)?;
    if let Some(disk) = &disk {
        disk.put(&key, &pack(&cubin));
    }
    Ok((kernel, cubin))
}

/// Everything that machine code depends on. The options of the assembler are constant in
/// [`assemble`]; change the first part with them.
fn content_key(gpu: &Gpu, ptx: &str) -> Result<ContentKey> {
    let driver = gpu.driver_identity()?;
    Ok(ContentKey::of(&[b"link 1", ptx.as_bytes(), gpu.target().to_string().as_bytes(), driver.as_bytes()]))
}

/// Log and code in one entry of the disk cache: length of the log, log, code.
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

    #[test]
    fn cache_entries_hold_log_and_code() {
        let cubin = Cubin { bytes: vec![1, 2, 3], log: "0 bytes spill stores".into() };
        let back = unpack(&pack(&cubin)).unwrap();
        assert_eq!((back.bytes, back.log), (cubin.bytes, cubin.log));
        assert!(unpack(&[9, 0, 0, 0, 0, 0, 0, 0, 1]).is_none());
        assert!(unpack(&[1]).is_none());
    }

    #[test]
    fn impossible_hints_are_refused() {
        assert!(check_hints(Hints { num_warps: Some(4), ..Hints::default() }).is_ok());
        assert!(check_hints(Hints { num_warps: Some(3), ..Hints::default() }).is_err());
        assert!(check_hints(Hints { stages: Some(0), ..Hints::default() }).is_err());
    }
}
