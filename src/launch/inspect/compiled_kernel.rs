//! Handle of a compiled kernel: launches without a cache look-up, and access to remarks and code.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::remarks::Remarks;
use crate::backend::cpu::Checks;
use crate::error::{Error, Location, Result};
use crate::kernel::{AnyArgs, Arguments, Bound, Call, Kernel, KernelArgs, StoredConstant, refuse_nested};
use crate::launch::compile::executable::{Code, Executable};
use crate::launch::grid::IntoGrid;
use crate::launch::options::{CompileRequest, Launch, refuse_absent};
use crate::launch::raw_launch::RawLaunch;
use crate::launch::run::run;
use crate::launch::specialize::{Specialized, specialization_key, specialize};
use crate::runtime::Device;

/// Kernel compiled for one form of its arguments, made by [`compile`].
///
/// Its launch traces nothing, also if the kernel is a closure with captures or a function pointer.
/// Captured values are those at the time of the compilation.
///
/// `Args` are the parameters of the kernel.
///
/// ```
/// # use cutlet::doctest::*;
/// let mut x = ct::Device::cpu().zeros([4])?;
/// let fill: ct::CompiledKernel<_> = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
/// fill.launch(1, (&mut x,))?;
/// assert_eq!(x.to_vec()?, [1; 4]);
/// # Ok::<(), ct::Error>(())
/// ```
pub struct CompiledKernel<Args> {
    held: Held,
    args: PhantomData<fn(Args)>,
}

/// Compiled kernel without the type of its arguments.
struct Held {
    name: String,
    slot: Specialized,
    device: Device,
    request: CompileRequest,
    /// Checks of the launch that compiled it.
    checks: Option<Checks>,
    /// Arrays may be on other GPUs, as in the launch that compiled it.
    peers: bool,
    key: Box<[u64]>,
    constants: Vec<StoredConstant>,
    /// Type of the arguments.
    form: TypeId,
}

// As for a slot: comparisons only read the constants.
impl UnwindSafe for Held {}
impl RefUnwindSafe for Held {}

/// Compiles a kernel for arguments of this form and on their device, without an execution.
///
/// ```
/// use cutlet as ct;
///
/// let device = ct::Device::cpu();
/// let mut y = device.zeros::<i32, 1>([16])?;
/// let seed = 7;
/// let fill = move |y: ct::ArrayMut<i32, 1>| y.store(ct::bid(0), ct::full::<i32, 1>([8], seed));
/// let compiled = ct::compile(fill, (&mut y,))?;
/// compiled.launch(2, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [7; 16]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// As [`crate::launch`].
///
/// # Panics
/// As [`crate::launch`].
#[track_caller]
pub fn compile<K, A, P>(kernel: K, args: A) -> Result<CompiledKernel<P>>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    Launch::new(1).compile(kernel, args)
}

impl Launch<'_> {
    /// [`compile`] with the back end and the hints of this launch.
    ///
    /// # Errors
    /// As [`crate::launch`].
    ///
    /// # Panics
    /// As [`crate::launch`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let hints = ct::Hints::new().num_warps(4);
    /// let fill = ct::Launch::new(1).hints(hints).compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// fill.launch(1, (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [1; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn compile<K, A, P>(&self, kernel: K, args: A) -> Result<CompiledKernel<P>>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        let args = Arguments::new(args);
        let form = Arguments::<A, P>::identity::<()>();
        let held = self.held(&Bound::new(&kernel, &args).call(), form)?;
        Ok(CompiledKernel { held, args: PhantomData })
    }

    #[track_caller]
    fn held(&self, call: &Call<'_>, form: TypeId) -> Result<Held> {
        refuse_nested(|| call.name())?;
        if self.proved {
            let message = "a proof is for one grid and one list of numbers, and a compiled kernel serves all: launch \
                           with `Launch::proved().launch`, or compile without `proved`";
            return Err(Error::argument(message));
        }
        let args = call.args();
        let device = self.device(args)?;
        let request = self.request(device)?;
        let slot = specialize(call, device, request, self.stream)?;
        let mut key = specialization_key(device, request);
        args.key(&mut key);
        let mut constants = Vec::new();
        args.store_constants(&mut constants);
        let (name, key) = (call.name(), key.words().into());
        Ok(Held { name, slot, device, request, checks: self.checks, peers: self.peers, key, constants, form })
    }

    /// Launches a compiled kernel. The back end and hints of this launch are ignored.
    ///
    /// # Errors
    /// As [`CompiledKernel::launch`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let (stream, mut x) = (ct::Device::cpu().stream()?, ct::Device::cpu().zeros([4])?);
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// ct::Launch::new(1).stream(&stream).launch_compiled(&fill, (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [1; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn launch_compiled<A, Args>(&self, kernel: &CompiledKernel<Args>, args: A) -> Result<()>
    where
        A: KernelArgs<Args>,
    {
        let args = Arguments::<A, Args>::new(args);
        self.launch_held(&kernel.held, args.given(), Arguments::<A, Args>::identity::<()>())
    }

    #[track_caller]
    fn launch_held(&self, kernel: &Held, args: &dyn AnyArgs, form: TypeId) -> Result<()> {
        refuse_nested(|| kernel.name.clone())?;
        let device = self.device(args)?;
        kernel.check(args, form, device)?;
        let Some(grid) = self.grid.checked(kernel.request.backend)? else {
            return self.grid.may_be_empty(args);
        };
        let checks = Launch { checks: self.checks.or(kernel.checks), ..*self }.checks_for(&kernel.request)?;
        run(&kernel.slot, self.stream, grid, kernel.request.programmatic_launch, checks, args)
    }
}

