//! Plans of a launch, and their times by the cost model.

use super::text::traced;
use crate::backend::ptx::LaunchInfo;
use crate::error::Result;
use crate::kernel::{Arguments, Bound, Kernel, KernelArgs, WordBuffer};
use crate::launch::compile::check_hints::check_hints;
use crate::launch::compile::ptx::{CostedPlan, plans};
use crate::launch::options::Launch;
use crate::runtime::Backend;
use crate::target::Target;

impl Launch<'_> {
    /// Returns the plan that the ptx back end selects for this launch on a GPU of a target. With
    /// `all`, also the other plans that the hints permit. Each has its time by the cost model, and
    /// the hints that select it. For the calibration of the model.
    ///
    /// # Errors
    /// As for [`Inspection`](crate::Inspection); [`crate::Error::Argument`] for a grid beyond the
    /// limits.
    #[doc(hidden)]
    #[track_caller]
    pub fn plans<K, A, P>(&self, kernel: K, args: A, target: Target, all: bool) -> Result<Vec<CostedPlan>>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        check_hints(self.hints)?;
        let grid = self.grid.checked(Backend::Ptx)?;
        let args = Arguments::new(args);
        let bound = Bound::new(&kernel, &args);
        let call = bound.call();
        let (module, _) = traced(&call)?;
        let mut words = WordBuffer::default();
        call.args().pack(&mut |word| words.push(word));
        plans(&module, target, self.hints, LaunchInfo { grid, params: words.words() }, all)
    }
}
