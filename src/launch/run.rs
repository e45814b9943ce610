//! Running a compiled kernel: parameters to where the hardware or the interpreter takes them.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use super::executable::{Code, Executable, GpuCode};
use crate::backend::ptx::ParamKind;
use crate::backend::{ParamWord, cpu};
use crate::error::Result;
use crate::kernel::{INLINE_WORDS, LaunchArg, WordWriter};
use crate::runtime::driver::sys::CUtensorMap;
use crate::runtime::{FailureNote, MemoryUse, Stream, StreamHandle};

/// Queues a kernel on a stream of its device (the default one, if none is given), or runs it on the cpu device.
/// `dependent`: it may start while the kernel before it runs.
#[inline]
pub(super) fn run(
    executable: &Executable,
    stream: Option<&Stream>,
    grid: [u32; 3],
    dependent: bool,
    checks: cpu::Checks,
    args: &impl LaunchArg,
) -> Result<()> {
    let mut words = WordWriter::default();
    args.pack(&mut |word| words.push(word));
    if let Some(required) = &executable.required {
        required.check(grid, words.words())?;
    }
    match &executable.code {
        Code::Gpu(code) => {
            let own = stream.and_then(Stream::as_gpu);
            launch_gpu(code, own.unwrap_or(code.kernel.gpu().default_stream()), (grid, dependent), words.words(), args)
        }
        Code::Cpu(program, _) => launch_cpu(program, grid, checks, &words, args),
    }
}

#[inline]
fn launch_gpu(
    code: &GpuCode,
    stream: &StreamHandle,
    (grid, dependent): ([u32; 3], bool),
    words: &[ParamWord],
    args: &impl LaunchArg,
) -> Result<()> {
    let (code, maps) = code.for_launch(Some(grid), words)?;
    let code = match &code.promises {
        Some(promised) if !promised.checks.hold(grid, words) => promised.guarded.get()?,
        _ => code,
    };
    let maps = maps.as_deref().unwrap_or_default();
    let mut ordered = Ok(());
    args.memory(&mut |MemoryUse { memory, writes, .. }| {
        if ordered.is_ok() {
            ordered = memory.before_use(stream, writes);
        }
    });
    ordered?;
    // SAFETY (both): each pointer is to a word or map that lives until the call returns and is at least as
    // wide as the parameter. Arrays are on the GPU of this kernel; they are borrowed now, and freed in
    // the order of their streams.
    if code.params.len() <= INLINE_WORDS {
        let mut pointers = [const { MaybeUninit::<*mut c_void>::uninit() }; INLINE_WORDS];
        let pointers = &mut pointers[..code.params.len()];
        for (to, pointer) in pointers.iter_mut().zip(param_pointers(&code.params, words, maps, code.failure.as_deref()))
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
            param_pointers(&code.params, words, maps, code.failure.as_deref()).collect();
        // SAFETY: as above.
        unsafe { code.kernel.launch(stream, grid, dependent, &mut pointers) }
    }
}

/// Where the kernel's parameters lie, in order. `maps`: the tensor maps among them, in order; `failure`: the note of a
/// kernel that has assertions.
#[inline]
pub(super) fn param_pointers<'a>(
    params: &'a [ParamKind],
    words: &'a [ParamWord],
    maps: &'a [CUtensorMap],
    failure: Option<&'a FailureNote>,
) -> impl Iterator<Item = *mut c_void> + 'a {
    let mut maps = maps.iter();
    params.iter().map(move |kind| match kind {
        // The low bytes of a word come first: this is a little-endian machine, as the GPU is.
        ParamKind::Word { index, .. } => (&raw const words[*index as usize]).cast_mut().cast::<c_void>(),
        ParamKind::Failure => failure.expect("a note for assertions").address(),
        ParamKind::TensorMap(_) => {
            let map = maps.next().expect("a map for each of the kernel's tensor maps");
            (&raw const *map).cast_mut().cast::<c_void>()
        }
    })
}

fn launch_cpu(
    program: &cpu::Program,
    grid: [u32; 3],
    checks: cpu::Checks,
    words: &WordWriter,
    args: &impl LaunchArg,
) -> Result<()> {
    let mut memory = cpu::Memory::new();
    args.memory(&mut |used| {
        if let Some(base) = used.memory.host_pointer().filter(|_| !used.memory.is_empty()) {
            // SAFETY: the allocation is initialised and lives while the argument is borrowed, which is
            // until the launch returns; a unique borrow keeps others from a writable one, shared ones
            // keep everybody from writing.
            unsafe { memory.add(base, used.memory.len(), used.writes) };
        }
    });
    // SAFETY: a kernel makes addresses by unsafe functions alone, whose contract (`ops::pointer`) asks for this.
    unsafe { memory.allow_any() };
    program.run(grid, words.words(), &memory, &cpu::RunOptions { checks, ..cpu::RunOptions::default() })
}
