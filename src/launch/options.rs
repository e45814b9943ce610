//! Options of a launch other than kernel and arguments: grid, stream, back end and hints; and its
//! device.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::checks::Recorded;
use super::compile::check_hints::check_hints;
use super::compile::tileir_route::driver_compiles;
use super::grid::{Grid, IntoGrid};
use super::inspect::trace;
use super::{exact_mode, overrides};
use crate::backend::Hints;
use crate::backend::cpu::Checks;
use crate::error::{Error, Result};
use crate::kernel::AnyArgs;
use crate::runtime::graph::recorder;
use crate::runtime::{Backend, Device, Stream};
use crate::util::{report, spelling};

/// Options of the generated code of a launch, other than kernel and arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompileRequest {
    pub hints: Hints,
    /// Back end that generates the code.
    pub backend: Backend,
    /// The kernel may start while the preceding kernel of the stream is in progress.
    pub programmatic_launch: bool,
    /// The code is generated for checks. On the cpu back end this is the kernel as written; on a
    /// GPU it is code that checks assumptions.
    pub checks: bool,
    /// Floats are elements of a ring of integers.
    pub exact: bool,
    /// Accesses that the code records. It then also checks assumptions.
    pub recorded: Recorded,
}

/// Launch with options: stream, back end, hints.
///
/// ```
/// use cutlet as ct;
/// # fn fill(y: ct::ArrayMut<i32, 1>, value: ct::Scalar<i32>) {
/// #     y.store(ct::bid(0), ct::full::<i32, 1>([8], value));
/// # }
/// let device = ct::Device::cpu();
/// let stream = device.stream()?;
/// let mut y = device.zeros([20])?;
/// ct::Launch::new(3).stream(&stream).hints(ct::Hints::new().num_warps(4))
///     .launch(fill, (&mut y, 7))?;
/// assert_eq!(y.to_vec()?, [7; 20]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Launch<'s> {
    pub(super) grid: Grid,
    pub(super) stream: Option<&'s Stream>,
    pub(super) backend: Option<Backend>,
    pub(super) hints: Hints,
    pub(super) dependent: bool,
    pub(super) checks: Option<Checks>,
    pub(super) peers: bool,
    pub(super) exact: bool,
    pub(super) proved: bool,
}

