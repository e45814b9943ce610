//! Source of the code of a GPU, retained for other forms of the kernel.

use crate::backend::Hints;
use crate::ir::Module;
use crate::runtime::Gpu;

/// Kernel before the back end, from which further forms are compiled on demand.
pub(crate) struct Source {
    pub name: String,
    pub module: Module,
    pub gpu: &'static Gpu,
    pub hints: Hints,
    pub form: SourceForm,
}

/// Form of the code of a kernel.
#[derive(Clone, Copy, Default)]
pub(crate) struct SourceForm {
    /// The module is the persistent form of a kernel.
    pub is_persistent: bool,
    /// The code is for all numbers among the parameters.
    pub assumes_nothing: bool,
}