impl Held {
    /// Checks the form of the arguments.
    ///
    /// # Errors
    /// [`Error::Argument`] at the caller's location for arguments of another form than that of the
    /// compilation.
    #[track_caller]
    fn check(&self, args: &dyn AnyArgs, form: TypeId, device: Device) -> Result<()> {
        if self.takes(args, form, device) {
            return Ok(());
        }
        Err(Error::argument(format!(
            "kernel `{}` was compiled for other arguments: for another device, other constants, or arrays that \
             differ in the alignment of their address, in which strides are 1, in which extents and strides are \
             multiples of 16, or in index width; compile it for these, or use `launch`",
            self.name
        )))
    }

    /// Returns true if the arguments have the form that the kernel was compiled for.
    fn takes(&self, args: &dyn AnyArgs, form: TypeId, device: Device) -> bool {
        let mut key = specialization_key(device, self.request);
        args.key(&mut key);
        let mut constants = self.constants.iter();
        form == self.form
            && *key.words() == *self.key
            && args.same_constants(&mut constants)
            && constants.as_slice().is_empty()
    }

    fn executable(&self) -> &Executable {
        self.slot.get().expect("a slot that was specialized is filled")
    }

    #[track_caller]
    fn raw(&self, args: &dyn AnyArgs, form: TypeId) -> Result<Option<RawLaunch>> {
        refuse_absent(args)?;
        let device = Launch { peers: self.peers, ..Launch::new(1) }.device_without_launch(self.device, args)?;
        self.check(args, form, device)?;
        let Executable { code: Code::Gpu(code), required, races, .. } = self.executable() else { return Ok(None) };
        if races.is_some() {
            return Err(Error::argument(
                "this kernel was compiled with the check of races, whose data only launches of this crate pass",
            ));
        }
        let place = Location::caller();
        args.make(None).map_err(|error| error.placed(place))?;
        let mut words = Vec::new();
        args.pack(&mut |word| words.push(word));
        if let Some(required) = required {
            required.check_arguments(&words)?;
        }
        RawLaunch::new(&self.slot, code, words).map(Some)
    }
}

impl<Args> CompiledKernel<Args> {
    pub(crate) fn name(&self) -> &str {
        &self.held.name
    }

    pub(crate) fn executable(&self) -> &Executable {
        self.held.executable()
    }

    /// Launches the kernel on the default stream of its device. [`Launch::launch_compiled`] has
    /// options.
    ///
    /// # Errors
    /// [`Error::Argument`] if the arguments have another form than those of the compilation; else
    /// as [`crate::launch`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([3])?;
    /// let count = ct::compile(|x: ArrayMut<i32, 1>| x.store_scalar(ct::bid(0), ct::bid(0)), (&mut x,))?;
    /// count.launch(2, (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [0, 1, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn launch<A: KernelArgs<Args>>(&self, grid: impl IntoGrid, args: A) -> Result<()> {
        Launch::new(grid).launch_compiled(self, args)
    }

    /// Returns the device that the kernel was compiled for.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let kernel = ct::compile(|x: Array<i32, 1>| ct::println!("{}", x.extent(0)), (&ct::Device::cpu().zeros::<i32, 1>([3])?,))?;
    /// assert_eq!(kernel.device(), ct::Device::cpu());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn device(&self) -> Device {
        self.held.device
    }

    /// Returns the remarks of the compiler: accesses, instructions, registers, notes of the
    /// assembler.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// fn fill(y: ct::ArrayMut<i32, 1>) {
    ///     y.store(ct::bid(0), ct::full::<i32, 1>([8], 7));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros::<i32, 1>([16])?;
    /// let compiled = ct::compile(fill, (&mut y,))?;
    /// assert_eq!(compiled.remarks().to_string(), "fill: interpreted\n");
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn remarks(&self) -> &Remarks {
        self.executable().remarks()
    }

    /// Returns the number of registers of one thread; 0 on the cpu device.
    ///
    /// # Errors
    /// [`Error::Driver`] if earlier work on the device failed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(fill.num_registers()?, 0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn num_registers(&self) -> Result<u32> {
        Ok(self.resources()?.0)
    }

    /// Returns the local memory of one thread in bytes: spilled registers and the stack; 0 on the
    /// cpu device.
    ///
    /// # Errors
    /// [`Error::Driver`] if earlier work on the device failed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(fill.local_bytes()?, 0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn local_bytes(&self) -> Result<u32> {
        Ok(self.resources()?.1)
    }

    /// Returns the kernel and its parameters for a launch with these arguments through the driver;
    /// `None` on the cpu device.
    ///
    /// # Errors
    /// * [`Error::Argument`] for arguments of another form than those of the compilation, and if a
    ///   condition of the kernel ([`require`](fn@crate::require)) does not hold. If any condition
    ///   depends on the grid, the launcher must check all conditions.
    /// * [`Error::Compile`] and [`Error::Driver`] if these arguments need another form of the
    ///   kernel, without tensor maps or without clusters, which is compiled by this call.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert!(fill.raw((&mut x,))?.is_none()); // on a GPU: what `cuLaunchKernel` takes
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn raw<A: KernelArgs<Args>>(&self, args: A) -> Result<Option<RawLaunch>> {
        self.held.raw(&args.into_arg(), Arguments::<A, Args>::identity::<()>())
    }

    fn resources(&self) -> Result<(u32, u32)> {
        match &self.executable().code {
            Code::Cpu(..) => Ok((0, 0)),
            Code::Gpu(code) => code.kernel.resources(),
        }
    }
}

impl<Args> fmt::Debug for CompiledKernel<Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompiledKernel({} for {})", self.held.name, self.held.device)
    }
}
