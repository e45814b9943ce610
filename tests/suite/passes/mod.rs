//! Translation checks: input and output of each pass, interpreted on the cpu back end from the same
//! memory, leave the same memory. A failing pass is named, and the reducer of random programs
//! reduces the program for it.
//!
//! The passes are those of `pass::PIPELINE`, of both plans of the ptx back end, of its rewritings
//! wherever they apply, and of the Tile IR back end. Some results have an oracle of their own:
//!
//! * `order_memory`: the accesses run in the opposite order, as far as memory tokens permit it
//!   ([`oracles`]).
//! * `relax_memory_order`: the check of races sees the orders that are left.
//! * `no_wrap`: the interpreter checks the promises of the result.
//! * `record_accesses`, `record_writes`: the numbers of records are those of the elements that
//!   change.
//! * Instructions of PTX without semantics are replaced by ops with their meaning.

mod kernels;
mod mutations;
mod oracles;
mod planted;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use cutlet::Target;
use cutlet::backend::Hints;
use cutlet::backend::cpu::{Memory, Program, RunOptions};
use cutlet::backend::ptx::{self, PlanSearch, rewritten, rewritten_persistent, run_passes, run_selection_passes};
use cutlet::backend::schedule_sim::ScheduleSimulator;
use cutlet::backend::tileir::{self, Guards, Version};
use cutlet::dtype::DType;
use cutlet::ir::{Module, Type, Value, verify};
use cutlet::pass::{Fault, PIPELINE, POSITIVE_RANGE, PassRun, instrument_accesses, optimize, record_passes};

use crate::harness::PERSISTENT_CTAS;

pub use planted::trials;

/// Tests whose kernels are made for passes that random programs seldom reach.
const MADE_FOR_PASSES: [&str; 3] = ["dependent/", "mma_loops/", "extents/"];

