//! Cpu back end: an interpreter that defines the result of each op.
//!
//! It shares no code with the other back ends, which are compared with it.
//!
//! Tile blocks run in parallel, each one on a single thread. They start in the order of the grid (x
//! fastest). A block may wait for another block by reading memory in a loop. All blocks are started
//! in this case, and the waiting block yields. Results are reproducible, except for races and the
//! order of atomics of the kernel.
//!
//! Cases that other targets leave undefined are defined here:
//!
//! * Accesses outside of the memory of the launch are errors. Excepted are addresses that a kernel
//!   computes from numbers, see [`Memory::allow_any`].
//! * Broken assumptions (`assume`, `inbounds`) are errors.
//! * A shift by the width or more shifts all bits out.
//! * A quotient by zero is 0, a remainder by zero is the dividend.
//! * A conversion of a float to an integer saturates.
//! * f16 and bf16 are rounded after each op.
//!
//! Folders and files:
//!
//! * `program`: a kernel prepared for execution. `thread_pool`: the threads that execute tile
//!   blocks.
//! * `interp`: execution of the ops of one tile block, loops, branches, reductions and scans.
//! * `ops`: functions on words of elements. `memory`: loads, stores, atomics and their addresses.
//! * `checks`: assumptions, and the requested checks: data races and poison.

mod checks;
mod interp;
mod memory;
mod ops;
mod program;
mod thread_pool;

use crate::util::collect::CollectVec as _;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub use checks::options::Checks;
pub(crate) use checks::race_detector::{Access as RaceAccess, BlockClock, RaceDetector, race_message};
pub(crate) use interp::machine::Fault;
#[cfg(any(test, feature = "_suite"))]
pub(crate) use interp::stepper::{Frame, LoopLimit, SlotContent};
pub use memory::host_memory::Memory;
pub(crate) use ops::printf::failure;
pub use program::Program;
pub(crate) use thread_pool::num_threads;

use self::program::Code;
use crate::backend::ParamWord;
use crate::error::{Diagnostic, Error, Result};
use crate::ir::{Loc, MAX_GRID};
use crate::util::report;
use checks::outside::TileCounts;
use interp::cluster_exchange::ClusterExchange;
use interp::machine::Machine;
use interp::slot::Slot;
use interp::value::{Width, Words};

/// Options of the execution of a launch.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct RunOptions<'a> {
    /// Runs the tile blocks one after another on the calling thread, unless the kernel has
    /// clusters.
    pub sequential: bool,
    /// Receives the printed text of the kernel after the last block, in the order of the grid. If
    /// `None`, the text is printed to standard output.
    pub print: Option<&'a (dyn Fn(&str) + Sync)>,
    /// Requested checks, in addition to the permanent ones.
    pub checks: Checks,
    /// Time limit: a tile block or loop iteration that begins later is an error.
    pub until: Option<Instant>,
    /// Order in which the tile blocks start, if the kernel has no clusters.
    pub order: BlockOrder,
}

/// Order in which tile blocks start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockOrder {
    /// The order of the grid.
    #[default]
    Grid,
    /// The reverse order.
    Reverse,
    /// An order that depends on this number.
    Permuted(u64),
}

impl BlockOrder {
    /// Returns the number in the grid of the block that starts at a position.
    fn block(self, position: u64, blocks: u64) -> u64 {
        match self {
            BlockOrder::Grid => position,
            BlockOrder::Reverse => blocks - 1 - position,
            BlockOrder::Permuted(seed) => {
                // A factor without a common divisor with the number of blocks makes a permutation.
                let is_coprime = |factor: &u64| {
                    let (mut a, mut b) = (*factor, blocks);
                    while b > 0 {
                        (a, b) = (b, a % b);
                    }
                    a == 1
                };
                let factor = (seed % blocks..).find(is_coprime).unwrap_or(1);
                let at = u128::from(position) * u128::from(factor) + u128::from(seed >> 32);
                (at % u128::from(blocks)) as u64
            }
        }
    }
}

impl<'a> RunOptions<'a> {
    /// Sets [`RunOptions::sequential`].
    #[must_use]
    pub fn sequential(mut self) -> RunOptions<'a> {
        self.sequential = true;
        self
    }

    /// Sets [`RunOptions::print`].
    #[must_use]
    pub fn print(mut self, print: &'a (dyn Fn(&str) + Sync)) -> RunOptions<'a> {
        self.print = Some(print);
        self
    }
}

impl Program {
    /// Runs all tile blocks of the grid, and returns after the last one.
    ///
    /// `params` are the parameters of the entry in order: addresses, or numbers in the low bits.
    ///
    /// # Errors
    /// * [`Error::Execution`] with the place in the user's source: an access outside of `memory`, a
    ///   broken assumption, a failed assertion. Of several errors, that of the lowest block is
    ///   returned.
    /// * [`Error::Argument`] if the number of parameters differs from that of the entry, or the
    ///   grid exceeds [`MAX_GRID`].
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
        let watch = checks.races.then(|| Arc::new(RaceDetector::new(orders)));
        let until = options.until;
        let order = if self.0.has_clusters() { BlockOrder::Grid } else { options.order };
        let exchange = ClusterExchange::default();
        let launch = Launch {
            code: &self.0,
            grid,
            params,
            memory,
            checks,
            watch: watch.as_deref(),
            until,
            order,
            exchange: &exchange,
        };
        let blocks = launch.blocks();
        // If no block can wait for another one, the race detector runs sequentially: reports are
        // reproducible.
        let is_sequential = options.sequential || blocks <= 1 || (watch.is_some() && !orders);
        if is_sequential && !self.0.has_clusters() {
            let progress = Progress::default();
            launch.work(&progress, &|| ());
            return launch.finish(&progress, options);
        }
        let (code, params, memory, watch) = (self.0.clone(), params.into(), memory.clone(), watch.clone());
        let (progress, exchange) = (Progress::default(), ClusterExchange::default());
        let shared =
            Arc::new(SharedLaunch { code, grid, params, memory, checks, watch, until, order, progress, exchange });
        thread_pool::run(&shared, usize::try_from(blocks - 1).unwrap_or(usize::MAX));
        launch.finish(&shared.progress, options)
    }
}

