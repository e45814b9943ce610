//! Preconditions of a kernel, checked at each launch.

use crate::util::collect::CollectVec as _;
use std::sync::{Mutex, PoisonError};

use crate::backend::{ParamWord, cpu};
use crate::error::{Diagnostic, Error, Result};
use crate::ir::{Module, Opcode, Type};

/// Number of successful checks that are cached.
const REMEMBERED: usize = 16;

/// Compiled preconditions of one kernel.
#[derive(Debug)]
pub(crate) struct Preconditions {
    kernel: String,
    program: cpu::Program,
    /// Words that a condition may depend on: all numbers, and all addresses if one is converted to
    /// a number.
    matters: Vec<bool>,
    /// A condition depends on the grid.
    reads_grid: bool,
    /// Numbers and grids that satisfy all conditions, the latest one first.
    held: Mutex<Vec<Box<[ParamWord]>>>,
}

impl Preconditions {
    /// Compiles the module of preconditions of a kernel. Its parameters are those of the kernel,
    /// then the grid.
    ///
    /// # Errors
    /// Errors of the cpu back end.
    pub fn new(kernel: &str, checks: &Module) -> Result<Preconditions> {
        let params = &checks.block(checks.entries[0].body).args;
        let grid = &params[params.len() - 3..];
        let (mut reads_grid, mut reads_addresses) = (false, false);
        checks.walk(checks.entries[0].body, &mut |id| {
            reads_grid |= checks.op(id).operands.iter().any(|value| grid.contains(value));
            reads_addresses |= checks.op(id).code == Opcode::PtrToInt;
        });
        let is_number = |ty: &Type| ty.as_tile().is_some_and(|(elem, _)| elem.dtype().is_some());
        Ok(Preconditions {
            kernel: kernel.to_owned(),
            program: cpu::Program::compile(checks)?,
            matters: params.iter().map(|&param| reads_addresses || is_number(checks.ty(param))).collect_vec(),
            reads_grid,
            held: Mutex::default(),
        })
    }

    /// Checks a launch whose grid is unknown. If any condition depends on the grid, no condition is
    /// checked.
    ///
    /// # Errors
    /// As [`Preconditions::check`].
    pub fn check_arguments(&self, words: &[ParamWord]) -> Result<()> {
        if self.reads_grid { Ok(()) } else { self.check([1; 3], words) }
    }

    /// Checks a launch with this grid and these parameters.
    ///
    /// # Errors
    /// [`Error::Argument`] at the location of the condition that does not hold.
    pub fn check(&self, grid: [u32; 3], words: &[ParamWord]) -> Result<()> {
        // An exported kernel may have further parameters.
        let own = &words[..self.matters.len() - grid.len()];
        let all = own.iter().copied().chain(grid.map(ParamWord::from));
        let numbers = all.zip(&self.matters).map(|(word, &matters)| if matters { word } else { 0 });
        let held = || self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held().iter().any(|known| known.iter().copied().eq(numbers.clone())) {
            return Ok(());
        }
        let numbers: Box<[ParamWord]> = numbers.collect();
        self.evaluate(&numbers)?;
        let mut held = held();
        held.truncate(REMEMBERED - 1);
        held.insert(0, numbers);
        Ok(())
    }

    #[cold]
    fn evaluate(&self, words: &[ParamWord]) -> Result<()> {
        let (memory, options) = (cpu::Memory::new(), cpu::RunOptions { sequential: true, ..Default::default() });
        self.program.run([1; 3], words, &memory, &options).map_err(|error| match error {
            Error::Execution(Diagnostic { message, location, .. }) => {
                let message = message.strip_prefix("assertion failed: ").unwrap_or(&message);
                let note = format!("`{}` requires this of its launches", self.kernel);
                Error::Argument(Diagnostic::new(message, location).note(note))
            }
            other => other,
        })
    }
}
