//! Execution of a compiled kernel: passes the parameters to the driver or the interpreter.

use crate::util::collect::CollectVec as _;
use std::ffi::c_void;
use std::mem::MaybeUninit;

use super::checks::{ShadowMemory, unwritten, zones};
use super::compile::executable::{Code, Executable, GpuCode};
use super::compile::params::param_pointers;
use super::graph_launch::{claimed, note};
use super::inspect::profile;
use super::inspect::profile::{Profiled, Span};
use super::inspect::trace::Traced;
use super::overrides;
use super::specialize::Specialized;
use crate::backend::{ParamWord, cpu};
use crate::error::{Location, Result};
use crate::kernel::{AnyArgs, INLINE_WORDS, WordBuffer};
use crate::runtime::graph::recorder;
use crate::runtime::{
    Access, Device, MemoryUse, Stream, StreamHandle, launch_end, red_zones_are_in_use, write_records_are_in_use,
};
use crate::util::span;

/// Queues a compiled kernel on a stream of its device (`None`: the default one), or executes it on
/// the cpu device. If the launch belongs to the graph that this thread records, the kernel is added
/// to the graph. `dependent`: it may start while the preceding kernel is in progress.
#[inline]
#[track_caller]
pub(super) fn run(
    slot: &Specialized,
    stream: Option<&Stream>,
    grid: [u32; 3],
    dependent: bool,
    checks: cpu::Checks,
    args: &dyn AnyArgs,
) -> Result<()> {
    let executable = slot.get().expect("a slot that was specialized is filled");
    let _span = span::launch(executable.remarks().kernel(), grid);
    let claimed = if recorder::is_on() { claimed(executable.remarks().kernel(), args)? } else { None };
    let device = match &executable.code {
        Code::Gpu(code) => Device::from_gpu(code.kernel.gpu()),
        Code::Cpu(..) => Device::cpu(),
    };
    make(args, device)?;
    let mut words = WordBuffer::default();
    args.pack(&mut |word| words.push(word));
    if let Some(required) = &executable.required {
        required.check(grid, words.words())?;
    }
    if write_records_are_in_use() {
        mark_written(executable, checks, words.words(), args)?;
    }
    if executable.is_recorded() && claimed.is_none() {
        return checked(slot, stream, (grid, dependent), checks, words, args);
    }
    if let Some(claimed) = claimed {
        return note(claimed, slot, (grid, dependent), checks, words.words(), args);
    }
    execute(executable, stream, (grid, dependent), checks, &words, args, &[])?;
    if red_zones_are_in_use() { check_zones(executable, stream, args) } else { Ok(()) }
}

/// Records a write of all elements that the launch may write without a record of its own.
///
/// # Errors
/// Errors of earlier work on the device.
#[cold]
fn mark_written(executable: &Executable, checks: cpu::Checks, words: &[ParamWord], args: &dyn AnyArgs) -> Result<()> {
    match (&executable.unwritten, &executable.code) {
        (Some(unwritten), _) => unwritten.mark_others(words, args),
        (None, Code::Cpu(..)) if checks.unwritten => Ok(()),
        (None, _) => unwritten::mark_written(args, &|_, _| false),
    }
}

