//! The generator of a build without the feature `tileir`: each compilation is an error.

use super::interface::{CompileOptions, Compiled};
use crate::backend::ParamWord;
use crate::error::{Diagnostic, Error, Result};
use crate::ir::Module;
use crate::target::Target;

/// Computation of tile indices by a kernel of its own. There is none, because no module is
/// compiled.
#[derive(Clone, Debug)]
pub enum Probe {}

impl Probe {
    /// Returns the probe as a module for the cpu back end.
    pub fn module(&self) -> &Module {
        match *self {}
    }

    /// Returns true if ranges prove all assertions.
    pub fn is_proven(&self, _: [u32; 3], _: &[ParamWord]) -> bool {
        match *self {}
    }
}

/// Returns the error of a build without this back end.
///
/// # Errors
/// [`Error::Unsupported`], which names the feature.
pub fn compile(_: &Module, _: Target, _: &CompileOptions) -> Result<Compiled> {
    let message = "this build of cutlet has no back end `tileir`: enable the feature `tileir` in its Cargo.toml";
    Err(Error::Unsupported(vec![Diagnostic::new(message, None)]))
}
