//! Launch of a kernel of a bundle.

use super::file::Bundle;
use crate::error::Result;
use crate::kernel::{LaunchArg, refuse_nested};
use crate::launch::checks::Recorded;
use crate::launch::grid::IntoGrid;
use crate::launch::options::Launch;
use crate::launch::run::{make, run};
use crate::launch::specialize::refuse_captured;

impl Bundle {
    /// Launches the kernel of this name whose code matches the arguments: [`crate::launch`] without
    /// a trace.
    ///
    /// Numbers must have exactly the types of the kernel. A struct is passed as the tuple of its
    /// fields. Returns an array for each [`NewArray`](crate::NewArray), and `()` for other
    /// arguments.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn count(x: ArrayMut<i32, 1>) {
    ///     x.store_scalar(ct::bid(0), ct::bid(0));
    /// }
    ///
    /// let bundle = ct::aot::Bundler::new([]).add(count, (ct::ArraySpec::new([3]).mutable(),))?.finish()?;
    /// let mut x = ct::Device::cpu().zeros::<i32, 1>([3])?;
    /// bundle.launch("count", 3, (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [0, 1, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Argument`] if the bundle has no kernel of this name, none for such arguments
    /// (with the differences), or no code for the device; else as [`crate::launch`].
    #[track_caller]
    pub fn launch<A: LaunchArg>(&self, kernel: &str, grid: impl IntoGrid, args: A) -> Result<A::Output> {
        Launch::new(grid).launch_from(self, kernel, args)
    }
}

impl Launch<'_> {
    /// [`Bundle::launch`] with the stream and the checks of this launch. Its hints are ignored, and
    /// it waits for the preceding launch.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<i32, 1>| x.store(0, ct::ones([4]));
    /// let bundle = ct::aot::Bundler::new([]).add_as("fill", fill, (ct::ArraySpec::new([4]).mutable(),))?.finish()?;
    /// let (stream, mut x) = (ct::Device::cpu().stream()?, ct::Device::cpu().zeros::<i32, 1>([4])?);
    /// ct::Launch::new(1).stream(&stream).launch_from(&bundle, "fill", (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [1; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Bundle::launch`].
    #[track_caller]
    pub fn launch_from<A: LaunchArg>(&self, bundle: &Bundle, kernel: &str, args: A) -> Result<A::Output> {
        refuse_nested(|| kernel.to_owned())?;
        let device = self.device(&args)?;
        let mut forms = Vec::new();
        args.forms(&mut forms);
        let entry = bundle.find(kernel, &forms)?;
        self.require_mode(false)?;
        let Some(grid) = self.grid.checked(entry.generator(device))? else {
            make(&args, device)?;
            self.grid.may_be_empty(&args)?;
            return Ok(args.into_output());
        };
        let slot = entry.slot(device);
        if slot.get().is_none() {
            refuse_captured(kernel, self.stream)?;
            slot.fill(|| entry.load(device))?;
        }
        run(&slot, self.stream, grid, false, self.checks_of(entry.generator(device), false, Recorded::NONE)?, &args)?;
        Ok(args.into_output())
    }
}
