//! Launch of a kernel: specialization, compilation and execution.

use super::grid::IntoGrid;
use super::inspect::trace::Collected;
use super::inspect::{remarks, trace};
use super::options::Launch;
use super::prove;
use super::run::{make, run};
use super::specialize::specialize;
use crate::backend::ptx::MeasuredTrace;
use crate::error::Result;
use crate::kernel::{Arguments, Bound, Call, Kernel, KernelArgs, LaunchArg, refuse_nested};

/// Executes a kernel once for every tile block of a grid.
///
/// `kernel` is a function or closure over the traced arguments: `&DeviceArray` becomes `Array`,
/// `&mut DeviceArray` becomes `ArrayMut`, a number becomes `Scalar`, and `Constant(x)` becomes `x`.
/// The kernel executes on the device of its arrays, on the default stream of that device; without
/// arrays on [`crate::Device::first`]. On a GPU this function returns when the work is queued, on
/// the cpu device when the work is complete. [`Launch`] has further options.
///
/// The first launch with given types, constants and forms of arrays traces and compiles the kernel.
/// Later launches only queue it. A process caches the 1024 most recently launched kernels, and
/// those that a [`crate::CompiledKernel`] or a thread still holds.
///
/// A forked child process can launch on the cpu device, even if other threads of its parent
/// launched at the time of the fork. On GPUs that the parent has used, it gets
/// [`crate::Error::Driver`].
///
/// A launch inside of a kernel is an error, except on threads of a rayon pool. There a kernel that
/// waits (`rayon::join`) may execute another task of the pool on its stack, which is allowed to
/// launch.
///
/// ```
/// use cutlet as ct;
///
/// fn double(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     let tile = x.load(ct::bid(0), [16]);
///     y.store(ct::bid(0), tile + tile);
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
/// * [`crate::Error::Kernel`] with all errors of the kernel;
/// * [`crate::Error::Unsupported`] for features that the device does not support;
/// * [`crate::Error::Argument`] for arrays on several devices or a grid beyond the limits;
/// * [`crate::Error::Driver`] if this or earlier work on the device failed.
///
/// After an error nothing was executed, with one exception: on the cpu device,
/// [`crate::Error::Execution`] may leave writable arrays partly written.
///
/// # Panics
/// If the kernel panics during tracing.
#[track_caller]
pub fn launch<K, A, P>(kernel: K, grid: impl IntoGrid, args: A) -> Result<()>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    Launch::new(grid).launch(kernel, args)
}

/// Executes a kernel as [`launch`] does, and returns the arrays that the launch allocated: a
/// [`DeviceArray`](crate::DeviceArray) for each [`NewArray`](crate::NewArray) argument, `()` for
/// every other argument.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>) {
///     let i = ct::bid(0);
///     c.store(i, a.load(i, [64]) + b.load(i, [64]));
/// }
///
/// let device = ct::Device::cpu();
/// let (a, b) = (device.full([100], 1.0f32)?, device.full([100], 2.0f32)?);
/// let (.., c) = ct::launch_with_outputs(vadd, 2, (&a, &b, ct::NewArray::zeros([100])))?;
/// assert_eq!(c.to_vec()?, [3.0; 100]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// As [`launch`]; [`crate::Error::Argument`] and [`crate::Error::Driver`] also if an array cannot
/// be allocated.
///
/// # Panics
/// As [`launch`].
#[track_caller]
pub fn launch_with_outputs<K, A, P>(kernel: K, grid: impl IntoGrid, args: A) -> Result<<A::Arg as LaunchArg>::Output>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    Launch::new(grid).launch_with_outputs(kernel, args)
}

