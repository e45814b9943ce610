//! The plans of a launch and what they would take, by the cost model of schedules.

use super::text::traced;
use crate::backend::ptx::LaunchInfo;
use crate::error::Result;
use crate::kernel::{Arguments, Bound, IntoKernelArg, Kernel, WordWriter};
use crate::launch::compile::check_hints::check_hints;
use crate::launch::compile::ptx::{Plan, plans};
use crate::launch::options::Launch;
use crate::runtime::Backend;
use crate::target::Target;

impl Launch<'_> {
    /// The plan that the ptx back end takes for this launch on a GPU of a target, and with `all` those that its hints leave open: what
    /// each would take by the cost model, and how it is taken. For measurements of the model.
    ///
    /// # Errors
    /// As for [`Inspection`](crate::Inspection); [`crate::Error::Argument`] for a grid beyond the
    /// limits.
    #[doc(hidden)]
    #[track_caller]
    pub fn plans<K, A, P>(&self, kernel: K, args: A, target: Target, all: bool) -> Result<Vec<Plan>>
    where
        K: Kernel<P>,
        A: IntoKernelArg<P>,
    {
        check_hints(self.hints)?;
        let grid = self.grid.checked(Backend::Ptx)?;
        let args = Arguments::of(args);
        let bound = Bound::new(&kernel, &args);
        let call = bound.call();
        let (module, _) = traced(&call)?;
        let mut words = WordWriter::default();
        call.args().pack(&mut |word| words.push(word));
        plans(&module, target, self.hints, LaunchInfo { grid, params: words.words() }, all)
    }
}
