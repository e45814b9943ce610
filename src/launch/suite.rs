//! Launches without the types of kernel and arguments, so that `tests/suite` compiles its harness
//! once.

use super::aot::export::{ExportedKernel, Format};
use super::inspect::text::Inspection;
use super::options::Launch;
use crate::error::Result;
use crate::kernel::Call;
use crate::target::Target;

impl Launch<'_> {
    /// [`Launch::launch`] of a call.
    ///
    /// # Errors
    /// As [`Launch::launch`].
    #[doc(hidden)]
    #[track_caller]
    pub fn run_call(&self, call: &Call<'_>) -> Result<()> {
        self.launch_call(call)
    }

    /// [`Launch::export`] of a call.
    ///
    /// # Errors
    /// As [`Launch::export`].
    #[doc(hidden)]
    #[track_caller]
    pub fn exported_call(&self, call: &Call<'_>, target: Target, format: Format) -> Result<ExportedKernel> {
        self.export_call(call, target, format)
    }

    /// PTX of a call, by [`crate::inspect`].
    ///
    /// # Errors
    /// As for [`crate::Inspection`].
    #[doc(hidden)]
    #[track_caller]
    pub fn ptx_of_call(&self, call: &Call<'_>, target: Target) -> Result<String> {
        let code = Inspection::of_call(call).target(target).hints(self.hints);
        let code = match self.checks {
            Some(checks) => code.checks(checks),
            None => code,
        };
        let code = if self.exact { code.exact() } else { code };
        code.ptx()
    }
}