impl<'s> Launch<'s> {
    /// Returns a launch over a grid, with default options.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([6])?;
    /// ct::Launch::new([2, 3]).launch(|x: ArrayMut<i32, 1>| x.store_scalar(ct::bid(0) * 3 + ct::bid(1), 1), (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [1; 6]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn new(grid: impl IntoGrid) -> Launch<'s> {
        let hints = Hints::default();
        Launch {
            grid: grid.into_grid(),
            stream: None,
            backend: None,
            hints,
            dependent: false,
            checks: None,
            peers: false,
            exact: exact_mode::is_selected(),
            proved: false,
        }
    }

    /// Selects the stream that the launch is queued on.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let (stream, mut x) = (ct::Device::cpu().stream()?, ct::Device::cpu().zeros([1])?);
    /// ct::Launch::new(1).stream(&stream).launch(|x: ArrayMut<i32, 1>| x.store_scalar(0, 1), (&mut x,))?;
    /// stream.synchronize()?;
    /// assert_eq!(x.to_vec()?, [1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn stream(mut self, stream: &'s Stream) -> Launch<'s> {
        self.stream = Some(stream);
        self
    }

    /// Requires this back end. With arrays this is a check, because their device determines the
    /// back end. Without arrays it is a choice.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| ct::println!("interpreted"), ())?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Launch<'s> {
        self.backend = Some(backend);
        self
    }

    /// Sets the hints of the code generator.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let hints = ct::Hints::new().num_warps(4);
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// ct::Launch::new(1).hints(hints).launch(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [1; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn hints(mut self, hints: Hints) -> Launch<'s> {
        self.hints = hints;
        self
    }

    /// Permits arrays of other GPUs (peer access): the kernel accesses their memory through the
    /// connection between the GPUs.
    ///
    /// Without this call such arrays are an error. The launch executes on the device of its stream,
    /// or else on that of its first array.
    ///
    /// Work on these arrays is ordered with the launch, whichever GPU it is queued on.
    /// [`Device::can_access`] returns true if GPUs can access each other; otherwise the launch is
    /// an error. Arrays of other libraries that are allocated from memory pools must be made
    /// accessible by these libraries.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn add(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(ct::bid(0), y.load(ct::bid(0), [256]) + x.load(ct::bid(0), [256]));
    /// }
    ///
    /// let (here, there) = match ct::Device::num_gpus() {
    ///     0 | 1 => (ct::Device::cpu(), ct::Device::cpu()),
    ///     _ => (ct::Device::gpu(0)?, ct::Device::gpu(1)?),
    /// };
    /// if here.can_access(there)? {
    ///     let (x, mut y) = (there.full([1000], 1.0f32)?, here.full([1000], 2.0f32)?);
    ///     let stream = here.stream()?;
    ///     ct::Launch::new(4).stream(&stream).peer_access().launch(add, (&x, &mut y))?;
    ///     assert_eq!(y.to_vec()?, [3.0; 1000]);
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn peer_access(mut self) -> Launch<'s> {
        self.peers = true;
        self
    }

    /// Selects the checks of the launch. Replaces the environment variable `CUTLET_CHECK` (`all`,
    /// or names of [`Checks`] separated by commas).
    ///
    /// The cpu back end supports all checks, the ptx back end [`bounds`](Checks::bounds),
    /// [`races`](Checks::races) and [`unwritten`](Checks::unwritten). All back ends support
    /// [`memory`](Checks::memory). Each back end performs those checks of `CUTLET_CHECK` that it
    /// supports. A launch of the ptx back end with the check of races waits for its end.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn ratio(x: Array<i32, 1>, y: Array<i32, 1>, z: ArrayMut<i32, 1>) {
    ///     z.store(0, x.load(0, [4]) / y.load(0, [4]));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, y, mut z) = (device.full([3], 12)?, device.array(&[3, 0, 2], [3])?, device.zeros([3])?);
    /// let launch = ct::Launch::new(1).checks(ct::Checks { division: true, ..ct::Checks::none() });
    /// // (The fourth element of the tiles is 0 / 0, and is not stored.)
    /// let error = launch.launch(ratio, (&x, &y, &mut z)).unwrap_err().to_string();
    /// assert!(error.contains("division by zero: 12 / 0 in i32 at [1] of the tile, and a store at"), "{error}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn checks(mut self, checks: Checks) -> Launch<'s> {
        self.checks = Some(checks);
        self
    }

    /// Selects exact mode: floats are elements of Z/2^32 (Z/2^64 in kernels with f64), so that sums
    /// and products are the same for every order.
    ///
    /// Two kernels for one formula then store equal bits for all tiles, splits and orders, on all
    /// back ends. A lost, doubled or wrong term changes the bits. The stored numbers have no
    /// meaning as floats: compare them with those of other launches in this mode. The
    /// [guide](crate::guide::exact) defines each operation. For all launches in a function:
    /// [`with_exact_mode`](crate::with_exact_mode). Environment variable for all launches:
    /// `CUTLET_EXACT=1`.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn sum(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    ///     let total = ct::fold(..x.num_tiles(0, [tile]), ct::zeros([tile]), |sum, i| sum + x.load(i, [tile]));
    ///     y.store(0, total.sum(0).reshape([1]));
    /// }
    ///
    /// let x = ct::Device::cpu().from_fn([1000], |[i]| (i as f32).sqrt())?;
    /// let of_tiles = |tile: usize| {
    ///     let mut y = ct::Device::cpu().zeros([1])?;
    ///     ct::Launch::new(1).exact().launch(sum, (&x, &mut y, Constant(tile)))?;
    ///     Ok::<u32, ct::Error>(y.to_vec()?[0].to_bits())
    /// };
    /// assert_eq!(of_tiles(16)?, of_tiles(128)?);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// The launch returns [`Error::Kernel`] with the lines of ops that have no form in this mode.
    /// For a kernel that was compiled without this mode it returns [`Error::Argument`].
    #[must_use]
    pub fn exact(mut self) -> Launch<'s> {
        self.exact = true;
        self
    }

    /// Removes the bounds checks that a proof makes needless.
    ///
    /// [`Property::Bounds`](crate::Property::Bounds) is decided for the grid and the numbers of the
    /// launch (extents, strides, scalars), as [`prove`](crate::prove()) does. Tiles that are inside
    /// of their arrays in all tile blocks are then accessed without comparisons, and masks that are
    /// always true are removed. Tiles that may extend beyond an edge keep their checks.
    ///
    /// The proof and the code are made once for each grid and each list of numbers. Launches with
    /// equal sets of remaining checks share their code. On the cpu device a check that was removed
    /// wrongly is an error at run time.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     let at = ct::bid(0) * 256 + ct::arange(0..256);
    ///     y.scatter(at, x.gather(at));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.full([1024], 1.5f32)?, device.zeros([1024])?);
    /// ct::Launch::new(4).proved().launch(copy, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1.5; 1024]);
    ///
    /// let tiles = |x: Array<f32, 1>, y: ArrayMut<f32, 1>| y.store(ct::bid(0), x.load(ct::bid(0), [256]));
    /// let error = ct::Launch::new(5).proved().launch(tiles, (&x, &mut y)).unwrap_err().to_string();
    /// assert!(error.contains("it starts at [1024] in tile block (4, 0, 0)"), "{error}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// The launch returns [`Error::Kernel`] with a counter-example if a tile or an element is
    /// outside of its array, and with the operation if this is not decided. Raw pointers have no
    /// extents, so their accesses are not decided. [`Launch::compile`] returns
    /// [`Error::Argument`]: a compiled kernel serves every grid.
    #[must_use]
    pub fn proved(mut self) -> Launch<'s> {
        self.proved = true;
        self
    }

    /// Returns the checks of this launch on a back end.
    ///
    /// # Errors
    /// [`Error::Argument`] for checks that this back end does not support, and if `CUTLET_CHECK`
    /// names no check.
    #[inline]
    #[track_caller]
    pub(super) fn checks_on(&self, backend: Backend) -> Result<Checks> {
        let made = match backend {
            Backend::Cpu => Checks::all(),
            Backend::Ptx => Checks { bounds: true, races: true, memory: true, unwritten: true, ..Checks::none() },
            Backend::TileIr => Checks { memory: true, ..Checks::none() },
        };
        match self.checks {
            None => Ok(overrides::checks().map_or_else(checks_from_env, Ok)?.and(made)),
            Some(checks) if checks == checks.and(made) => Ok(checks),
            Some(checks) => Err(refused(checks, backend)),
        }
    }

    /// Returns the checks of a launch of a kernel whose code was generated for these options.
    ///
    /// # Errors
    /// As [`Launch::checks_on`]; [`Error::Argument`] for checks and a mode that the code was not
    /// generated for.
    #[inline]
    #[track_caller]
    pub(super) fn checks_for(&self, request: &CompileRequest) -> Result<Checks> {
        self.require_mode(request.exact)?;
        self.checks_of(request.backend, request.checks, request.recorded)
    }

    /// Returns the checks of a launch of code from a back end. `checked`: the code was generated
    /// for checks. Other code performs those checks of `CUTLET_CHECK` that need no support by the
    /// code.
    ///
    /// # Errors
    /// As [`Launch::checks_for`].
    #[inline]
    #[track_caller]
    pub(super) fn checks_of(&self, generator: Backend, checked: bool, recorded: Recorded) -> Result<Checks> {
        let checks = self.checks_on(generator)?;
        let on_cpu = generator == Backend::Cpu;
        let missing = if on_cpu { checks.of_values() } else { checks.bounds } && !checked;
        let needed = Recorded::by(checks);
        let is_recorded = (recorded.races || !needed.races) && (recorded.writes || !needed.writes);
        if !missing && (on_cpu || is_recorded) {
            return Ok(checks);
        }
        if self.checks.is_some() {
            return Err(Error::argument(
                "this kernel was compiled without the checks that the launch asks for: compile it by `Launch::checks(..).compile`",
            ));
        }
        let bounds = checks.bounds && (on_cpu || checked);
        let (races, unwritten) = (checks.races && (on_cpu || recorded.races), !on_cpu && recorded.writes);
        Ok(Checks { races, bounds, memory: checks.memory, unwritten: checks.unwritten && unwritten, ..Checks::none() })
    }

    /// Checks that code has the mode of the launch. `exact`: the code is in exact mode.
    ///
    /// # Errors
    /// [`Error::Argument`] if the launch selects exact mode, and the code is not in it.
    #[inline]
    #[track_caller]
    pub(super) fn require_mode(&self, exact: bool) -> Result<()> {
        if self.exact && !exact {
            return Err(Error::argument(
                "this kernel was compiled without exact mode: compile it by `Launch::exact().compile`",
            ));
        }
        Ok(())
    }

    /// Permits the kernel to start while the preceding kernel of the stream is in progress
    /// (programmatic dependent launch).
    ///
    /// The kernel may start when all tile blocks of the preceding kernel have called
    /// [`crate::grid_dependency_control_launch_dependents`] or ended.
    /// [`grid_dependency_control_wait`](crate::grid_dependency_control_wait) waits for the end of
    /// the preceding kernel and makes its writes visible. A kernel that does not call it waits at
    /// its start. On GPUs before sm_90 and on the cpu device the option has no effect.
    ///
    /// The option is compiled into the kernel: a [`CompiledKernel`](crate::CompiledKernel) has it
    /// if it was compiled with it.
    ///
    /// # Safety
    /// Before it waits, the kernel must not depend on memory that the preceding kernel writes, and
    /// must not write memory that the preceding kernel uses.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn double(x: ArrayMut<f32, 1>) {
    ///     ct::grid_dependency_control_wait();
    ///     x.store(0, x.load(0, [4]) * 2.0);
    /// }
    ///
    /// let mut x = ct::Device::cpu().full([4], 1.0f32)?;
    /// for _ in 0..3 {
    ///     // SAFETY: nothing stands before the wait.
    ///     unsafe { ct::Launch::new(1).programmatic_dependent_launch() }.launch(double, (&mut x,))?;
    /// }
    /// assert_eq!(x.to_vec()?, [8.0; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub unsafe fn programmatic_dependent_launch(mut self) -> Launch<'s> {
        self.dependent = true;
        self
    }

    /// Returns the device of the arrays, or else the one that the options select.
    #[track_caller]
    pub(super) fn device(&self, args: &dyn AnyArgs) -> Result<Device> {
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
            return Err(described());
        }
        if self.peers {
            device = self.stream.map(Stream::device).or(device);
            device.map_or(Ok(()), |device| reach_all(device, args))?;
        } else if let (Some(first), Some(other)) = (device, other) {
            return Err(Error::argument(format!(
                "the arrays of this launch are on {first} and on {other}: make all on one device, copy with \
                 `copy_from_array`, or let GPUs access each other's memory with `Launch::peer_access`"
            )));
        }
        let device = match device.or_else(|| self.stream.map(Stream::device)) {
            Some(device) => device,
            None => default_device(self.backend)?,
        };
        self.check_choices(device)?;
        Ok(device)
    }

    /// Returns the device of a kernel that is compiled before its arrays exist.
    ///
    /// # Errors
    /// [`Error::Argument`] for arrays of another device, or options that do not belong to the
    /// device.
    #[track_caller]
    pub(super) fn device_without_launch(&self, device: Device, args: &dyn AnyArgs) -> Result<Device> {
        let mut other = None;
        args.memory(&mut |used| {
            if !used.memory.is_absent() && used.memory.device() != device {
                other = Some(used.memory.device());
            }
        });
        if self.peers {
            reach_all(device, args)?;
        } else if let Some(other) = other {
            return Err(Error::argument(format!("a kernel for {device}, and arrays of it are on {other}")));
        }
        self.check_choices(device)?;
        Ok(device)
    }

    /// Returns the hints and the back end that generates the code: the explicit one, that of the
    /// environment, or by default Tile IR if the driver compiles it, else PTX.
    ///
    /// # Errors
    /// [`Error::Argument`] at the caller's location for hints that no code can satisfy.
    #[inline]
    #[track_caller]
    pub(super) fn request(&self, device: Device) -> Result<CompileRequest> {
        check_hints(self.hints)?;
        let exact = self.exact || exact_mode::from_env()?;
        static ASKED: OnceLock<Option<Backend>> = OnceLock::new();
        let Some(gpu) = device.as_gpu() else {
            let checks = self.checks_on(Backend::Cpu)?.of_values();
            let (hints, backend, programmatic_launch) = (self.hints, Backend::Cpu, false);
            return Ok(CompileRequest { hints, backend, programmatic_launch, checks, recorded: Recorded::NONE, exact });
        };
        let asked = match (self.backend, ASKED.get()) {
            (Some(backend), _) => Some(backend),
            (None, Some(asked)) => *asked,
            (None, None) => *ASKED.get_or_init(|| Backend::from_env().ok().flatten()),
        };
        let programmatic_launch = self.dependent && gpu.target().arch >= 90;
        let backend = gpu_backend(asked, || driver_compiles(gpu));
        let checks = self.checks_on(backend)?;
        let recorded = match Recorded::by(checks) {
            needed if needed.any() && recorder::is_on() => self.record_in_graph(needed)?,
            needed => needed,
        };
        let checks = checks.bounds || recorded.any();
        let hints = self.hints.trace(self.hints.trace || (backend == Backend::Ptx && trace::folder().is_some()));
        Ok(CompileRequest { hints, backend, programmatic_launch, checks, recorded, exact })
    }

    /// Returns the records of a launch in a recorded graph: none, since the host does not wait for
    /// the launch. Reports that the checks of the environment are not done.
    ///
    /// # Errors
    /// [`Error::Argument`] if the launch itself selects these checks.
    #[cold]
    #[track_caller]
    pub(super) fn record_in_graph(&self, needed: Recorded) -> Result<Recorded> {
        static IS_REPORTED: AtomicBool = AtomicBool::new(false);
        let names = match (needed.races, needed.writes) {
            (true, true) => "`races` and `unwritten`",
            (true, false) => "`races`",
            _ => "`unwritten`",
        };
        if self.checks.is_some() {
            return Err(Error::argument(format!(
                "no check of {names} for a launch in a recorded graph: the check needs the end of the launch; launch \
                 without the graph"
            )));
        }
        if !IS_REPORTED.swap(true, Ordering::Relaxed) {
            report::warning(&format!(
                "CUTLET_CHECK: no check of {names} for launches in recorded graphs; `bounds` and `memory` apply to them"
            ));
        }
        Ok(Recorded::NONE)
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

/// Rejects arrays that are only described.
///
/// # Errors
/// [`Error::Argument`] at the caller's location for an [`ArraySpec`](crate::ArraySpec).
#[track_caller]
pub(super) fn refuse_absent(args: &dyn AnyArgs) -> Result<()> {
    let mut absent = false;
    args.memory(&mut |used| absent |= used.memory.is_absent());
    if absent { Err(described()) } else { Ok(()) }
}

#[cold]
#[track_caller]
fn described() -> Error {
    Error::argument("an ArraySpec describes an array that does not exist: launch with arrays made by a Device")
}

/// Enables access of the kernels of a device to all arrays of a launch.
///
/// # Errors
/// [`Error::Argument`] if access is impossible.
#[cold]
#[track_caller]
fn reach_all(device: Device, args: &dyn AnyArgs) -> Result<()> {
    let mut others = Vec::new();
    args.memory(&mut |used| {
        let its = used.memory.device();
        if !used.memory.is_absent() && its != device && !others.contains(&its) {
            others.push(its);
        }
    });
    if !others.is_empty() && recorder::is_on() {
        let mut uses = Vec::new();
        args.memory(&mut |used| uses.push(used.memory.used(used.writes)));
        if uses.iter().any(recorder::is_of_graph) {
            let message = "a launch with arrays of several GPUs is no work of a graph: launch it before or after";
            return Err(Error::argument(message));
        }
    }
    // Not in a closure: `track_caller` does not apply inside it.
    for other in others {
        device.reach(other)?;
    }
    Ok(())
}

/// Returns the back end for a GPU: the requested one, or by default Tile IR if the
/// driver compiles it, else PTX.
#[inline]
pub(super) fn gpu_backend(asked: Option<Backend>, driver_compiles: impl Fn() -> bool) -> Backend {
    match asked {
        Some(backend @ (Backend::Ptx | Backend::TileIr)) => backend,
        Some(Backend::Cpu) | None if driver_compiles() => Backend::TileIr,
        Some(Backend::Cpu) | None => Backend::Ptx,
    }
}

/// Returns the checks of `CUTLET_CHECK`, which is read once.
fn checks_from_env() -> Result<Checks> {
    static CHECKS: OnceLock<(String, std::result::Result<Checks, String>)> = OnceLock::new();
    let (value, checks) = CHECKS.get_or_init(|| {
        spelling::check_environment();
        let value = std::env::var("CUTLET_CHECK").unwrap_or_default();
        let checks = value.parse();
        (value, checks)
    });
    checks.clone().map_err(|problem| Error::environment("CUTLET_CHECK", value, problem))
}

#[cold]
#[track_caller]
fn refused(checks: Checks, backend: Backend) -> Error {
    Error::argument(match backend {
        Backend::Cpu => unreachable!("the cpu back end makes all checks, also {checks:?}"),
        Backend::Ptx => {
            "the ptx back end checks only assumptions (`bounds`) and races (`races`): for other checks make the arrays of \
                         this launch on `Device::cpu()`"
        }
        Backend::TileIr => {
            "code by Tile IR has no checks: launch with `backend(Backend::Ptx)` for those of assumptions (`bounds`), \
                            or with arrays on `Device::cpu()` for all"
        }
    })
}

/// Returns the device of launches without arrays.
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
            assert_eq!(gpu_backend(None, || compiles), if compiles { Backend::TileIr } else { Backend::Ptx });
            for asked in [Backend::Ptx, Backend::TileIr] {
                assert_eq!(gpu_backend(Some(asked), || compiles), asked);
            }
        }
    }
}
