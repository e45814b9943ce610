//! Passes: ir to ir. The pipeline is the list in [`optimize`].

mod facts;

pub use facts::{Facts, Range};

use crate::ir::Module;

/// Runs all passes in order.
pub fn optimize(_module: &mut Module) {}