/// Returns true if the passes of this test are checked: every third random program, and every 16th
/// test that is made for a pass. `CUTLET_PASSES=k` selects every k-th test.
pub fn are_checked(name: &str) -> bool {
    let begins = |part: &&str| name.starts_with(*part);
    let wish: Option<u64> = std::env::var("CUTLET_PASSES").ok().and_then(|text| text.parse().ok());
    let every = match wish {
        Some(wish) => wish.max(1),
        None if name.starts_with("random/") => 3,
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
    let ((), runs) = record_passes(fault, || run_all(trace, hints, launched.words, Part::of(fault)));
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
    /// Passes that precede instruction selection.
    Selection,
    /// Passes of launches with checks.
    Instrument,
    TileIr(Guards, Target, Option<Version>),
}

/// Target of Tile IR with all types.
const SM_100: Target = Target { arch: 100, accelerated: false };
const SM_80: Target = Target { arch: 80, accelerated: false };

/// Passes of the Tile IR back end.
const OF_TILE_IR: [&str; 16] = [
    "atomic_16bit",
    "drop_layouts",
    "drop_loop_hints",
    "expand_gather",
    "expand_inline_ptx",
    "expand_ordered_reductions",
    "guard_bounds",
    "legalize_arithmetic",
    "legalize_assertions",
    "legalize_padding",
    "no_wrap",
    "order_memory",
    "read_tf32_as_f32",
    "split_loops",
    "version_overlap",
    "widen_loops",
];

impl Part {
    /// The passes of a planted fault.
    fn of(fault: Option<Fault>) -> Part {
        let Some(Fault { pass, .. }) = fault else { return Part::All };
        match pass {
            "strip_inline_ptx_semantics" | "expand_bit_reverse" | "relax_floats" => Part::Selection,
            "assume_to_assert" | "record_accesses" | "record_writes" => Part::Instrument,
            "positive_extents" => Part::TileIr(Guards::Launch, SM_100, None),
            "drop_assumptions" => Part::TileIr(Guards::Kernel, SM_100, Some(Version::V13_1)),
            "saturate" => Part::TileIr(Guards::Kernel, SM_100, Some(Version::V13_5)),
            "read_tf32_as_f32" => Part::TileIr(Guards::Kernel, SM_80, None),
            _ if PIPELINE.iter().any(|entry| entry.name == pass) => Part::Pipeline,
            _ if OF_TILE_IR.contains(&pass) => Part::TileIr(Guards::Kernel, SM_100, None),
            _ => Part::Ptx,
        }
    }
}

/// Runs passes.
fn run_all(trace: &Module, hints: Hints, words: &[u64], part: Part) {
    let mut module = trace.clone();
    if part == Part::Instrument {
        return instrument_accesses(&mut module);
    }
    optimize(&mut module);
    match part {
        Part::Pipeline | Part::Instrument => {}
        Part::Ptx => run_ptx(&module, hints, has_positive_params(&module, words)),
        Part::Selection => run_selection_passes(&module),
        Part::TileIr(guards, target, version) => run_tile_ir(&module, guards, target, version),
        Part::All => {
            run_ptx(&module, hints, has_positive_params(&module, words));
            run_tile_ir(&module, Guards::Kernel, SM_100, None);
        }
    }
}

/// Returns true if all parameters of f32 have words in [`POSITIVE_RANGE`].
pub fn has_positive_params(module: &Module, words: &[u64]) -> bool {
    let params = &module.block(module.entries[0].body).args;
    let is_positive = |(&param, &word): (&Value, &u64)| {
        *module.ty(param) != Type::scalar(DType::F32) || POSITIVE_RANGE.contains(&f32::from_bits(word as u32))
    };
    params.iter().zip(words).all(is_positive)
}

fn run_ptx(module: &Module, hints: Hints, has_positive_params: bool) {
    let _ = rewritten_persistent(module, has_positive_params).unwrap_or_else(|| rewritten(module, has_positive_params));
    let mut options = ptx::CompileOptions::default();
    (options.num_warps, options.num_stages, options.num_ctas) = (hints.num_warps, hints.num_stages, hints.num_ctas);
    (options.tma, options.plan_search) = (module.globals.is_empty(), PlanSearch::Off);
    options.assumes_positive_params = has_positive_params;
    for target in [Target::SM_80, Target::SM_90A] {
        run_passes(module, target, &options);
    }
}

fn run_tile_ir(module: &Module, guards: Guards, target: Target, version: Option<Version>) {
    let mut options = tileir::CompileOptions::default();
    (options.guards, options.version) = (guards, version);
    // A kernel that the target rejects has passes, too.
    let _ = tileir::compile(module, target, &options);
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

/// Words of the record of an array, and of a log.
const RECORD: usize = 1 << 12;

impl Checker<'_> {
    fn check(&mut self, run: &PassRun) -> Result<()> {
        let PassRun { name, before, after } = run;
        let (from, to) = (before.to_string(), after.to_string());
        count(name, from != to);
        if from == to {
            return Ok(());
        }
        let judged = match *name {
            "order_memory" => Some(oracles::reversed(after)),
            "strip_inline_ptx_semantics" | "expand_bit_reverse" => Some(oracles::with_known_instructions(after)),
            _ => None,
        };
        let (after, to) = match &judged {
            Some(judged) => (judged, judged.to_string()),
            None => (after, to),
        };
        let wanted = self.outcome(name, before, from, false);
        let found = self.outcome(name, after, to, true);
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

    /// Interprets a module; `is_result`: that of the pass, whose records are counted.
    fn outcome(&mut self, pass: &str, module: &Module, text: String, is_result: bool) -> Outcome {
        let sees_races = pass == "relax_memory_order";
        let key = if sees_races { format!("races:\n{text}") } else { text };
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let Launched { grid, words, memory } = *self.launched;
        ScheduleSimulator::restore(memory, &self.before);
        let printed = Mutex::new(String::new());
        let print = |part: &str| printed.lock().unwrap().push_str(part);
        let num_params = module.block(module.entries[0].body).args.len();
        // The last parameters of a persistent form are the extents of the grid, those of an
        // instrumented kernel records.
        let is_recorded = pass.starts_with("record_");
        let (grid, mut words) = match !is_recorded && num_params == words.len() + grid.len() {
            true => ([PERSISTENT_CTAS as u32, 1, 1], [words, &grid.map(u64::from)].concat()),
            false => (grid, words.to_vec()),
        };
        let mut with_records = memory.clone();
        let mut records = vec![vec![0u64; RECORD]; num_params.saturating_sub(words.len())];
        for record in &mut records {
            words.push(record.as_mut_ptr().expose_provenance() as u64);
            // SAFETY: the records outlive the run, and nothing else accesses them.
            unsafe { with_records.add(record.as_mut_ptr().cast(), RECORD * 8, true) };
        }
        let mut options = RunOptions::default().print(&print);
        options.until = Some(Instant::now() + TIME_LIMIT);
        options.checks.races = sees_races;
        let program = Program::compile(module).map(|program| program.with_loop_limit(Some(LOOP_LIMIT)));
        let outcome = match program.and_then(|program| program.run(grid, &words, &with_records, &options)) {
            Ok(()) => {
                let left = ScheduleSimulator::contents(memory);
                let record = records.last().filter(|_| is_recorded && is_result);
                match record.and_then(|record| unrecorded(pass, record, &self.before, &left)) {
                    Some(problem) => Outcome::Fails(problem),
                    None => Outcome::Left(Arc::new(left), printed.into_inner().unwrap()),
                }
            }
            Err(error) => Outcome::Fails(error.to_string()),
        };
        self.known.insert(key, outcome.clone());
        outcome
    }
}

/// Returns the difference between the number of elements of an i32 array that a kernel changes, and
/// the number of its records: of accesses two words for each element, of writes a byte.
fn unrecorded(pass: &str, record: &[u64], before: &[Vec<u8>], left: &[Vec<u8>]) -> Option<String> {
    let changed =
        |(before, left): (&Vec<u8>, &Vec<u8>)| before.chunks(4).zip(left.chunks(4)).filter(|(a, b)| a != b).count();
    let changed: usize = before.iter().zip(left).map(changed).sum();
    let recorded = match pass {
        "record_accesses" => record.iter().filter(|word| **word != 0).count() / 2,
        _ => record.iter().flat_map(|word| word.to_ne_bytes()).filter(|byte| *byte != 0).count(),
    };
    (recorded != changed).then(|| format!("{recorded} elements are recorded, {changed} change"))
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
    CHANGED.set(CHANGED.get() + usize::from(changed));
}

thread_local! {
    /// Runs of passes on this thread that changed a module.
    static CHANGED: Cell<usize> = const { Cell::new(0) };
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
