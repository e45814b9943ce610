//! Launching: from a kernel with its arguments to running code, by the shortest way that is valid.
//!
//! The only room that sees all others. A launch
//! 1. finds the device of its arrays,
//! 2. writes the specialisation key (what the code depends on) on the stack,
//! 3. looks it up among the kernels that this thread launched lately, then among all ([`specialise`]);
//!    only when there is none is the kernel traced and compiled ([`mod@compile`]),
//! 4. writes the parameter words on the stack, orders the stream behind other uses of the arrays, and
//!    queues the kernel ([`run`]).
//!
//! Step 3 knows a kernel by its type, if the type has size 0: a function item, a closure that captures
//! nothing. Other kernels (closures with captures, function pointers) are traced at every launch and
//! known by their trace, so that captured values are never stale.

mod code;
mod compile;
mod compiled;
mod dump;
mod export;
mod grid;
mod promise;
mod raw;
mod remarks;
mod roofline;
mod run;
mod specialise;
mod tensor_map;
mod tileir;

use std::sync::OnceLock;

pub use code::{code_ir, code_ptx};
pub use compiled::{CompiledKernel, compile};
pub use export::{Exported, ExportedParam, Format, code_tiled, export};
pub use grid::Grid;
pub use raw::RawLaunch;
pub use remarks::Remarks;

use self::run::run;
use self::specialise::{Wishes, specialise};
use crate::backend::Hints;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, LaunchArg, LaunchArgs, name_of, refuse_nested};
use crate::runtime::{Backend, Device, Stream};

/// Runs a kernel once for every tile block of a grid.
///
/// `kernel` is a function or closure over what the arguments trace to: `&DeviceArray` arrives as
/// `Array`, `&mut DeviceArray` as `ArrayMut`, a number as `Scalar`, `Constant(x)` as `x`. It runs on the
/// device of its arrays, on that device's default stream; without arrays on [`Device::first`]. On a GPU
/// this returns when the work is queued, on the cpu device when it is done. [`Launch`] has more choices.
///
/// The first launch with given types, constants and forms of arrays traces and compiles the kernel;
/// later ones only queue it. A process keeps the 1024 kernels that were launched last, and those that a
/// [`CompiledKernel`] or a thread still holds.
///
/// A launch inside of a kernel is an error, except on threads of a rayon pool: a kernel that waits there for
/// others (`rayon::join`) may find another task of the pool on its stack, which is free to launch.
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
        refuse_nested(name_of::<K>)?;
        let device = self.device(&args)?;
        let Some(grid) = self.grid.checked()? else { return Ok(()) };
        let slot = specialise(&kernel, &args, device, self.wishes(device)?)?;
        let executable = slot.get().expect("a slot that was specialised is filled");
        if remarks::wanted() {
            self.say_work(device, grid, &kernel, &args, executable.remarks());
        }
        run(executable, self.stream, grid, &args)
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

    /// Hints, and the back end that makes the code: explicit, from the environment, or Tile IR where the
    /// driver compiles it and PTX elsewhere.
    #[inline]
    fn wishes(&self, device: Device) -> Result<Wishes> {
        static ASKED: OnceLock<Option<Backend>> = OnceLock::new();
        let Some(gpu) = device.as_gpu() else { return Ok(Wishes { hints: self.hints, generator: Backend::Cpu }) };
        let asked = match (self.backend, ASKED.get()) {
            (Some(backend), _) => Some(backend),
            (None, Some(asked)) => *asked,
            (None, None) => *ASKED.get_or_init(|| Backend::from_env().ok().flatten()),
        };
        Ok(Wishes { hints: self.hints, generator: generator(asked, || tileir::driver_compiles(gpu)) })
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
            Some(Backend::TileIr) if device.backend() == Backend::Ptx => Ok(()),
            Some(backend) if backend != device.backend() => Err(Error::argument(format!(
                "the {backend} back end was asked for, but the arrays of this launch are on {device}: \
                 make them on {}",
                if backend == Backend::Cpu { "`Device::cpu()`" } else { "`Device::gpu(0)`" }
            ))),
            _ => Ok(()),
        }
    }
}

/// What makes the code for a GPU: what was asked for; else Tile IR where the driver compiles it, and PTX elsewhere.
#[inline]
fn generator(asked: Option<Backend>, driver_compiles: impl Fn() -> bool) -> Backend {
    match asked {
        Some(backend @ (Backend::Ptx | Backend::TileIr)) => backend,
        Some(Backend::Cpu) | None if driver_compiles() => Backend::TileIr,
        Some(Backend::Cpu) | None => Backend::Ptx,
    }
}

/// The device of launches without arrays.
fn default_device(backend: Option<Backend>) -> Result<Device> {
    static FIRST: OnceLock<Device> = OnceLock::new();
    match backend {
        Some(Backend::Cpu) => Ok(Device::cpu()),
        Some(Backend::Ptx | Backend::TileIr) => Device::gpu(0),
        None => match FIRST.get() {
            Some(&device) => Ok(device),
            None => {
                let device = Device::first()?;
                Ok(*FIRST.get_or_init(|| device))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tile_ir_is_chosen_where_the_driver_compiles_it() {
        for compiles in [false, true] {
            assert_eq!(generator(None, || compiles), if compiles { Backend::TileIr } else { Backend::Ptx });
            for asked in [Backend::Ptx, Backend::TileIr] {
                assert_eq!(generator(Some(asked), || compiles), asked);
            }
        }
    }
}
