//! The cpu back end: an interpreter, the definition of what every op means.
//!
//! It knows the IR and shares no code with other back ends, which are compared with it. Tile blocks run in
//! parallel, each alone on one thread, started in the order of the grid (x fastest). A block may wait for others by
//! reading memory in a loop: all blocks are started then, and take turns. Results are the same from run to run, as far as the kernel's own races and atomics allow.
//!
//! What other targets leave open is settled here: accesses outside of the launch's memory (but through addresses that
//! a kernel makes of numbers, see [`Memory::allow_any`]) and broken promises (`assume`, `inbounds`) are errors; shifts by the width or more shift everything out; a quotient by zero is 0, a
//! remainder the dividend; float to integer saturates. f16 and bf16 round after every op.
//!
//! * `eval` runs blocks of ops, loops, branches, reductions; `dispatch` has one arm an op, and `family` divides all ops among its
//!   functions;
//! * `float`, `exact`, `int`, `cast`, `shape`, `mma` compute on words (`value`);
//! * `access`, `view`, `atomic`, `memory`, `global`, `origin` are loads and stores;
//! * `turns` counts those of loops, and notices loops that never end;
//! * `check` says what is checked on request; `race` looks for races, `checked` runs ops with doubts about numbers
//!   (`doubt`), which `doubtful` raises;
//! * `frame` is a tile block whose ops somebody else orders;
//! * `pool` has the threads; `assume`, `print` and `liveness` do what their names say.

mod checks;
mod interp;
mod memory;
mod ops;
mod program;
mod thread_pool;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub use checks::options::Checks;
pub(crate) use interp::block::Fault;
#[cfg(any(test, feature = "_suite"))]
pub(crate) use interp::stepper::{Frame, Held, LoopTurns};
pub use memory::host_memory::Memory;
pub(crate) use ops::printf::failure;
pub use program::Program;
pub(crate) use thread_pool::num_threads;

use self::program::Code;
use crate::backend::ParamWord;
use crate::error::{Diagnostic, Error, Result};
use crate::ir::{Loc, MAX_GRID};
use checks::race_detector::Watch;
use interp::block::Machine;
use interp::slot::Val;
use interp::value::{Width, Words};

/// How a launch runs.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct RunOptions<'a> {
    /// One tile block after another on the calling thread.
    pub sequential: bool,
    /// Receives what the kernel prints, block after block in the order of the grid, when all have run;
    /// standard output if `None`.
    pub print: Option<&'a (dyn Fn(&str) + Sync)>,
    /// What is checked beside what always is.
    pub checks: Checks,
    /// When the launch has to be done: a tile block that begins or goes round a loop later is an error.
    pub until: Option<Instant>,
}

impl<'a> RunOptions<'a> {
    /// With [`RunOptions::sequential`].
    #[must_use]
    pub fn sequential(mut self) -> RunOptions<'a> {
        self.sequential = true;
        self
    }

    /// With a receiver of what the kernel prints.
    #[must_use]
    pub fn print(mut self, print: &'a (dyn Fn(&str) + Sync)) -> RunOptions<'a> {
        self.print = Some(print);
        self
    }
}

impl Program {
    /// Runs every tile block of the grid; returns when all are done.
    ///
    /// `params` are the entry's parameters in order, addresses or numbers in the low bits.
    ///
    /// # Errors
    /// [`Error::Execution`] with the user's place: an access outside of `memory`, a broken
    /// promise, a failed assertion. Of several, the one of the lowest block.
    /// [`Error::Argument`] when the number of parameters is not the entry's, or the grid is beyond [`MAX_GRID`].
    pub fn run(&self, grid: [u32; 3], params: &[ParamWord], memory: &Memory, options: &RunOptions) -> Result<()> {
        let args = &self.0.module.block(self.0.body).args;
        if args.len() != params.len() {
            let message = format!("the kernel has {} parameters, the launch passes {}", args.len(), params.len());
            return Err(Error::Argument(Diagnostic::new(message, None)));
        }
        if grid.iter().zip(MAX_GRID).any(|(&blocks, most)| blocks > most) {
            let message = format!("grid {grid:?} is outside of the limits {MAX_GRID:?}");
            return Err(Error::Argument(Diagnostic::new(message, None)));
        }
        let orders = self.0.waits();
        let checks = options.checks;
        let watch = checks.races.then(|| Arc::new(Watch::new(orders)));
        let until = options.until;
        let launch = Launch { code: &self.0, grid, params, memory, checks, watch: watch.as_deref(), until };
        let blocks = launch.blocks();
        // Races are looked for in order, if no block can wait for another one: the same report each time.
        if options.sequential || blocks <= 1 || (watch.is_some() && !orders) {
            let progress = Progress::default();
            launch.work(&progress, &|| ());
            return launch.finish(&progress, options);
        }
        let (code, params, memory, watch) = (self.0.clone(), params.into(), memory.clone(), watch.clone());
        let shared =
            Arc::new(SharedLaunch { code, grid, params, memory, checks, watch, until, progress: Progress::default() });
        thread_pool::run(&shared, usize::try_from(blocks - 1).unwrap_or(usize::MAX));
        launch.finish(&shared.progress, options)
    }
}

