//! What a launch would take, by the cost model of schedules.

use super::choices::Launch;
use super::code::traced;
use super::hints::check_hints;
use super::ptx::{Priced, price};
use crate::error::Result;
use crate::kernel::{Arguments, ArrivesAs, Call, Kernel, WordWriter, body};
use crate::runtime::Backend;
use crate::target::Target;

impl Launch<'_> {
    /// What this launch would take on a GPU of a target, by the cost model of schedules.
    ///
    /// # Errors
    /// As [`code_ptx`](crate::code_ptx).
    #[doc(hidden)]
    #[track_caller]
    pub fn price<K, A, P>(&self, kernel: K, args: A, target: Target) -> Result<Priced>
    where
        K: Kernel<P>,
        A: ArrivesAs<P>,
    {
        check_hints(self.hints)?;
        let grid = self.grid.checked(Backend::Ptx)?;
        let args = Arguments::of(args);
        let body = body(&kernel, &args);
        let call = Call::of(&kernel, &args, &body);
        let (module, _) = traced(&call)?;
        let mut words = WordWriter::default();
        call.args().pack(&mut |word| words.push(word));
        price(&module, target, self.hints, grid, words.words())
    }
}
