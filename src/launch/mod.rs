//! Launching: from a kernel with its arguments to running code, by the shortest way that is valid.
//!
//! The only room that sees all others. A launch
//! 1. finds the device of its arrays,
//! 2. writes the specialisation key (what the code depends on) on the stack,
//! 3. looks it up among the kernels that this thread launched lately, then among all; only when there
//!    is none is the kernel traced and compiled ([`compile`]),
//! 4. writes the parameter words on the stack, orders the stream behind other uses of the arrays, and
//!    queues the kernel.
//!
//! Step 3 knows a kernel by its type, if the type has size 0: a function item, a closure that captures
//! nothing. Other kernels (closures with captures, function pointers) are traced at every launch and
//! known by their trace, so that captured values are never stale.

mod code;
mod compile;
mod dump;
mod grid;

use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::mem::MaybeUninit;
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHasher;

pub use code::{code_ir, code_ptx};
pub use grid::Grid;

use self::compile::{Executable, GpuCode, compile};
use crate::backend::ptx::ParamKind;
use crate::backend::{Hints, cpu};
use crate::cache::memory::{Identity, MemoryCache, Recent, Slot, Wanted, hash_words};
use crate::cache::trace::hash_trace;
use crate::error::{Error, Result};
use crate::kernel::{INLINE_WORDS, Kernel, LaunchArg, LaunchArgs, StoredConstant, WordWriter, trace_kernel};
use crate::runtime::{Backend, Device, MemoryUse, Stream};

/// Runs a kernel once for every tile block of a grid.
///
/// `kernel` is a function or closure over what the arguments trace to: `&DeviceArray` arrives as
/// `Array`, `&mut DeviceArray` as `ArrayMut`, a number as `Scalar`, `Constant(x)` as `x`. It runs on the
/// device of its arrays, on that device's default stream; without arrays on [`Device::first`]. On a GPU
/// this returns when the work is queued, on the cpu device when it is done. [`Launch`] has more choices.
///
/// The first launch with given types, constants and forms of arrays traces and compiles the kernel;
/// later ones only queue it.
///
/// ```
/// use cutlet as ct;
///
/// fn double(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     let tile = x.load([ct::bid(0)], [16]);
///     y.store([ct::bid(0)], tile + tile);
/// }
///
/// let device = ct::Device::cpu();
/// let x = device.array(&[1.0f32; 40], [40])?;
/// let mut y = device.zeros([40])?;
/// ct::launch(double, 40usize.div_ceil(16), (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [2.0; 40]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`Error::Kernel`] with everything that is wrong in the kernel, [`Error::Unsupported`] for what the
/// device cannot run, [`Error::Argument`] for arrays on several devices or a grid beyond the limits,
/// [`Error::Driver`] when this or earlier work on the device failed. Nothing runs then, except that on
/// the cpu device [`Error::Execution`] may leave writable arrays partly written.
///
/// # Panics
/// When the kernel panics while it is traced.
#[track_caller]
pub fn launch<K, A>(kernel: K, grid: impl Into<Grid>, args: A) -> Result<()>
where
    A: LaunchArgs,
    K: Kernel<A::Traced>,
{
    Launch::new(grid).launch(kernel, args)
}

/// A launch with choices: stream, back end, hints.
///
/// ```
/// use cutlet as ct;
/// # fn fill(y: ct::ArrayMut<i32, 1>, value: ct::Scalar<i32>) {
/// #     y.store([ct::bid(0)], ct::full::<i32, 1>([8], value));
/// # }
/// let device = ct::Device::cpu();
/// let stream = device.stream()?;
/// let mut y = device.zeros([20])?;
/// ct::Launch::new(3).stream(&stream).hints(ct::Hints { num_warps: Some(4), ..Default::default() })
///     .launch(fill, (&mut y, 7))?;
/// assert_eq!(y.to_vec()?, [7; 20]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Launch<'s> {
    grid: Grid,
    stream: Option<&'s Stream>,
    backend: Option<Backend>,
    hints: Hints,
}

/// Every kernel that was compiled by this process.
static COMPILED: MemoryCache<Executable> = MemoryCache::new();

thread_local! {
    static RECENT: Recent<Executable> = const { Recent::new() };
}

