//! Translation checks: input and output of each pass, interpreted on the cpu back end from the same memory, leave the
//! same memory. A failing pass is named, and the reducer of random programs reduces the program for it.
//!
//! The passes are those of `pass::PIPELINE`, of both plans of the ptx back end, of its rewritings wherever they apply,
//! and of the Tile IR back end. Passes that no program of the cpu can judge are listed in [`UNSEEN`].

mod planted;

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use cutlet::Target;
use cutlet::backend::Hints;
use cutlet::backend::cpu::{Memory, Program, RunOptions};
use cutlet::backend::ptx::{self, PlanSearch, rewritten, rewritten_persistent, run_passes};
use cutlet::backend::schedule_sim::ScheduleSimulator;
use cutlet::backend::tileir::{self, Guards};
use cutlet::ir::{Module, verify};
use cutlet::pass::{Fault, PIPELINE, PassRun, optimize, record_passes};

use crate::harness::PERSISTENT_CTAS;

pub use planted::trials;

/// Passes whose effect only other tools judge: orders of memory, and promises to the compiler of Tile IR.
const UNSEEN: [&str; 3] = ["relax_memory_order", "order_memory", "no_wrap"];

/// Tests whose kernels are made for passes that random programs seldom reach.
const MADE_FOR_PASSES: [&str; 5] =
    ["dependent/", "thread_local_reduction/", "data_partition/", "mma_loops/", "extents/"];

/// Returns true if the passes of this test are checked: all random programs, and every 16th test that is made for a pass.
/// `CUTLET_PASSES=k` selects every k-th test.
pub fn are_checked(name: &str) -> bool {
    let begins = |part: &&str| name.starts_with(*part);
    let wish: Option<u64> = std::env::var("CUTLET_PASSES").ok().and_then(|text| text.parse().ok());
    let every = match wish {
        Some(wish) => wish.max(1),
        None if name.starts_with("random/") => 1,
        None if MADE_FOR_PASSES.iter().any(begins) => 16,
        None => return false,
    };
    // By the name, so that a part of the tests is a part of these.
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish().is_multiple_of(every)
}

/// Iterations of a loop of a faulty module.
const LOOP_LIMIT: u32 = 1 << 12;
/// Time of a module. A faulty one may count to 2^31.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Result of the interpretation of a module: memory and printed text, or a failure.
#[derive(Clone, PartialEq)]
enum Outcome {
    Left(Arc<Vec<Vec<u8>>>, String),
    Fails(String),
}

/// A launch.
pub struct Launched<'a> {
    pub grid: [u32; 3],
    pub words: &'a [u64],
    pub memory: &'a Memory,
}

/// Checks each pass on a trace. The memory is left as the optimized kernel leaves it.
pub fn check(trace: &Module, hints: Hints, launched: &Launched<'_>, fault: Option<Fault>) -> Result<()> {
    verify(trace).map_err(|problems| anyhow!("{}\n{trace}", problems[0]))?;
    let ((), runs) = record_passes(fault, || run_all(trace, hints, Part::of(fault)));
    let mut checker = Checker { launched, before: ScheduleSimulator::contents(launched.memory), known: HashMap::new() };
    for run in runs.iter().filter(|run| fault.is_none_or(|fault| fault.pass == run.name)) {
        checker.check(run)?;
    }
    let mut optimized = trace.clone();
    optimize(&mut optimized);
    ScheduleSimulator::restore(launched.memory, &checker.before);
    Ok(execute(&optimized, launched.grid, launched.words, launched.memory)?)
}

/// Passes that a check runs.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    All,
    Pipeline,
    Ptx,
    TileIr,
}

/// Passes of the Tile IR back end with planted faults.
const OF_TILE_IR: [&str; 7] = [
    "expand_gather",
    "expand_ordered_reductions",
    "guard_bounds",
    "legalize_arithmetic",
    "legalize_padding",
    "split_loops",
    "widen_loops",
];

impl Part {
    /// The passes of a planted fault.
    fn of(fault: Option<Fault>) -> Part {
        match fault.map(|fault| fault.pass) {
            None => Part::All,
            Some(name) if PIPELINE.iter().any(|pass| pass.name == name) => Part::Pipeline,
            Some(name) if OF_TILE_IR.contains(&name) => Part::TileIr,
            Some(_) => Part::Ptx,
        }
    }
}

/// Runs passes.
fn run_all(trace: &Module, hints: Hints, part: Part) {
    let mut module = trace.clone();
    optimize(&mut module);
    if matches!(part, Part::All | Part::Ptx) {
        run_ptx(&module, hints);
    }
    if matches!(part, Part::All | Part::TileIr) {
        let mut options = tileir::CompileOptions::default();
        options.guards = Guards::Kernel;
        // A kernel that the target rejects has passes, too.
        let _ = tileir::compile(&module, Target { arch: 100, accelerated: false }, &options);
    }
}

