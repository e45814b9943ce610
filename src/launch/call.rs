//! Launching a kernel: the way through the other files.

use super::choices::Launch;
use super::grid::Grid;
use super::remarks;
use super::run::run;
use super::specialise::specialise;
use crate::error::Result;
use crate::kernel::{Arguments, ArrivesAs, Kernel, LaunchArg, name_of, refuse_nested};

/// Runs a kernel once for every tile block of a grid.
///
/// `kernel` is a function or closure over what the arguments trace to: `&DeviceArray` arrives as
/// `Array`, `&mut DeviceArray` as `ArrayMut`, a number as `Scalar`, `Constant(x)` as `x`. It runs on the
/// device of its arrays, on that device's default stream; without arrays on [`crate::Device::first`]. On a GPU
/// this returns when the work is queued, on the cpu device when it is done. [`Launch`] has more choices.
///
/// The first launch with given types, constants and forms of arrays traces and compiles the kernel;
/// later ones only queue it. A process keeps the 1024 kernels that were launched last, and those that a
/// [`crate::CompiledKernel`] or a thread still holds.
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
/// [`crate::Error::Kernel`] with everything that is wrong in the kernel, [`crate::Error::Unsupported`] for what the
/// device cannot run, [`crate::Error::Argument`] for arrays on several devices or a grid beyond the limits,
/// [`crate::Error::Driver`] when this or earlier work on the device failed. Nothing runs then, except that on
/// the cpu device [`crate::Error::Execution`] may leave writable arrays partly written.
///
/// # Panics
/// When the kernel panics while it is traced.
#[track_caller]
pub fn launch<K, A, P>(kernel: K, grid: impl Into<Grid>, args: A) -> Result<()>
where
    K: Kernel<P>,
    A: ArrivesAs<P>,
{
    Launch::new(grid).launch(kernel, args)
}

/// Runs a kernel as [`launch`] does, and gives back the arrays that the launch has made: in the place of each
/// [`NewArray`](crate::NewArray) among the arguments a [`DeviceArray`](crate::DeviceArray), in that of everything else `()`.
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
/// let (.., c) = ct::launch_returning(vadd, 2, (&a, &b, ct::NewArray::zeros([100])))?;
/// assert_eq!(c.to_vec()?, [3.0; 100]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// As [`launch`]; [`crate::Error::Argument`] and [`crate::Error::Driver`] also where there is no memory for an array.
///
/// # Panics
/// As [`launch`].
#[track_caller]
pub fn launch_returning<K, A, P>(kernel: K, grid: impl Into<Grid>, args: A) -> Result<<A::Given as LaunchArg>::Back>
where
    K: Kernel<P>,
    A: ArrivesAs<P>,
{
    Launch::new(grid).launch_returning(kernel, args)
}

impl Launch<'_> {
    /// Runs the kernel: see [`launch`].
    ///
    /// # Errors
    /// As [`launch`]; [`crate::Error::Argument`] also when stream or back end do not belong to the device of
    /// the arrays.
    ///
    /// # Panics
    /// As [`launch`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().zeros([3])?;
    /// ct::Launch::new(3).launch(|x: ArrayMut<i32, 1>| x.store_scalar(ct::bid(0), ct::bid(0)), (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [0, 1, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn launch<K, A, P>(&self, kernel: K, args: A) -> Result<()>
    where
        K: Kernel<P>,
        A: ArrivesAs<P>,
    {
        self.launch_with(kernel, &Arguments::of(args))
    }

    /// Runs the kernel and gives its new arrays back: see [`launch_returning`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let count = |y: ArrayMut<i32, 1>| y.store_scalar(ct::bid(0), ct::bid(0));
    /// let launch = ct::Launch::new(3).backend(ct::Backend::Cpu);
    /// let (y,) = launch.launch_returning(count, (ct::NewArray::zeros([3]),))?;
    /// assert_eq!(y.to_vec()?, [0, 1, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`launch_returning`].
    ///
    /// # Panics
    /// As [`launch`].
    #[track_caller]
    pub fn launch_returning<K, A, P>(&self, kernel: K, args: A) -> Result<<A::Given as LaunchArg>::Back>
    where
        K: Kernel<P>,
        A: ArrivesAs<P>,
    {
        let args = Arguments::of(args);
        self.launch_with(kernel, &args)?;
        Ok(args.back())
    }

    #[track_caller]
    fn launch_with<K, A, P>(&self, kernel: K, args: &Arguments<A, P>) -> Result<()>
    where
        K: Kernel<P>,
        A: ArrivesAs<P>,
    {
        refuse_nested(name_of::<K>)?;
        let device = self.device(args.given())?;
        let wishes = self.wishes(device)?;
        let Some(grid) = self.grid.checked(wishes.generator)? else {
            args.given().make(Some(device))?;
            return self.grid.may_be_empty(args.given());
        };
        let slot = specialise(&kernel, args, device, wishes, self.stream)?;
        if remarks::wanted() {
            let executable = slot.get().expect("a slot that was specialised is filled");
            self.say_work(device, grid, &kernel, args, executable.remarks());
        }
        run(&slot, self.stream, grid, wishes.dependent, self.checks(&wishes)?, args.given())
    }
}