impl<'s> Launch<'s> {
    /// A launch over a grid, without further choices.
    pub fn new(grid: impl Into<Grid>) -> Launch<'s> {
        Launch { grid: grid.into(), stream: None, backend: None, hints: Hints::default() }
    }

    /// Queues on this stream.
    pub fn stream(mut self, stream: &'s Stream) -> Launch<'s> {
        self.stream = Some(stream);
        self
    }

    /// Requires this back end. The device of the arrays decides which one runs, so with arrays this
    /// is a check; without arrays it is a choice.
    pub fn backend(mut self, backend: Backend) -> Launch<'s> {
        self.backend = Some(backend);
        self
    }

    /// Passes wishes to the code generator.
    pub fn hints(mut self, hints: Hints) -> Launch<'s> {
        self.hints = hints;
        self
    }

    /// Runs the kernel: see [`launch`].
    ///
    /// # Errors
    /// As [`launch`]; [`Error::Argument`] also when stream or back end do not belong to the device of
    /// the arrays.
    ///
    /// # Panics
    /// As [`launch`].
    #[track_caller]
    pub fn launch<K, A>(&self, kernel: K, args: A) -> Result<()>
    where
        A: LaunchArgs,
        K: Kernel<A::Traced>,
    {
        let device = self.device(&args)?;
        let Some(grid) = self.grid.checked()? else { return Ok(()) };
        let slot = self.specialise(&kernel, &args, device)?;
        let default;
        let stream = match self.stream {
            Some(stream) => stream,
            None => {
                default = device.default_stream();
                &default
            }
        };
        let mut params = WordWriter::default();
        args.pack(&mut |word| params.push(word));
        match slot.get() {
            Some(Executable::Gpu(code)) => launch_gpu(code, stream, grid, &params, &args),
            Some(Executable::Cpu(program)) => launch_cpu(program, grid, &params, &args),
            None => unreachable!("specialise gives a compiled kernel"),
        }
    }

    /// The device that the arrays are on, or that the choices mean.
    #[track_caller]
    fn device(&self, args: &impl LaunchArg) -> Result<Device> {
        let mut device: Option<Device> = None;
        let mut other = None;
        let mut absent = false;
        args.memory(&mut |used| {
            absent |= used.memory.is_absent();
            let its = used.memory.device();
            match device {
                None => device = Some(its),
                Some(first) if first != its => other = Some(its),
                Some(_) => {}
            }
        });
        if absent {
            return Err(Error::argument(
                "an ArraySpec describes an array that does not exist: launch with arrays made by a Device",
            ));
        }
        if let (Some(first), Some(other)) = (device, other) {
            return Err(Error::argument(format!(
                "the arrays of this launch are on {first} and on {other}: \
                 make all on one device, or copy with `copy_from_array`"
            )));
        }
        let device = match device.or_else(|| self.stream.map(Stream::device)) {
            Some(device) => device,
            None => default_device(self.backend)?,
        };
        self.check_choices(device)?;
        Ok(device)
    }

    #[inline]
    #[track_caller]
    fn check_choices(&self, device: Device) -> Result<()> {
        if let Some(stream) = self.stream
            && stream.device() != device
        {
            let its = stream.device();
            return Err(Error::argument(format!(
                "the stream belongs to {its}, the arrays of this launch are on {device}"
            )));
        }
        match self.backend {
            Some(backend) if backend != device.backend() => Err(Error::argument(format!(
                "the {backend} back end was asked for, but the arrays of this launch are on {device}: \
                 make them on {}",
                if backend == Backend::Cpu { "`Device::cpu()`" } else { "`Device::gpu(0)`" }
            ))),
            _ => Ok(()),
        }
    }

    /// The compiled kernel for these arguments.
    #[track_caller]
    fn specialise<K, A>(&self, kernel: &K, args: &A, device: Device) -> Result<Arc<Slot<Executable>>>
    where
        A: LaunchArgs,
        K: Kernel<A::Traced>,
    {
        let mut key = WordWriter::default();
        key.push(device.id());
        let [warps, stages, ctas, occupancy] = self.hints.words();
        key.push(u64::from(warps) << 32 | u64::from(stages));
        key.push(u64::from(ctas) << 32 | u64::from(occupancy));
        if !K::IS_ZERO_SIZED {
            return self.specialise_trace(kernel, args, device, key);
        }
        args.key(&mut key);
        let id = typeid::of::<K>();
        let mut seed = FxHasher::default();
        id.hash(&mut seed);
        let hash = hash_words(seed.finish(), key.words());
        let same_constants = |stored: &[StoredConstant]| args.same_constants(&mut stored.iter());
        let wanted = Wanted::Type(id, &same_constants);
        if let Some(slot) = recent(hash, key.words(), &wanted) {
            return Ok(slot);
        }
        let slot = COMPILED.slot(hash, key.words(), &wanted, || {
            let mut constants = Vec::new();
            args.store_constants(&mut constants);
            Identity::Type(id, constants)
        });
        if slot.get().is_none() {
            let _only_one = slot.lock();
            if slot.get().is_none() {
                let name = kernel.name();
                let module = trace_kernel(&name, kernel, args)?;
                slot.fill(|| compile(&name, module, device, self.hints))?;
            }
        }
        remember(&slot);
        Ok(slot)
    }

    /// As [`Launch::specialise`], for a kernel whose type does not say what it does.
    #[track_caller]
    fn specialise_trace<K, A>(
        &self,
        kernel: &K,
        args: &A,
        device: Device,
        key: WordWriter,
    ) -> Result<Arc<Slot<Executable>>>
    where
        A: LaunchArgs,
        K: Kernel<A::Traced>,
    {
        let name = kernel.name();
        let module = trace_kernel(&name, kernel, args)?;
        let hash = hash_words(hash_trace(&module), key.words());
        if let Some(slot) = recent(hash, key.words(), &Wanted::Trace(&module)) {
            return Ok(slot);
        }
        let identity = || Identity::Trace(Box::new(module.clone()));
        let slot = COMPILED.slot(hash, key.words(), &Wanted::Trace(&module), identity);
        if slot.get().is_none() {
            let _only_one = slot.lock();
            slot.fill(|| compile(&name, module, device, self.hints))?;
        }
        remember(&slot);
        Ok(slot)
    }
}