fn run_ptx(module: &Module, hints: Hints) {
    let _ = rewritten_persistent(module).unwrap_or_else(|| rewritten(module));
    let mut options = ptx::CompileOptions::default();
    (options.num_warps, options.num_stages, options.num_ctas) = (hints.num_warps, hints.num_stages, hints.num_ctas);
    (options.tma, options.plan_search) = (module.globals.is_empty(), PlanSearch::Off);
    for target in [Target::SM_80, Target::SM_90A] {
        run_passes(module, target, &options);
    }
}

fn execute(module: &Module, grid: [u32; 3], words: &[u64], memory: &Memory) -> cutlet::Result<()> {
    Program::compile(module)?.run(grid, words, memory, &RunOptions::default())
}

/// Interprets modules from the same memory. Equal modules are interpreted once.
struct Checker<'a> {
    launched: &'a Launched<'a>,
    before: Vec<Vec<u8>>,
    known: HashMap<String, Outcome>,
}

impl Checker<'_> {
    fn check(&mut self, run: &PassRun) -> Result<()> {
        let PassRun { name, before, after } = run;
        let (from, to) = (before.to_string(), after.to_string());
        count(name, from != to);
        if from == to || UNSEEN.contains(name) {
            return Ok(());
        }
        let wanted = self.outcome(before, from);
        let found = self.outcome(after, to);
        if wanted == found {
            return Ok(());
        }
        let what = match (&wanted, &found) {
            (Outcome::Left(wanted, _), Outcome::Left(found, _)) => difference(wanted, found),
            (Outcome::Fails(_), Outcome::Fails(_)) => return Ok(()),
            (Outcome::Fails(error), _) => format!("the kernel fails before the pass: {error}"),
            (_, Outcome::Fails(error)) => format!("the kernel fails after the pass: {error}"),
        };
        bail!("pass {name} changes results: {what}\nbefore:\n{before}\nafter:\n{after}")
    }

    fn outcome(&mut self, module: &Module, text: String) -> Outcome {
        if let Some(known) = self.known.get(&text) {
            return known.clone();
        }
        let Launched { grid, words, memory } = *self.launched;
        ScheduleSimulator::restore(memory, &self.before);
        let printed = Mutex::new(String::new());
        let print = |part: &str| printed.lock().unwrap().push_str(part);
        // The last parameters of a persistent form are the extents of the grid.
        let num_params = module.block(module.entries[0].body).args.len();
        let (grid, words) = match num_params == words.len() + grid.len() {
            true => ([PERSISTENT_CTAS as u32, 1, 1], [words, &grid.map(u64::from)].concat()),
            false => (grid, words.to_vec()),
        };
        let mut options = RunOptions::default().print(&print);
        options.until = Some(Instant::now() + TIME_LIMIT);
        let program = Program::compile(module).map(|program| program.with_loop_limit(Some(LOOP_LIMIT)));
        let outcome = match program.and_then(|program| program.run(grid, &words, memory, &options)) {
            Ok(()) => Outcome::Left(Arc::new(ScheduleSimulator::contents(memory)), printed.into_inner().unwrap()),
            Err(error) => Outcome::Fails(error.to_string()),
        };
        self.known.insert(text, outcome.clone());
        outcome
    }
}

fn difference(wanted: &[Vec<u8>], found: &[Vec<u8>]) -> String {
    for (array, (wanted, found)) in wanted.iter().zip(found).enumerate() {
        if let Some(byte) = wanted.iter().zip(found).position(|(a, b)| a != b) {
            return format!("byte {byte} of array {array} is {:#x} instead of {:#x}", found[byte], wanted[byte]);
        }
    }
    "other text is printed".to_owned()
}

/// Runs of each pass, and those that changed the module.
static COUNTS: Mutex<BTreeMap<&str, [usize; 2]>> = Mutex::new(BTreeMap::new());

fn count(name: &'static str, changed: bool) {
    let mut counts = COUNTS.lock().unwrap();
    let count = counts.entry(name).or_default();
    count[0] += 1;
    count[1] += usize::from(changed);
}

/// Prints how often each pass ran and changed a program.
pub fn report() {
    let counts = COUNTS.lock().unwrap();
    if !counts.is_empty() {
        let lines = counts.iter().map(|(name, [runs, changed])| format!("{name} {changed} of {runs}"));
        println!("passes that changed programs: {}", lines.collect::<Vec<_>>().join(", "));
    }
    planted::report();
}
