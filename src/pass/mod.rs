//! Passes: ir to ir. The pipeline is the list in [`optimize`].

use crate::ir::Module;

/// Runs all passes in order.
pub fn optimize(_module: &mut Module) {}
