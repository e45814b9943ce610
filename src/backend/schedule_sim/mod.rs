//! Schedule simulator: executes the schedule of a kernel on the CPU, step by step.
//!
//! The interpreter (`backend::cpu`) executes the ops of a kernel in program order. The simulator
//! executes the same ops with the same semantics (`cpu::Frame`), in the order of the *schedule*:
//! * Each partition of a CTA executes its steps.
//! * Tiles of producer loads and multistage copies are bytes in stages, and MMAs read them there.
//! * Asynchronous operations complete at any time between their issue and the wait for them.
//! * Strip-mined sequences are executed strip by strip.
//!
//! A fault of the schedule is an error that names the steps: a read of a stage that has other tiles
//! or is being written, a write to a stage that is being read, a deadlock.
//!
//! A seed determines the interleaving of the partitions and the completion of copies
//! ([`ScheduleSimulator::run`]). The final memory must be equal to that of the interpreter, bit by
//! bit.
//!
//! [`ScheduleSimulator::explore`] tries all interleavings of a small kernel, and some of a larger
//! one. Its result names it.
//!
//! * `explore`: search over all interleavings;
//! * `block`: scheduling of the partitions of a CTA, by `interleaving`;
//! * `warp`: execution of the steps of one partition;
//! * `memory`: stages, and asynchronous operations;
//! * `kernel`, `error`: the schedule with its launch, and faults.
//!
//! The CTAs of a cluster are executed as single CTAs. The simulator is for tests.

mod block;
mod error;
mod explore;
mod interleaving;
mod kernel;
mod memory;
#[cfg(test)]
mod tests;
mod warp;

use std::collections::{BTreeMap, VecDeque};

use self::block::Block;
use self::kernel::Kernel;
use super::ParamWord;
use super::cpu::{Memory, Program, RunOptions};
use super::ptx::{CompileOptions, Scheduled, with_schedule};
use crate::error::{Diagnostic, Error, Result};
use crate::ir::{Loc, Module};
use crate::target::Target;
use error::Fault;
pub use explore::Explored;
use explore::Explorer;

/// Simulator of a scheduled kernel.
pub struct ScheduleSimulator<'a> {
    scheduled: &'a Scheduled<'a>,
}

