//! What a kernel on a GPU was made from, kept for other forms of it.

use crate::backend::Hints;
use crate::ir::Module;
use crate::runtime::Gpu;

/// A kernel before the back end: other forms of it are made from this, when a launch needs one.
pub(crate) struct Source {
    pub name: String,
    pub module: Module,
    pub gpu: &'static Gpu,
    pub hints: Hints,
}
