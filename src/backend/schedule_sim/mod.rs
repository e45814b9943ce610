//! Simulating schedules: the ptx back end's plan of a kernel, run step by step on the CPU.
//!
//! The interpreter (`backend::cpu`) runs the ops of a kernel in the order of the program. The simulator runs the same ops with the
//! same meanings (`cpu::Frame`), but follows the *schedule*: each partition of a tile block does its steps; tiles that are loaded by the producer or
//! copied ahead are bytes in stages, and MMAs read them there; what goes on by itself is done at any time between its
//! start and the wait for it; strips go strip by strip. What a schedule may not do is an error that names the steps: reading a stage
//! that holds something else or is still written, filling one that is still read, waiting for what never comes.
//!
//! Who goes next, and when copies arrive, comes from a seed ([`Simulation::run`]). The memory that is left has to be that of the interpreter, to the last bit.
//!
//! * `block` — partitions of a tile block take turns; `order` says whose it is;
//! * `agent`, `steps`, `control`, `products`, `strips` — what a partition does; `groups` — which warps are one;
//! * `shared`, `rings`, `copies`, `stage` — stages, and what has been begun;
//! * `source`, `boxes` — where elements stand in a stage;
//! * `kernel`, `fault` — what runs, and what is wrong with it.
//!
//! Pairs of tile blocks are run as blocks on their own. For tests; knows the schedule and the interpreter, which know nothing of it.

mod block;
mod error;
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

/// A kernel as the ptx back end schedules it, ready to run.
pub struct Simulation<'a> {
    scheduled: &'a Scheduled<'a>,
}

impl Simulation<'_> {
    /// Plans a kernel for a target, for launches with these parameters, and gives `then` what runs it.
    ///
    /// # Errors
    /// Those of the ptx back end; those of `then`.
    pub fn plan(
        module: &Module,
        target: Target,
        options: &CompileOptions,
        params: &[ParamWord],
        then: &mut dyn FnMut(&Simulation<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut look = |scheduled: &Scheduled<'_>| {
            // The launch has another kernel for arrays that no map describes.
            if scheduled.maps.iter().any(|map| map.resolve(params).is_none()) {
                return Ok(false);
            }
            then(&Simulation { scheduled })?;
            Ok(true)
        };
        if !with_schedule(module, target, options, &mut look)?? {
            with_schedule(module, target, &CompileOptions { tma: false, ..*options }, &mut look)??;
        }
        Ok(())
    }

    /// Can a kernel be run again from the same memory, with the same results? Not if blocks wait for each other, or if memory
    /// beside that of the launch may be written.
    ///
    /// # Errors
    /// Those of the interpreter.
    pub fn is_repeatable(module: &Module) -> Result<bool> {
        Ok(Program::compile(module)?.is_repeatable())
    }

    /// All that launches with this memory may write, as it is now.
    pub fn contents(memory: &Memory) -> Vec<Vec<u8>> {
        memory.contents()
    }

    /// Makes it what it was.
    pub fn restore(memory: &Memory, contents: &[Vec<u8>]) {
        memory.restore(contents);
    }

    fn module(&self) -> &Module {
        self.scheduled.context.module
    }

    /// The schedule as text.
    pub fn text(&self) -> String {
        self.scheduled.schedule.to_text(self.module())
    }

    /// Runs the kernel by the interpreter, and then from the same memory in these orders: what each leaves and prints has to be the
    /// same. (Only in the last one, and without the interpreter, where blocks wait for each other or memory beside that of the launch may be
    /// written.)
    ///
    /// # Errors
    /// [`Error::Execution`]: those of the interpreter; those of a run; a difference.
    pub fn check(&self, grid: [u32; 3], params: &[ParamWord], memory: &Memory, orders: &[u64]) -> Result<()> {
        let program = Program::compile(self.module())?;
        if !program.is_repeatable() {
            return orders.last().map_or(Ok(()), |&seed| self.run(grid, params, memory, seed).map(drop));
        }
        let before = memory.contents();
        let text = std::sync::Mutex::new(String::new());
        let print = |part: &str| text.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push_str(part);
        let wanted = program.run(grid, params, memory, &RunOptions::default().sequential().print(&print));
        let (text, after) = (text.into_inner().unwrap_or_default(), memory.contents());
        for &seed in orders {
            memory.restore(&before);
            match (self.run(grid, params, memory, seed), &wanted) {
                (Err(error), Ok(())) => return Err(error),
                (Ok(_), Err(error)) => {
                    return Err(self.differs(seed, format!("nothing is wrong, where there should be: {error}")));
                }
                // Steps come in another order: it may be another error.
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
        wanted
    }

    fn differs(&self, seed: u64, what: String) -> Error {
        let message = format!("the schedule is broken: it does not do what the kernel does: {what}");
        Error::Execution(Diagnostic::new(message, None).note(format!("order {seed}")))
    }

    /// Runs all tile blocks, one after the other, or in turns where they wait for each other; gives what they print. Seeds 0 to 2 are
    /// extremes: who loads is as far ahead as can be and copies come as late as can be; who loads comes last; everything comes at
    /// once. Others are by chance.
    ///
    /// # Errors
    /// [`Error::Execution`]: those of the interpreter, and what is wrong with the schedule.
    pub fn run(&self, grid: [u32; 3], params: &[ParamWord], memory: &Memory, seed: u64) -> Result<String> {
        let program = Program::compile(self.module())?.in_any_order();
        let kernel = Kernel::new(self.scheduled, &program, memory, grid, params);
        let ids = (0..grid[2]).flat_map(|z| (0..grid[1]).flat_map(move |y| (0..grid[0]).map(move |x| [x, y, z])));
        let mut waiting: VecDeque<(usize, Block<'_>)> = VecDeque::new();
        let mut printed: BTreeMap<usize, String> = BTreeMap::new();
        for (number, id) in ids.enumerate() {
            waiting.push_back((number, Block::new(&kernel, id, seed)));
            self.go_on(&mut waiting, &mut printed, seed)?;
        }
        while !waiting.is_empty() {
            self.go_on(&mut waiting, &mut printed, seed)?;
        }
        Ok(printed.into_values().collect())
    }

    /// One turn of every block that is there.
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

/// The first byte that is not the same: of which list, and where.
fn difference(got: &[Vec<u8>], wanted: &[Vec<u8>]) -> Option<(usize, usize)> {
    let mut lists = got.iter().zip(wanted).enumerate();
    lists.find_map(|(list, (got, wanted))| Some((list, got.iter().zip(wanted).position(|(a, b)| a != b)?)))
}