impl ScheduleSimulator<'_> {
    /// Schedules a kernel for a target and for launches with these parameters, and calls `then`
    /// with its simulator.
    ///
    /// # Errors
    /// Errors of the ptx back end and of `then`.
    pub fn plan(
        module: &Module,
        target: Target,
        options: &CompileOptions,
        params: &[ParamWord],
        then: &mut dyn FnMut(&ScheduleSimulator<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut simulate = |scheduled: &Scheduled<'_>| {
            // For arrays without a tensor map, the launch has another kernel.
            if scheduled.maps.iter().any(|map| map.resolve(params).is_none()) {
                return Ok(false);
            }
            then(&ScheduleSimulator { scheduled })?;
            Ok(true)
        };
        if !with_schedule(module, target, options, &mut simulate)?? {
            with_schedule(module, target, &CompileOptions { tma: false, ..*options }, &mut simulate)??;
        }
        Ok(())
    }

    /// Returns true if further runs from the same memory have the same results. False if CTAs
    /// wait for each other, or if memory outside of the launch may be written.
    ///
    /// # Errors
    /// Errors of the interpreter.
    pub fn is_repeatable(module: &Module) -> Result<bool> {
        Ok(Program::compile(module)?.is_repeatable())
    }

    /// Returns the contents of all arrays that launches with this memory may write.
    pub fn contents(memory: &Memory) -> Vec<Vec<u8>> {
        memory.contents()
    }

    /// Restores the contents.
    pub fn restore(memory: &Memory, contents: &[Vec<u8>]) {
        memory.restore(contents);
    }

    fn module(&self) -> &Module {
        self.scheduled.context.module
    }

    /// Returns the schedule as text.
    pub fn text(&self) -> String {
        self.scheduled.schedule.to_text(self.module())
    }

    /// Executes the kernel by the interpreter, and then from the same memory in each of these
    /// orders. Final memory and printed text must be equal. If the kernel is not repeatable, only
    /// the last order is executed, without a comparison.
    ///
    /// # Errors
    /// [`Error::Execution`]: errors of the interpreter and of a run, and a difference.
    pub fn check(&self, grid: [u32; 3], params: &[ParamWord], memory: &Memory, orders: &[u64]) -> Result<()> {
        let program = Program::compile(self.module())?;
        if !program.is_repeatable() {
            return orders.last().map_or(Ok(()), |&seed| self.run(grid, params, memory, seed).map(drop));
        }
        let before = memory.contents();
        let text = std::sync::Mutex::new(String::new());
        let print = |part: &str| text.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push_str(part);
        let expected = program.run(grid, params, memory, &RunOptions::default().sequential().print(&print));
        let (text, after) = (text.into_inner().unwrap_or_default(), memory.contents());
        for &seed in orders {
            memory.restore(&before);
            match (self.run(grid, params, memory, seed), &expected) {
                (Err(error), Ok(())) => return Err(error),
                (Ok(_), Err(error)) => {
                    return Err(self.differs(seed, format!("nothing is wrong, where there should be: {error}")));
                }
                // In another order of the steps, another error may be first.
                (Err(_), Err(_)) => {}
                (Ok(printed), Ok(())) => {
                    if let Some((region, byte)) = difference(&memory.contents(), &after) {
                        let what =
                            format!("byte {byte} of the array with number {region} of those that are written differs");
                        return Err(self.differs(seed, what));
                    }
                    if printed != text {
                        return Err(self.differs(seed, format!("prints `{printed}` instead of `{text}`")));
                    }
                }
            }
        }
        expected
    }

    /// Executes the kernel in all interleavings, if they have at most `limit` states, else in these
    /// orders. Each one must have the results of the interpreter.
    ///
    /// # Errors
    /// Those of [`ScheduleSimulator::check`].
    pub fn explore(
        &self,
        (grid, params): ([u32; 3], &[ParamWord]),
        memory: &Memory,
        limit: usize,
        orders: &[u64],
    ) -> Result<Explored> {
        let program = Program::compile(self.module())?;
        let before = memory.contents();
        let mut states = 0;
        if program.is_repeatable() {
            let text = std::sync::Mutex::new(String::new());
            let print = |part: &str| text.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push_str(part);
            program.run(grid, params, memory, &RunOptions::default().sequential().print(&print))?;
            let (text, expected) = (text.into_inner().unwrap_or_default(), memory.contents());
            memory.restore(&before);
            let program = program.in_any_order();
            let kernel = Kernel::new(self.scheduled, &program, memory, grid, params);
            let mut explorer = Explorer::new(&kernel, limit);
            let printed = blocks(grid).map(|id| explorer.block(id).map_err(|fault| self.diagnose(id, fault, 0)));
            let printed: Option<String> = printed.collect::<Result<_>>()?;
            states = explorer.states.min(limit);
            if let Some(printed) = printed {
                return match difference(&memory.contents(), &expected) {
                    None if printed == text => Ok(Explored::Exhaustive { states }),
                    None => Err(self.differs(0, format!("prints `{printed}` instead of `{text}`"))),
                    Some((region, byte)) => {
                        Err(self.differs(0, format!("byte {byte} of the array with number {region} differs")))
                    }
                };
            }
            memory.restore(&before);
        }
        self.check(grid, params, memory, orders)?;
        Ok(Explored::Sampled { orders: orders.len(), states })
    }

    fn differs(&self, seed: u64, what: String) -> Error {
        let message = format!("the schedule is broken: it does not do what the kernel does: {what}");
        Error::Execution(Diagnostic::new(message, None).note(format!("order {seed}")))
    }

    /// Executes all CTAs and returns the printed text. Blocks run one after another, or
    /// interleaved if they wait for each other. Seeds 0 to 2 are extremes: producer first and late
    /// copies; producer last; early copies. Other seeds are random.
    ///
    /// # Errors
    /// [`Error::Execution`]: errors of the interpreter, and faults of the schedule.
    pub fn run(&self, grid: [u32; 3], params: &[ParamWord], memory: &Memory, seed: u64) -> Result<String> {
        let program = Program::compile(self.module())?.in_any_order();
        let kernel = Kernel::new(self.scheduled, &program, memory, grid, params);
        let mut waiting: VecDeque<(usize, Block<'_>)> = VecDeque::new();
        let mut printed: BTreeMap<usize, String> = BTreeMap::new();
        for (number, id) in blocks(grid).enumerate() {
            waiting.push_back((number, Block::new(&kernel, id, seed)));
            self.go_on(&mut waiting, &mut printed, seed)?;
        }
        while !waiting.is_empty() {
            self.go_on(&mut waiting, &mut printed, seed)?;
        }
        Ok(printed.into_values().collect())
    }

    /// Runs each CTA until it waits.
    fn go_on(
        &self,
        blocks: &mut VecDeque<(usize, Block<'_>)>,
        printed: &mut BTreeMap<usize, String>,
        seed: u64,
    ) -> Result<()> {
        for _ in 0..blocks.len() {
            let Some((number, mut block)) = blocks.pop_front() else { return Ok(()) };
            let done = block.run().map_err(|fault| self.diagnose(block.id, fault, seed))?;
            printed.entry(number).or_default().push_str(&block.printed());
            if !done {
                blocks.push_back((number, block));
            }
        }
        Ok(())
    }

    fn diagnose(&self, [x, y, z]: [u32; 3], fault: Fault, seed: u64) -> Error {
        let place = self.module().location(fault.loc.unwrap_or(Loc::UNKNOWN)).cloned();
        let note = format!("in tile block ({x}, {y}, {z}), order {seed}");
        Error::Execution(Diagnostic::new(fault.message, place).note(note))
    }
}

/// Returns the tile blocks of a grid in the order of their numbers.
fn blocks(grid: [u32; 3]) -> impl Iterator<Item = [u32; 3]> {
    (0..grid[2]).flat_map(move |z| (0..grid[1]).flat_map(move |y| (0..grid[0]).map(move |x| [x, y, z])))
}

/// Returns list and position of the first byte that differs.
fn difference(got: &[Vec<u8>], expected: &[Vec<u8>]) -> Option<(usize, usize)> {
    let mut lists = got.iter().zip(expected).enumerate();
    lists.find_map(|(list, (got, expected))| Some((list, got.iter().zip(expected).position(|(a, b)| a != b)?)))
}