impl Code {
    /// The parameters of the entry as values.
    fn arguments(&self, params: &[ParamWord]) -> Vec<Val> {
        let args = &self.module.block(self.body).args;
        let word = |(&arg, &bits): (&crate::ir::Value, &ParamWord)| {
            let (elem, _) = self.module.ty(arg).as_tile().expect("parameters are tiles");
            let bits = if elem.dtype() == Some(crate::dtype::DType::I1) { u64::from(bits & 0xff != 0) } else { bits };
            Val::tile(Words::splat(Width::of_elem(elem), bits, 1))
        };
        args.iter().zip(params).map(word).collect()
    }

    fn diagnose(&self, block: [u32; 3], fault: Fault) -> Error {
        let place = self.module.location(fault.loc.unwrap_or(Loc::UNKNOWN)).cloned();
        let [x, y, z] = block;
        Error::Execution(Diagnostic::new(fault.message, place).note(format!("in tile block ({x}, {y}, {z})")))
    }
}

/// A block that waits so often has others started.
const WAITS: u32 = 64;

/// One launch.
struct Launch<'a> {
    code: &'a Code,
    grid: [u32; 3],
    params: &'a [ParamWord],
    memory: &'a Memory,
    checks: Checks,
    watch: Option<&'a Watch>,
    until: Option<Instant>,
}

/// A launch that several threads run. Some may still hold it afterwards, but touch none of its memory.
struct SharedLaunch {
    code: Arc<Code>,
    grid: [u32; 3],
    params: Box<[ParamWord]>,
    memory: Memory,
    checks: Checks,
    watch: Option<Arc<Watch>>,
    until: Option<Instant>,
    progress: Progress,
}

impl thread_pool::Shared for SharedLaunch {
    fn work(&self, reinforce: &dyn Fn()) {
        let SharedLaunch { code, grid, params, memory, checks, watch, until, progress } = self;
        let (grid, checks, watch, until) = (*grid, *checks, watch.as_deref(), *until);
        Launch { code, grid, params, memory, checks, watch, until }.work(progress, reinforce);
    }
}

/// How far a launch has come.
struct Progress {
    /// The next block that nobody has started.
    next: AtomicU64,
    /// Blocks above this one need not run any more.
    lowest_fault: AtomicU64,
    outcome: Mutex<Outcome>,
}

impl Default for Progress {
    fn default() -> Progress {
        let (next, lowest_fault) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Progress { next, lowest_fault, outcome: Mutex::default() }
    }
}

impl Progress {
    /// The next block that somebody has to run.
    fn next_block(&self, blocks: u64) -> Option<u64> {
        let number = self.next.fetch_add(1, Relaxed);
        (number < blocks && number <= self.lowest_fault.load(Relaxed)).then_some(number)
    }

    /// A block waits for what others do: they get time, and where some have not been started, a thread. False if one has failed: what the
    /// block waits for may never come.
    fn wait(&self, blocks: u64, reinforce: Option<&dyn Fn()>) -> bool {
        if let Some(reinforce) = reinforce
            && self.next.load(Relaxed) < blocks
        {
            reinforce();
        }
        std::thread::yield_now();
        self.lowest_fault.load(Relaxed) == u64::MAX
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Outcome {
    /// Of the lowest block that failed.
    fault: Option<(u64, Fault)>,
    /// Texts by block.
    printed: BTreeMap<u64, String>,
}

impl Launch<'_> {
    /// Takes blocks, lowest first, until there are none: what every thread does.
    fn work(&self, progress: &Progress, reinforce: &dyn Fn()) {
        let mut next = progress.next_block(self.blocks());
        if next.is_none() {
            return;
        }
        let waits = Cell::new(0u32);
        let wait = || {
            waits.set(waits.get().wrapping_add(1));
            progress.wait(self.blocks(), waits.get().is_multiple_of(WAITS).then_some(reinforce))
        };
        let mut machine = Machine::new(self.code, self.memory, self.grid, (self.checks, self.watch), &wait);
        machine.until = self.until;
        let arguments = self.code.arguments(self.params);
        while let Some(number) = next {
            self.run_block(&mut machine, &arguments, number, progress);
            next = progress.next_block(self.blocks());
        }
    }

    fn blocks(&self) -> u64 {
        self.grid.iter().map(|&n| n as u64).product()
    }

    fn block_id(&self, number: u64) -> [u32; 3] {
        let [x, y, _] = self.grid.map(u64::from);
        [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
    }

    fn run_block(&self, machine: &mut Machine<'_>, arguments: &[Val], number: u64, progress: &Progress) {
        let result = machine.run(self.block_id(number), arguments);
        let printed = std::mem::take(&mut machine.printed);
        if result.is_ok() && printed.is_empty() {
            return;
        }
        let mut outcome = progress.outcome();
        if !printed.is_empty() {
            outcome.printed.insert(number, printed);
        }
        if let Err(fault) = result
            && !fault.is_abandoned()
        {
            progress.lowest_fault.fetch_min(number, Relaxed);
            if outcome.fault.as_ref().is_none_or(|(lowest, _)| number < *lowest) {
                outcome.fault = Some((number, fault));
            }
        }
    }

    fn finish(&self, progress: &Progress, options: &RunOptions) -> Result<()> {
        let outcome = std::mem::take(&mut *progress.outcome());
        let last = outcome.fault.as_ref().map_or(u64::MAX, |&(number, _)| number);
        for text in outcome.printed.range(..=last).map(|(_, text)| text) {
            match options.print {
                Some(print) => print(text),
                None => print!("{text}"),
            }
        }
        match outcome.fault {
            None => Ok(()),
            Some((number, fault)) => Err(self.code.diagnose(self.block_id(number), fault)),
        }
    }
}

#[cfg(test)]
mod tests;
