//! Assumptions of a kernel that its code does not check, checked at each launch.

use crate::util::collect::CollectVec as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::backend::tileir::{Bound, LaunchConditions, Param, Probe};
use crate::backend::{ParamWord, cpu};

/// Limit of the tile blocks of a grid that are checked one by one.
const MAX_BLOCKS: u64 = 1 << 17;
/// Number of results of the probe that are cached.
const REMEMBERED: usize = 32;

/// Checkable assumptions of one kernel.
#[derive(Debug)]
pub(crate) struct GuardCheck {
    conditions: LaunchConditions,
    /// Bytes of each parameter; 0 for addresses, on which no assumption depends.
    widths: Vec<u32>,
    /// Results of the probe, the latest one first.
    answers: Mutex<Vec<Answer>>,
    program: OnceLock<Option<cpu::Program>>,
}

#[derive(Debug)]
struct Answer {
    grid: [u32; 3],
    numbers: Box<[ParamWord]>,
    holds: bool,
}

impl GuardCheck {
    pub fn new(conditions: LaunchConditions, params: &[Param]) -> GuardCheck {
        let widths = params.iter().map(|param| if param.pointer { 0 } else { param.bytes }).collect_vec();
        GuardCheck { conditions, widths, answers: Mutex::default(), program: OnceLock::new() }
    }

    /// Returns true if all assumptions hold at a launch with this grid and these parameters.
    pub fn hold(&self, grid: [u32; 3], words: &[ParamWord]) -> bool {
        let number = |index: u32| {
            let unused = 64 - 8 * self.widths[index as usize];
            ((words[index as usize] << unused) as i64) >> unused
        };
        let value = |bound: Bound| bound.value(grid, number);
        self.conditions.limits.iter().all(|limit| value(limit.index) <= value(limit.count))
            && self.conditions.probe.as_ref().is_none_or(|probe| self.answer(probe, grid, words))
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

    /// Executes the probe. The analysis of ranges proves most kernels in microseconds; otherwise
    /// each tile block is checked.
    #[cold]
    fn ask(&self, probe: &Probe, grid: [u32; 3], words: &[ParamWord]) -> bool {
        if probe.is_proven(grid, words) {
            return true;
        }
        if grid.iter().map(|&blocks| u64::from(blocks)).product::<u64>() > MAX_BLOCKS {
            return false;
        }
        let program = self.program.get_or_init(|| cpu::Program::compile(probe.module()).ok());
        let run = |program: &cpu::Program| program.run(grid, words, &cpu::Memory::new(), &cpu::RunOptions::default());
        program.as_ref().is_some_and(|program| run(program).is_ok())
    }
}
