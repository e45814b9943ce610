//! Launching a kernel: the way through the other files.

use super::choices::Launch;
use super::grid::Grid;
use super::remarks;
use super::run::run;
use super::specialise::specialise;
use crate::error::Result;
use crate::kernel::{Arguments, ArrivesAs, Kernel, name_of, refuse_nested};

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
        refuse_nested(name_of::<K>)?;
        let args = Arguments::of(args);
        let device = self.device(args.given())?;
        let wishes = self.wishes(device)?;
        let Some(grid) = self.grid.checked(wishes.generator)? else { return self.grid.may_be_empty(args.given()) };
        let slot = specialise(&kernel, &args, device, wishes)?;
        let executable = slot.get().expect("a slot that was specialised is filled");
        if remarks::wanted() {
            self.say_work(device, grid, &kernel, &args, executable.remarks());
        }
        run(executable, self.stream, grid, wishes.dependent, self.checks(device)?, args.given())
    }
}