/// Executes a kernel with a record of its accesses. The check of races waits for its end.
///
/// # Errors
/// [`Error::Execution`](crate::Error::Execution) for a race; errors of the launch.
#[cold]
#[track_caller]
fn checked(
    slot: &Specialized,
    stream: Option<&Stream>,
    (grid, dependent): ([u32; 3], bool),
    checks: cpu::Checks,
    mut words: WordBuffer,
    args: &dyn AnyArgs,
) -> Result<()> {
    let executable = slot.get().expect("a slot that was specialized is filled");
    let device = match &executable.code {
        Code::Gpu(code) => Device::from_gpu(code.kernel.gpu()),
        Code::Cpu(..) => Device::cpu(),
    };
    let (races, unwritten) = (executable.races.as_ref(), executable.unwritten.as_ref());
    let shadows = races.map(|races| races.shadows(device, stream, words.words(), args)).transpose()?;
    let log = races.and_then(|races| races.log());
    let log = log.map(|log| Ok((log, log.begin(device, words.words(), args)?))).transpose()?;
    let records = unwritten.map(|unwritten| unwritten.records(device, words.words(), args)).transpose()?;
    let memory: Vec<ShadowMemory<'_>> = {
        let shadows = shadows.iter().flatten().map(|shadow| shadow.shadow());
        let shadows = shadows.chain(log.iter().map(|(_, log)| log.shadow()));
        shadows.chain(records.iter().flatten().map(|record| record.shadow())).collect_vec()
    };
    memory.iter().for_each(|shadow| words.push(shadow.word));
    execute(executable, stream, (grid, dependent), checks, &words, args, &memory)?;
    if let (Some(races), Some(shadows)) = (races, &shadows) {
        races.scan(shadows, stream, grid)?;
    }
    if let Some((check, log)) = &log {
        check.analyse(log, grid, args)?;
    }
    if red_zones_are_in_use() { check_zones(executable, stream, args) } else { Ok(()) }
}

/// Compares the red zones of the arrays of a launch, unless its stream is captured: the launch then
/// has not run.
///
/// # Errors
/// As [`zones::check`].
#[cold]
#[track_caller]
fn check_zones(executable: &Executable, stream: Option<&Stream>, args: &dyn AnyArgs) -> Result<()> {
    if let Code::Gpu(code) = &executable.code {
        let own = stream.and_then(Stream::as_gpu);
        if own.unwrap_or(code.kernel.gpu().default_stream()).is_captured()? {
            return Ok(());
        }
    }
    zones::check(executable, args)
}

