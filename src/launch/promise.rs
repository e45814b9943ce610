//! What a kernel relies on without asking, checked at each launch; and the kernel that asks, for launches
//! of which it does not hold.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::compile::GpuCode;
use super::dump::Dump;
use super::tileir;
use crate::backend::tileir::{Bound, Guards, Param, Probe, Promises};
use crate::backend::{Hints, ParamWord, cpu};
use crate::error::Result;
use crate::ir::Module;
use crate::runtime::Gpu;

/// Grids of more blocks are not gone through block by block.
const MOST_BLOCKS: u64 = 1 << 17;
/// Launches that are remembered.
const REMEMBERED: usize = 32;

/// The promises of one kernel, ready to be checked.
#[derive(Debug)]
pub(super) struct Checks {
    promises: Promises,
    /// Bytes of each parameter; 0 for addresses, which nothing depends on.
    widths: Vec<u32>,
    /// The answers of the probe to launches, the last one first.
    answers: Mutex<Vec<Answer>>,
    program: OnceLock<Option<cpu::Program>>,
}

#[derive(Debug)]
struct Answer {
    grid: [u32; 3],
    numbers: Box<[ParamWord]>,
    holds: bool,
}

impl Checks {
    pub fn new(promises: Promises, params: &[Param]) -> Checks {
        let widths = params.iter().map(|param| if param.pointer { 0 } else { param.bytes }).collect();
        Checks { promises, widths, answers: Mutex::default(), program: OnceLock::new() }
    }

    /// Does everything hold at a launch with this grid and these parameters?
    pub fn hold(&self, grid: [u32; 3], words: &[ParamWord]) -> bool {
        let number = |index: u32| {
            let unused = 64 - 8 * self.widths[index as usize];
            ((words[index as usize] << unused) as i64) >> unused
        };
        let value = |bound: Bound| bound.value(grid, number);
        self.promises.limits.iter().all(|limit| value(limit.index) <= value(limit.count))
            && self.promises.probe.as_ref().is_none_or(|probe| self.answer(probe, grid, words))
    }

    fn answer(&self, probe: &Probe, grid: [u32; 3], words: &[ParamWord]) -> bool {
        let numbers: Box<[ParamWord]> =
            words.iter().zip(&self.widths).filter(|(_, width)| **width > 0).map(|(&word, _)| word).collect();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = answers.iter().position(|answer| answer.grid == grid && answer.numbers == numbers);
        let answer = match known {
            Some(position) => answers.remove(position),
            None => Answer { grid, numbers, holds: self.ask(probe, grid, words) },
        };
        let holds = answer.holds;
        answers.truncate(REMEMBERED - 1);
        answers.insert(0, answer);
        holds
    }

    /// Ranges answer for most kernels in microseconds; else the blocks are gone through.
    #[cold]
    fn ask(&self, probe: &Probe, grid: [u32; 3], words: &[ParamWord]) -> bool {
        if probe.is_proven(grid, words) {
            return true;
        }
        if grid.iter().map(|&blocks| u64::from(blocks)).product::<u64>() > MOST_BLOCKS {
            return false;
        }
        let program = self.program.get_or_init(|| cpu::Program::compile(probe.module()).ok());
        let run = |program: &cpu::Program| program.run(grid, words, &cpu::Memory::new(), &cpu::RunOptions::default());
        program.as_ref().is_some_and(|program| run(program).is_ok())
    }
}

/// The promises of a kernel on a GPU, and what is needed to do without them.
pub(crate) struct Promised {
    checks: Checks,
    guarded: OnceLock<Box<GpuCode>>,
    building: Mutex<()>,
    source: Source,
}

/// What the kernel was made from.
pub(super) struct Source {
    pub name: String,
    pub module: Module,
    pub gpu: &'static Gpu,
    pub hints: Hints,
}

impl Promised {
    pub fn new(checks: Checks, source: Source) -> Promised {
        Promised { checks, guarded: OnceLock::new(), building: Mutex::new(()), source }
    }

    /// Can the kernel run with this grid and these parameters?
    #[inline]
    pub fn hold(&self, grid: [u32; 3], words: &[ParamWord]) -> bool {
        self.checks.hold(grid, words)
    }

    /// The kernel that relies on nothing; compiled when it is first asked for.
    ///
    /// # Errors
    /// Those of compiling.
    #[cold]
    pub fn guarded(&self) -> Result<&GpuCode> {
        let _only_one = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = self.guarded.get() {
            return Ok(code);
        }
        let Source { name, module, gpu, hints } = &self.source;
        let dump = Dump::from_env(name, module, &format!("{:?} {hints:?} guarded", gpu.target()));
        let code = tileir::compile(name, module, gpu, *hints, Guards::Kernel, &dump)?;
        Ok(self.guarded.get_or_init(|| Box::new(code)))
    }
}