impl Hints {
    /// One number for each hint; 0 is no wish.
    #[inline]
    fn words(&self) -> [u32; 4] {
        // A wish for 0 is refused when compiling; it must not look like none.
        let word = |hint: Option<u32>| hint.map_or(0, |n| if n == 0 { u32::MAX } else { n });
        [word(self.num_warps), word(self.stages), word(self.num_ctas), word(self.occupancy)]
    }
}

#[inline]
fn recent(hash: u64, words: &[u64], wanted: &Wanted<'_>) -> Option<Arc<Slot<Executable>>> {
    // While the thread ends its table may be gone already.
    RECENT.try_with(|recent| recent.find(hash, words, wanted)).ok().flatten()
}

fn remember(slot: &Arc<Slot<Executable>>) {
    let _ = RECENT.try_with(|recent| recent.put(slot));
}

/// The device of launches without arrays.
fn default_device(backend: Option<Backend>) -> Result<Device> {
    static FIRST: OnceLock<Device> = OnceLock::new();
    match backend {
        Some(Backend::Cpu) => Ok(Device::cpu()),
        Some(Backend::Ptx) => Device::gpu(0),
        None => match FIRST.get() {
            Some(&device) => Ok(device),
            None => {
                let device = Device::first()?;
                Ok(*FIRST.get_or_init(|| device))
            }
        },
    }
}

#[inline]
fn launch_gpu(
    code: &GpuCode,
    stream: &Stream,
    grid: [u32; 3],
    words: &WordWriter,
    args: &impl LaunchArg,
) -> Result<()> {
    let Some(stream_of_gpu) = stream.as_gpu() else { unreachable!("the stream was checked to be of this device") };
    let mut ordered = Ok(());
    args.memory(&mut |MemoryUse { memory, writes }| {
        if ordered.is_ok() {
            ordered = memory.before_use(stream, writes);
        }
    });
    ordered?;
    let words = words.words();
    let pointer = |kind: &ParamKind| match *kind {
        // The low bytes of a word come first: this is a little-endian machine, as the GPU is.
        ParamKind::Word { index, .. } => (&raw const words[index as usize]).cast_mut().cast::<c_void>(),
    };
    // SAFETY (both): each pointer is to a word that lives until the call returns and is at least as
    // wide as the parameter. Arrays are on the GPU of this kernel; they are borrowed now, and freed in
    // the order of their streams.
    if code.params.len() <= INLINE_WORDS {
        let mut pointers = [const { MaybeUninit::<*mut c_void>::uninit() }; INLINE_WORDS];
        let pointers = &mut pointers[..code.params.len()];
        for (to, kind) in pointers.iter_mut().zip(&code.params) {
            to.write(pointer(kind));
        }
        // SAFETY: as above; every element was written.
        unsafe {
            let pointers = std::slice::from_raw_parts_mut(pointers.as_mut_ptr().cast(), pointers.len());
            code.kernel.launch(stream_of_gpu, grid, pointers)
        }
    } else {
        let mut pointers: Vec<*mut c_void> = code.params.iter().map(pointer).collect();
        // SAFETY: as above.
        unsafe { code.kernel.launch(stream_of_gpu, grid, &mut pointers) }
    }
}

fn launch_cpu(program: &cpu::Program, grid: [u32; 3], words: &WordWriter, args: &impl LaunchArg) -> Result<()> {
    let mut memory = cpu::Memory::new();
    args.memory(&mut |used| {
        if let Some(base) = used.memory.host_pointer().filter(|_| !used.memory.is_empty()) {
            // SAFETY: the allocation is initialised and lives while the argument is borrowed, which is
            // until the launch returns; a unique borrow keeps others from a writable one, shared ones
            // keep everybody from writing.
            unsafe { memory.add(base, used.memory.len(), used.writes) };
        }
    });
    program.run(grid, words.words(), &memory, &cpu::RunOptions::default())
}