impl Launch<'_> {
    /// Executes the kernel; see [`launch`].
    ///
    /// # Errors
    /// As [`launch`]; [`crate::Error::Argument`] also if the stream or back end does not belong to
    /// the device of the arrays.
    ///
    /// # Panics
    /// As [`launch`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([3])?;
    /// ct::Launch::new(3).launch(|x: ArrayMut<i32, 1>| x.store_scalar(ct::bid(0), ct::bid(0)), (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [0, 1, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn launch<K, A, P>(&self, kernel: K, args: A) -> Result<()>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        self.launch_call(&Bound::new(&kernel, &Arguments::new(args)).call())
    }

    /// Executes the kernel and returns its new arrays; see [`launch_with_outputs`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let count = |y: ArrayMut<i32, 1>| y.store_scalar(ct::bid(0), ct::bid(0));
    /// let launch = ct::Launch::new(3).backend(ct::Backend::Cpu);
    /// let (y,) = launch.launch_with_outputs(count, (ct::NewArray::zeros([3]),))?;
    /// assert_eq!(y.to_vec()?, [0, 1, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`launch_with_outputs`].
    ///
    /// # Panics
    /// As [`launch`].
    #[track_caller]
    pub fn launch_with_outputs<K, A, P>(&self, kernel: K, args: A) -> Result<<A::Arg as LaunchArg>::Output>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        let args = Arguments::new(args);
        self.launch_call(&Bound::new(&kernel, &args).call())?;
        Ok(args.into_output())
    }

    /// Executes the kernel with time stamps at the steps of its schedule, and waits for its end.
    /// Returns the measured steps of a sample of its tile blocks. Results are those of
    /// [`Launch::launch`]. The page on debugging of the guide describes the sample.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let device = ct::Device::first()?;
    /// let mut x = device.zeros([128])?;
    /// if device.backend() == ct::Backend::Ptx {
    ///     let launch = ct::Launch::new(2).backend(ct::Backend::Ptx);
    ///     let trace = launch.launch_traced(fill, (&mut x,))?;
    ///     assert!(trace.events.iter().any(|event| event.kind == "store"));
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Launch::launch`]; [`crate::Error::Argument`] also for a launch that is not executed by
    /// the ptx back end, and for one that is recorded in a graph or captured.
    ///
    /// # Panics
    /// As [`launch`].
    #[track_caller]
    pub fn launch_traced<K, A, P>(&self, kernel: K, args: A) -> Result<MeasuredTrace>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        let traced = Launch { hints: self.hints.trace(true), ..*self };
        let args = Arguments::new(args);
        let collected = Collected::begin();
        // Not in a closure: `track_caller` does not apply inside it.
        traced.launch_call(&Bound::new(&kernel, &args).call())?;
        collected.trace()
    }

    /// As [`Launch::launch`].
    #[track_caller]
    pub(crate) fn launch_call(&self, call: &Call<'_>) -> Result<()> {
        refuse_nested(|| call.name())?;
        let args = call.args();
        let device = self.device(args)?;
        let request = self.request(device)?;
        trace::require_stamps(request.backend)?;
        let Some(grid) = self.grid.checked(request.backend)? else {
            make(args, device)?;
            return self.grid.may_be_empty(args);
        };
        let slot = match self.proved {
            false => specialize(call, device, request, self.stream)?,
            true => self.proved_code(call, device, request, grid)?,
        };
        if remarks::wanted() {
            let executable = slot.get().expect("a slot that was specialized is filled");
            self.emit_work_remark(device, grid, call, executable.remarks());
        }
        if prove::wanted() {
            let executable = slot.get().expect("a slot that was specialized is filled");
            self.emit_proof_remark(call, executable.remarks());
        }
        run(&slot, self.stream, grid, request.programmatic_launch, self.checks_for(&request)?, args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Hints;
    use crate::backend::cpu::Checks;
    use crate::launch::checks::Recorded;
    use crate::launch::options::CompileRequest;
    use crate::prelude::*;
    use crate::runtime::{Backend, Device};
    use crate::{AtomicOptions, GatherOptions, LoadOptions, ScatterOptions, StoreOptions, arange, bid, ones};

    /// Interprets the trace of the ptx back end with checks of assumptions.
    fn asserted<K, A, P>(kernel: K, grid: [u32; 3], args: A) -> Result<()>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        let args = Arguments::new(args);
        let hints = Hints::default();
        let (backend, programmatic_launch) = (Backend::Ptx, false);
        let request = CompileRequest {
            hints,
            backend,
            programmatic_launch,
            checks: true,
            recorded: Recorded::NONE,
            exact: false,
        };
        let slot = specialize(&Bound::new(&kernel, &args).call(), Device::cpu(), request, None)?;
        run(&slot, None, grid, false, Checks::none(), args.given())
    }

    fn said(result: Result<()>) -> String {
        let text = result.expect_err("a promise is broken").to_string();
        let (place, text) = text.split_once(": violated assumption: ").unwrap_or_else(|| panic!("{text}"));
        assert!(place.starts_with(file!()), "{place}");
        text.to_owned()
    }

    /// Executes a kernel whose assumptions hold for the argument `good` and are broken for `bad`.
    #[track_caller]
    fn tried<K, P>(kernel: K, good: i32, bad: i32, want: &str) -> Result<()>
    where
        K: Kernel<P> + Copy,
        for<'a> (&'a crate::DeviceArray<i32, 1>, &'a mut crate::DeviceArray<i32, 1>, i32): KernelArgs<P>,
    {
        let device = Device::cpu();
        let (x, mut y) = (device.from_fn([100], |[i]| i as i32)?, device.zeros([100])?);
        asserted(kernel, [1; 3], (&x, &mut y, good))?;
        let mut plain = device.zeros([100])?;
        launch(kernel, 1, (&x, &mut plain, good))?;
        assert_eq!(y.to_vec()?, plain.to_vec()?);
        let text = said(asserted(kernel, [1; 3], (&x, &mut y, bad)));
        assert_eq!(text, format!("{want}\n  in tile block (0, 0, 0)"));
        Ok(())
    }

    #[test]
    fn launches_of_a_task_have_their_own_places() -> Result<()> {
        // As if rayon executed a task during an operation of a kernel.
        let pool = rayon_core::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
        let outer = |y: ArrayMut<i32, 1>| {
            let fixed = std::panic::Location::caller();
            crate::tile::with_location(fixed, || {
                let mut own = Device::cpu().zeros([4]).expect("an array");
                let line = line!() + 1;
                let wrong = |y: ArrayMut<i32, 1>| y.store(0, ones([15]));
                let launched = launch(wrong, 1, (&mut own,));
                let error = launched.expect_err("15 elements, or a kernel in a kernel").to_string();
                let line = line + if error.contains("inside of another kernel") { 1 } else { 0 };
                assert!(error.contains(&format!("launch.rs:{line}:")), "{error}");
            });
            y.store(0, ones([4]));
        };
        launch(outer, 1, (&mut Device::cpu().zeros([4])?,))?;
        pool.install(|| launch(outer, 1, (&mut Device::cpu().zeros([4])?,)))
    }

    // SAFETY (all): the tests break assumptions on the cpu device, which checks them.

    #[test]
    fn promises_of_views() -> Result<()> {
        let want = "tile index 3 is outside of an extent of 100, in tiles of 32, and was assumed to be in bounds";
        let loads = |x: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<i32>| {
            y.store(0, x.load_with(i, [32], unsafe { LoadOptions::new().check_bounds(false) }));
        };
        tried(loads, 2, 3, want)?;
        let stores = |x: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<i32>| {
            y.store_with(i, x.load(0, [32]), unsafe { StoreOptions::new().check_bounds(false) });
        };
        tried(stores, 2, 3, want)?;
        let want = "tile index -1 is outside of an extent of 100, in tiles of 32, and was assumed to be in bounds";
        tried(stores, 0, -1, want)
    }

    #[test]
    fn promises_of_pointers() -> Result<()> {
        let gathers = |x: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<i32>| {
            let options = unsafe { GatherOptions::new().check_bounds(false) };
            y.store(0, x.gather_with(arange(0..4) + i, options));
        };
        tried(gathers, 96, 97, "element 100 is outside of an array whose last element is 99 (element [3])")?;
        let scatters = |_: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<i32>| {
            // Elements outside of the mask are not assumed to be in bounds.
            let at = arange(0..4);
            let options = unsafe { ScatterOptions::new().check_bounds(false) };
            y.scatter_with(at + i, ones([4]), options.mask(at.ge(1)));
        };
        tried(scatters, -1, -2, "element -1 is outside of an array whose last element is 99 (element [1])")?;
        let adds = |_: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<i32>| {
            let at = arange(0..2) + i;
            crate::if_then(bid(0).eq(0), || {
                y.atomic_add_with(at, 1, unsafe { AtomicOptions::new().check_bounds(false) });
            });
        };
        tried(adds, 98, 99, "element 100 is outside of an array whose last element is 99 (element [1])")
    }

    #[test]
    fn promises_of_numbers() -> Result<()> {
        let bounds = |_: Array<i32, 1>, y: ArrayMut<i32, 1>, n: Scalar<i32>| {
            y.store_scalar(0, unsafe { n.assume_bounds(3..10) } + 1);
        };
        tried(bounds, 3, 2, "2 was assumed to be at least 3")?;
        tried(bounds, 9, 10, "10 was assumed to be at most 9")?;
        let divisible = |x: Array<i32, 1>, y: ArrayMut<i32, 1>, n: Scalar<i32>| {
            y.store(0, unsafe { (x.load(0, [4]) * n).assume_divisible_by(8) } / 8);
        };
        tried(divisible, 16, 4, "4 was assumed to be divisible by 8 (element [1])")
    }
}