impl Code {
    /// Returns the parameters of the entry as values.
    fn arguments(&self, params: &[ParamWord]) -> Vec<Slot> {
        let args = &self.module.block(self.body).args;
        let word = |(&arg, &bits): (&crate::ir::Value, &ParamWord)| {
            let (elem, _) = self.module.ty(arg).as_tile().expect("parameters are tiles");
            let bits = if elem.dtype() == Some(crate::dtype::DType::I1) { u64::from(bits & 0xff != 0) } else { bits };
            Slot::tile(Words::splat(Width::of_elem(elem), bits, 1))
        };
        args.iter().zip(params).map(word).collect_vec()
    }

    /// Prints a note, once, if most tiles of a launch were outside by offsets in elements.
    fn note_offsets(&self, tiles: &TileCounts) {
        let Some((loc, step)) = tiles.suspicion() else { return };
        self.noted.call_once(|| {
            let place = self.module.location(loc).map(|place| format!("{place}: ")).unwrap_or_default();
            report::warning(&format!(
                "{place}most tiles of this launch are outside of their arrays: an index counts tiles, here of {step} \
                 elements, and `ct::at(x)` counts elements"
            ));
        });
    }

    fn diagnose(&self, block: [u32; 3], fault: Fault) -> Error {
        let place = self.module.location(fault.loc.unwrap_or(Loc::UNKNOWN)).cloned();
        let [x, y, z] = block;
        Error::Execution(Diagnostic::new(fault.message, place).note(format!("in tile block ({x}, {y}, {z})")))
    }
}

/// Number of waits of a block after which further blocks are started.
const WAITS: u32 = 64;

/// Parameters of one launch.
struct Launch<'a> {
    code: &'a Code,
    grid: [u32; 3],
    params: &'a [ParamWord],
    memory: &'a Memory,
    checks: Checks,
    watch: Option<&'a RaceDetector>,
    until: Option<Instant>,
    order: BlockOrder,
    exchange: &'a ClusterExchange,
}

/// A launch that several threads execute. Threads may hold it after its end, but do not access its
/// memory then.
struct SharedLaunch {
    code: Arc<Code>,
    grid: [u32; 3],
    params: Box<[ParamWord]>,
    memory: Memory,
    checks: Checks,
    watch: Option<Arc<RaceDetector>>,
    until: Option<Instant>,
    order: BlockOrder,
    progress: Progress,
    exchange: ClusterExchange,
}

impl thread_pool::Shared for SharedLaunch {
    fn work(&self, reinforce: &dyn Fn()) {
        let SharedLaunch { code, grid, params, memory, checks, watch, until, order, progress, exchange } = self;
        let (grid, checks, watch, until, order) = (*grid, *checks, watch.as_deref(), *until, *order);
        Launch { code, grid, params, memory, checks, watch, until, order, exchange }.work(progress, reinforce);
    }
}

/// Progress of a launch, shared by its threads.
struct Progress {
    /// Number of the next block to start.
    next: AtomicU64,
    /// Lowest block with an error. Higher blocks need not run.
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
    /// Returns the number of the next block to run, if there is one.
    fn next_block(&self, blocks: u64) -> Option<u64> {
        let number = self.next.fetch_add(1, Relaxed);
        (number < blocks && number <= self.lowest_fault.load(Relaxed)).then_some(number)
    }

    /// Yields the thread of a waiting block, and adds a thread if blocks have not been started.
    /// Returns false if a block has failed: the awaited value may never be written.
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
    /// Number and error of the lowest block that failed.
    fault: Option<(u64, Fault)>,
    /// Printed text by block.
    printed: BTreeMap<u64, String>,
    /// Numbers of tiles that the blocks have accessed.
    tiles: TileCounts,
}

impl Launch<'_> {
    /// Runs blocks, lowest first, until none is left. Each thread of the launch executes this
    /// function.
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
        machine.exchange = Some(self.exchange);
        let arguments = self.code.arguments(self.params);
        while let Some(number) = next {
            self.run_block(&mut machine, &arguments, number, progress);
            next = progress.next_block(self.blocks());
        }
        progress.outcome().tiles.add(&machine.tiles);
    }

    fn blocks(&self) -> u64 {
        self.grid.iter().map(|&n| n as u64).product()
    }

    /// Returns the position in the grid of the block that starts at this position of the order.
    fn block_id(&self, position: u64) -> [u32; 3] {
        let number = self.order.block(position, self.blocks());
        let [x, y, _] = self.grid.map(u64::from);
        [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
    }

    fn run_block(&self, machine: &mut Machine<'_>, arguments: &[Slot], number: u64, progress: &Progress) {
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
        if outcome.fault.is_none() {
            self.code.note_offsets(&outcome.tiles);
        }
        match outcome.fault {
            None => Ok(()),
            Some((number, fault)) => Err(self.code.diagnose(self.block_id(number), fault)),
        }
    }
}

#[cfg(test)]
mod tests;
