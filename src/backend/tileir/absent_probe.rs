//! The launch probe of a build without the feature `tileir`: a type without values.

use crate::backend::ParamWord;
use crate::ir::Module;

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
