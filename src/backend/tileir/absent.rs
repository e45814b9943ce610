//! The generator of a build without the feature `tileir`: each compilation is an error.

use super::interface::{CompileOptions, Compiled};
use crate::error::{Diagnostic, Error, Result};
use crate::ir::Module;
use crate::target::Target;

/// Returns the error of a build without this back end.
///
/// # Errors
/// [`Error::Unsupported`], which names the feature.
pub fn compile(_: &Module, _: Target, _: &CompileOptions) -> Result<Compiled> {
    let message = "this build of cutlet has no back end `tileir`: enable the feature `tileir` in its Cargo.toml";
    Err(Error::Unsupported(vec![Diagnostic::new(message, None)]))
}
