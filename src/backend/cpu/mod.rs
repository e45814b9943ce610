//! The cpu back end: an interpreter, the definition of what every op means.

mod memory;

pub use memory::Memory;

use crate::backend::ParamWord;
use crate::error::Result;
use crate::ir::Module;

/// How a launch runs.
#[derive(Clone, Copy, Default)]
pub struct RunOptions<'a> {
    /// One tile block after another, in order, on the calling thread.
    pub sequential: bool,
    /// Receives what the kernel prints, block after block in the order of the grid; standard output if `None`.
    pub print: Option<&'a (dyn Fn(&str) + Sync)>,
}

/// A kernel ready to be interpreted.
pub struct Program {
    #[allow(dead_code)]
    module: Module,
}

impl Program {
    /// Prepares the first entry of a verified module.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] names every op that has no meaning on a CPU.
    pub fn compile(module: &Module) -> Result<Program> {
        Ok(Program { module: module.clone() })
    }

    /// Runs every tile block of the grid; returns when all are done.
    ///
    /// # Errors
    /// [`crate::Error::Execution`] with the user's place for an access outside of `memory`, an integer
    /// division by zero, a broken promise or a failed assertion: the one of the lowest block.
    pub fn run(&self, grid: [u32; 3], params: &[ParamWord], memory: &Memory, options: &RunOptions) -> Result<()> {
        let _ = (grid, params, memory, options);
        todo!("interpreter")
    }
}