/// Executes a kernel with these parameter words. `shadows`: memory that it also uses.
#[inline]
fn execute(
    executable: &Executable,
    stream: Option<&Stream>,
    (grid, dependent): ([u32; 3], bool),
    checks: cpu::Checks,
    words: &WordBuffer,
    args: &dyn AnyArgs,
    shadows: &[ShadowMemory<'_>],
) -> Result<()> {
    match (&executable.code, &executable.profiled) {
        (Code::Gpu(code), None) => {
            let own = stream.and_then(Stream::as_gpu);
            let stream = own.unwrap_or(code.kernel.gpu().default_stream());
            shadows.iter().try_for_each(|shadow| shadow.before_use(stream))?;
            launch_gpu(code, stream, (grid, dependent), words.words(), args, None)
        }
        (Code::Cpu(program, _), None) => launch_cpu(program, grid, checks, words, args, shadows),
        (code, Some(kernel)) => profiled(code, kernel, stream, (grid, dependent), checks, (words, shadows), args),
    }
}

/// Allocates the arrays that the launch owns.
///
/// # Errors
/// Errors of the allocations, at the location of the launch.
#[inline]
#[track_caller]
pub(super) fn make(args: &dyn AnyArgs, device: Device) -> Result<()> {
    match args.make(Some(device)) {
        Ok(()) => Ok(()),
        Err(error) => Err(error.placed(Location::caller())),
    }
}

#[cold]
fn profiled(
    code: &Code,
    kernel: &Profiled,
    stream: Option<&Stream>,
    (grid, dependent): ([u32; 3], bool),
    checks: cpu::Checks,
    (words, shadows): (&WordBuffer, &[ShadowMemory<'_>]),
    args: &dyn AnyArgs,
) -> Result<()> {
    let mut span = Span::default();
    match code {
        Code::Gpu(code) => {
            let own = stream.and_then(Stream::as_gpu);
            let stream = own.unwrap_or(code.kernel.gpu().default_stream());
            shadows.iter().try_for_each(|shadow| shadow.before_use(stream))?;
            launch_gpu(code, stream, (grid, dependent), words.words(), args, Some(&mut span))?;
        }
        Code::Cpu(program, _) => span.of_host(|| launch_cpu(program, grid, checks, words, args, shadows))?,
    }
    profile::note(kernel, grid, words.words(), span);
    Ok(())
}

#[inline]
fn launch_gpu(
    code: &GpuCode,
    stream: &StreamHandle,
    (grid, dependent): ([u32; 3], bool),
    words: &[ParamWord],
    args: &dyn AnyArgs,
    mut span: Option<&mut Span>,
) -> Result<()> {
    let may_compile = || stream.is_captured().is_ok_and(|captured| !captured);
    let (code, maps) = code.chosen(grid, words, &may_compile)?;
    let (grid, words) = code.launched(grid, words);
    let (words, maps) = (&*words, maps.as_deref().unwrap_or_default());
    let mut ordered = Ok(());
    args.memory(&mut |MemoryUse { memory, writes, part, .. }| {
        if ordered.is_ok() {
            ordered = memory.before_use(stream, Access::of(writes, part));
        }
    });
    ordered?;
    let (trace, traced) = match &code.trace {
        Some(trace) => trace.begin(stream)?,
        None => (None, None),
    };
    if let Some(span) = &mut span {
        span.begin(&Stream::from_handle(stream.clone()));
    }
    // SAFETY (both): each pointer is to a word or map that lives until the call returns and is at
    // least as wide as the parameter. Arrays are on the GPU of this kernel or accessible by it;
    // they are borrowed now, and freed in the order of their streams.
    let launched = if code.params.len() <= INLINE_WORDS {
        let mut pointers = [const { MaybeUninit::<*mut c_void>::uninit() }; INLINE_WORDS];
        let pointers = &mut pointers[..code.params.len()];
        for (to, pointer) in
            pointers.iter_mut().zip(param_pointers(&code.params, words, maps, code.failure.as_deref(), trace))
        {
            to.write(pointer);
        }
        // SAFETY: as above; every element was written.
        unsafe {
            let pointers = std::slice::from_raw_parts_mut(pointers.as_mut_ptr().cast(), pointers.len());
            code.kernel.launch(stream, grid, dependent, pointers)
        }
    } else {
        let mut pointers: Vec<*mut c_void> =
            param_pointers(&code.params, words, maps, code.failure.as_deref(), trace).collect_vec();
        // SAFETY: as above.
        unsafe { code.kernel.launch(stream, grid, dependent, &mut pointers) }
    };
    if let Some(span) = span {
        span.end(&Stream::from_handle(stream.clone()));
    }
    launched?;
    traced.map_or(Ok(()), Traced::end)
}

fn launch_cpu(
    program: &cpu::Program,
    grid: [u32; 3],
    checks: cpu::Checks,
    words: &WordBuffer,
    args: &dyn AnyArgs,
    shadows: &[ShadowMemory<'_>],
) -> Result<()> {
    let mut memory = cpu::Memory::new();
    shadows.iter().for_each(|shadow| shadow.add_to(&mut memory));
    args.memory(&mut |used| {
        if let Some(base) = used.memory.host_pointer().filter(|_| !used.memory.is_empty()) {
            // SAFETY: the allocation is initialized and lives while the argument is borrowed, which
            // is until the launch returns. A unique borrow excludes other accesses to a writable
            // array; shared borrows exclude writes.
            unsafe {
                match used.memory.write_record().ok().flatten().filter(|_| checks.unwritten) {
                    None => memory.add(base, used.memory.len(), used.writes),
                    Some(record) => {
                        let bytes = record.bytes.host_pointer().expect("a record on the device of its array");
                        memory.add_recorded((base, used.memory.len()), used.writes, bytes, record.unit);
                    }
                }
            }
        }
    });
    // SAFETY: kernels make addresses by unsafe functions only, whose contract (`ops::pointer`)
    // includes this.
    unsafe { overrides::allow_computed(&mut memory, checks) };
    program.run(
        grid,
        words.words(),
        &memory,
        &cpu::RunOptions { checks, until: launch_end(), order: overrides::order(), ..cpu::RunOptions::default() },
    )
}
