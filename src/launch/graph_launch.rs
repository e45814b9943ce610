//! Launches as nodes of a graph: the selected code with its parameters.

use crate::util::collect::CollectVec as _;
use std::ffi::c_void;
use std::sync::Arc;

use super::compile::executable::{Code, GpuCode};
use super::compile::params::param_pointers;
use super::compile::tensor_map_cache::Encoded;
use super::overrides::allow_computed;
use super::specialize::Specialized;
use crate::backend::ptx::ParamKind;
use crate::backend::{ParamWord, cpu};
use crate::error::{Error, Result};
use crate::kernel::AnyArgs;
use crate::runtime::graph::recorder;
use crate::runtime::graph::recorder::{Claimed, Node, RecordedLaunch, Used, Work};
use crate::runtime::{Device, FailureNote, GpuFunction, GpuStream, launch_end};

/// Recorded launch on the cpu device.
struct OnCpu {
    kernel: Specialized,
    grid: [u32; 3],
    checks: cpu::Checks,
    words: Box<[ParamWord]>,
}

/// Recorded launch on a GPU.
struct OnGpu {
    function: GpuFunction,
    grid: [u32; 3],
    dependent: bool,
    kinds: Box<[ParamKind]>,
    words: Box<[ParamWord]>,
    maps: Option<Encoded>,
    failure: Option<Arc<FailureNote>>,
    /// Owner of the function, as one of its forms.
    kernel: Specialized,
}

/// Returns the recording of a launch, on a thread that records a graph; see [`recorder::claim`].
///
/// # Errors
/// [`Error::Argument`] for a launch of a graph that allocates arrays.
#[cold]
#[track_caller]
pub(super) fn claimed(kernel: &str, args: &dyn AnyArgs) -> Result<Option<Claimed>> {
    let mut uses = Vec::new();
    args.memory(&mut |used| uses.push(used.memory.used(used.writes)));
    let claimed = recorder::claim(&uses, || format!("kernel `{kernel}`"));
    if claimed.is_some() && args.make(None).is_err() {
        return Err(Error::argument(format!(
            "kernel `{kernel}` makes a `NewArray`, which is no work of a graph: make the array before, and let the graph hold \
             it as a part of its state"
        )));
    }
    Ok(claimed)
}

/// Adds a launch to the graph that this thread records. `slot`: a compiled one.
///
/// # Errors
/// Errors of the compilation of another form of the kernel.
#[cold]
pub(super) fn note(
    claimed: Claimed,
    slot: &Specialized,
    (grid, dependent): ([u32; 3], bool),
    checks: cpu::Checks,
    words: &[ParamWord],
    args: &dyn AnyArgs,
) -> Result<()> {
    let mut uses = Vec::new();
    args.memory(&mut |used| uses.push(used.memory.used(used.writes)));
    let (kernel, executable) = (slot.clone(), slot.get().expect("a slot that was specialized is filled"));
    let (device, launch): (Device, Box<dyn RecordedLaunch>) = match &executable.code {
        Code::Cpu(..) => (Device::cpu(), Box::new(OnCpu { kernel, grid, checks, words: words.into() })),
        Code::Gpu(code) => {
            let (code, maps): (&GpuCode, _) = code.chosen(grid, words, &|| true)?;
            let (grid, words) = code.launched(grid, words);
            let launch = OnGpu {
                function: code.kernel.function(),
                grid,
                dependent,
                kinds: code.params.as_slice().into(),
                words: words.into(),
                maps,
                failure: code.failure.clone(),
                kernel,
            };
            (Device::from_gpu(code.kernel.gpu()), Box::new(launch))
        }
    };
    recorder::note(claimed, Node { device, work: Work::Launch(launch), uses });
    Ok(())
}

fn name_of(kernel: &Specialized) -> &str {
    kernel.get().map_or("?", |executable| executable.remarks().kernel())
}

impl RecordedLaunch for OnCpu {
    fn kernel(&self) -> &str {
        name_of(&self.kernel)
    }

    unsafe fn run(&self, uses: &[Used]) -> Result<()> {
        let Some(Code::Cpu(program, _)) = self.kernel.get().map(|executable| &executable.code) else { return Ok(()) };
        let mut memory = cpu::Memory::new();
        for used in uses.iter().filter(|used| used.bytes > 0) {
            // SAFETY: guaranteed by the caller.
            unsafe { memory.add(used.host_pointer(), used.bytes, used.writes) };
        }
        // SAFETY: kernels make addresses by unsafe functions only, whose contract (`ops::pointer`)
        // includes this.
        unsafe { allow_computed(&mut memory, self.checks) };
        let options = cpu::RunOptions { checks: self.checks, until: launch_end(), ..cpu::RunOptions::default() };
        program.run(self.grid, &self.words, &memory, &options)
    }

    unsafe fn queue(&self, _stream: &GpuStream, _dependent: bool) -> Result<()> {
        Ok(())
    }
}

impl RecordedLaunch for OnGpu {
    fn kernel(&self) -> &str {
        name_of(&self.kernel)
    }

    unsafe fn run(&self, _uses: &[Used]) -> Result<()> {
        Ok(())
    }

    unsafe fn queue(&self, stream: &GpuStream, dependent: bool) -> Result<()> {
        let maps = self.maps.as_deref().unwrap_or_default();
        let mut pointers: Vec<*mut c_void> =
            param_pointers(&self.kinds, &self.words, maps, self.failure.as_deref(), None).collect_vec();
        // SAFETY: each pointer is to a word or map that lives until the call returns and is at
        // least as wide as the parameter; `self.kernel` keeps the function loaded. The rest is
        // guaranteed by the caller.
        unsafe { self.function.launch(stream, self.grid, self.dependent && dependent, &mut pointers) }
    }
}
