//! Planted faults of passes: the translation check must name the pass of each one. Each pass has at
//! least one, and changes a program of the fault.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use cutlet::ir::{Module, Opcode};
use cutlet::pass::{Fault, NAMES, record_passes};

use super::kernels as k;
use super::mutations as m;
use super::{CHANGED, mutations};
use crate::exact;
use crate::harness::{Session, Stage};
use crate::random;
use crate::runner::{Completion, Trial};

/// A planted fault, and the program that shows it.
pub struct Planted {
    what: &'static str,
    fault: Fault,
    program: Program,
}

/// Program of a fault.
enum Program {
    /// Random programs, of which this one is the first.
    Random(u64),
    /// A kernel that is made for the pass.
    Kernel(fn(Session) -> Result<()>),
    /// Two kernels that store equal bits in exact mode.
    Exact(fn(Session) -> Result<()>),
}

type Plant = fn(&Module, &mut Module);

const fn random(pass: &'static str, what: &'static str, seed: u64, plant: Plant) -> Planted {
    Planted { what, fault: Fault { pass, plant }, program: Program::Random(seed) }
}

const fn kernel(pass: &'static str, what: &'static str, kernel: fn(Session) -> Result<()>, plant: Plant) -> Planted {
    Planted { what, fault: Fault { pass, plant }, program: Program::Kernel(kernel) }
}

const fn exact(pass: &'static str, what: &'static str, kernel: fn(Session) -> Result<()>, plant: Plant) -> Planted {
    Planted { what, fault: Fault { pass, plant }, program: Program::Exact(kernel) }
}

/// The faults. The first random program of a fault shows it.
const FAULTS: &[Planted] = &[
    random("canonicalize", "a difference is folded with swapped operands", 2, |_, after| m::swap(after, Opcode::SubI)),
    random("canonicalize", "a signed quotient by a power of two becomes a shift", 32, m::quotients_are_shifts),
    random("canonicalize", "the arms of a branch are swapped", 2, m::all_arms_are_swapped),
    random("cse", "a - b and b - a are one", 2, m::differences_commute),
    random("fold_int_range", "less is less or equal", 4, m::less_is_less_or_equal),
    random("dce", "a store is dead", 1, m::stores_are_dead),
    random("dce", "a loop without results is dead", 27, m::loops_are_dead),
    random("expand_ordered_reductions", "a new constant is larger by one", 5, m::constants_are_larger),
    random("expand_gather", "a new constant is larger by one", 23, m::constants_are_larger),
    random("guard_bounds", "a guard is inverted", 1, m::new_comparisons_are_inverted),
    kernel("licm", "a load leaves a loop that stores", k::stores_in_a_loop, m::loads_leave_loops),
    kernel("relax_memory_order", "an observed order is relaxed", k::counted_blocks, m::all_orders_are_relaxed),
    kernel("expand_scaled_mma", "a scale is lost", k::scaled_product, |b, a| m::bypass_new(b, a, Opcode::MulF)),
    kernel("split_extents", "a new constant is larger by one", k::uneven_tiles, m::constants_are_larger),
    kernel("rematerialize", "a repeated difference has swapped operands", k::long_row, |before, after| {
        m::swap_new(before, after, Opcode::SubF);
    }),
    kernel("sink_loads", "a load sinks below a store", k::two_products, m::loads_sink_below_stores),
    kernel("hoist_factor", "the factor of a maximum is lost", k::two_products, |before, after| {
        m::bypass_new(before, after, Opcode::MulF);
    }),
    kernel("hoist_factor", "a parameter is lost as a factor", k::scaled_maximum, |before, after| {
        m::bypass_new(before, after, Opcode::MulF);
    }),
    kernel("select_to_branch", "the arms of a branch are swapped", k::two_products, m::new_arms_are_swapped),
    kernel("pipeline_dependent_mma", "the last product is lost", k::two_products, |_, after| {
        m::bypass(after, Opcode::MmaF);
    }),
    kernel("persistent", "tile blocks are lost", k::sums_of_products, m::new_loops_are_lost),
    kernel("data_partition", "a factor is lost", k::shared_rows, |_, after| m::bypass(after, Opcode::MulF)),
    kernel("thread_local_reduction", "a sum of threads is lost", k::sums_of_products, |_, after| {
        m::bypass(after, Opcode::AddF);
    }),
    kernel("register_operands", "an operand is that before its factor", k::two_products, |before, after| {
        m::operands_are_others(before, after, Opcode::WithLayout);
    }),
    kernel("relax_floats", "a factor and the term are swapped", k::product_and_sum, m::terms_are_factors),
    kernel("expand_bit_reverse", "the operands of two reversals are exchanged", k::reversed_bits, |_, after| {
        m::exchange(after, Opcode::InlinePtx);
    }),
    kernel("strip_inline_ptx_semantics", "operands are swapped", k::instruction, |_, after| {
        m::swap(after, Opcode::InlinePtx);
    }),
    kernel("expand_inline_ptx", "operands are swapped", k::instruction, |_, after| m::swap(after, Opcode::SubI)),
    kernel("drop_layouts", "a factor and the term are swapped", k::inverse, m::terms_are_factors),
    kernel("split_loops", "the second part of a loop is lost", k::condition_on_the_counter, |_, after| {
        m::last_loop_is_lost(after);
    }),
    kernel("version_overlap", "a mask is inverted", k::tiles_across_the_start, m::new_comparisons_are_inverted),
    kernel("positive_extents", "an extent is assumed to be large", k::divided_by_an_extent, m::bounds_are_larger),
    kernel("legalize_arithmetic", "a condition is inverted", k::long_shifts, m::new_comparisons_are_inverted),
    kernel("legalize_assertions", "an assertion always fails", k::asserted, m::assertions_are_false),
    kernel("drop_loop_hints", "a loop is lost with its hint", k::hinted_loop, |_, after| m::last_loop_is_lost(after)),
    kernel("legalize_padding", "two arrays are exchanged", k::padded_tf32, |_, after| {
        m::exchange(after, Opcode::MakePartitionView);
    }),
    kernel("read_tf32_as_f32", "two arrays are exchanged", k::loaded_tf32, |_, after| {
        m::exchange(after, Opcode::MakePartitionView);
    }),
    kernel("widen_loops", "a loop is lost", k::wide_counter, |_, after| m::last_loop_is_lost(after)),
    kernel("atomic_16bit", "a comparison is inverted", k::atomic_halves, m::new_comparisons_are_inverted),
    kernel("drop_assumptions", "a store is lost with its assumption", k::unchecked, m::stores_are_dead),
    kernel("saturate", "a conversion has another sign", k::to_integers, |_, after| {
        m::signs_are_inverted(after, Opcode::FToI);
    }),
    kernel("no_wrap", "a sum that wraps is said not to", k::wrapping_sums, m::no_sum_wraps),
    kernel("order_memory", "accesses have no order", k::loads_between_stores, m::accesses_have_no_order),
    kernel("assume_to_assert", "an assertion always fails", k::unchecked, m::assertions_are_false),
    kernel("record_accesses", "a record is lost", k::own_tiles, |_, after| {
        m::remove_first(after, Opcode::AtomicRmw);
    }),
    kernel("record_writes", "a record is lost", k::own_tiles, |_, after| {
        m::remove_first(after, Opcode::StorePtr);
    }),
    exact("exact", "a difference has swapped operands", k::cancelled_sums, |_, after| m::swap(after, Opcode::SubI)),
];

/// Number of programs of a fault, and the time after which none is begun.
const PROGRAMS: u64 = 40;
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Found and planted faults of each pass.
static COUNTS: Mutex<BTreeMap<&str, [usize; 2]>> = Mutex::new(BTreeMap::new());

/// A test of each fault, one of the list of faults, and one of the reduction.
pub fn trials() -> Vec<Trial> {
    let trial = |planted: &'static Planted| {
        let name = format!("passes::planted/{}: {}", planted.fault.pass, planted.what);
        Trial::new(name, move || is_named(planted).map(|()| Completion::Completed))
    };
    let test = |name: &str, body: fn() -> Result<()>| Trial::new(name, move || body().map(|()| Completion::Completed));
    let reduced = test("passes::a_program_is_reduced_for_a_pass", a_program_is_reduced_for_a_pass);
    let complete = test("passes::every_pass_has_a_planted_fault", every_pass_has_a_planted_fault);
    FAULTS.iter().map(trial).chain([reduced, complete]).collect()
}

/// Prints the numbers of faults that were found.
pub fn report() {
    let counts = COUNTS.lock().unwrap();
    if !counts.is_empty() {
        counts.iter().for_each(|(pass, [found, planted])| println!("pass {pass}: {found} of {planted} found"));
        let sum = |which: usize| counts.values().map(|count| count[which]).sum::<usize>();
        println!("planted faults of passes: {} of {} found", sum(0), sum(1));
    }
}

/// The pass whose faults are planted in its procedure (`src/pass/prove/symbolic/tests.rs`): it runs
/// before the conditions of launches leave the kernel, which the trace of a test does not have.
const PLANTED_ELSEWHERE: [&str; 1] = ["remove_proved_checks"];

fn every_pass_has_a_planted_fault() -> Result<()> {
    let here = NAMES.iter().filter(|name| !PLANTED_ELSEWHERE.contains(name));
    let without = here.filter(|name| !FAULTS.iter().any(|planted| planted.fault.pass == **name));
    let without: Vec<&&str> = without.collect();
    ensure!(without.is_empty(), "passes without a planted fault: {without:?}");
    Ok(())
}

/// Checks that the fault is found with the name of its pass, and that the pass without the fault
/// changes the program.
fn is_named(planted: &Planted) -> Result<()> {
    let Planted { what, fault, program } = planted;
    COUNTS.lock().unwrap().entry(fault.pass).or_default()[1] += 1;
    let start = Instant::now();
    let clean = Fault { pass: fault.pass, plant: |_, _| {} };
    let session = |fault: &Fault| Session::Interpret(Stage::Passes(Some(*fault)));
    let changed_before = CHANGED.get();
    let by = match program {
        Program::Random(first) => {
            let is_found = |&seed: &u64| random::problem(session(fault), seed).is_some_and(|text| names(fault, &text));
            let seeds = (*first..=*first).chain(1..=PROGRAMS).take_while(|_| start.elapsed() < TIME_LIMIT);
            let seed = seeds.into_iter().find(is_found).ok_or_else(|| anyhow!("{}: {what}: not found", fault.pass))?;
            CHANGED.set(changed_before);
            if let Some(problem) = random::problem(session(&clean), seed) {
                return Err(anyhow!("{problem}"));
            }
            format!("program {seed}")
        }
        Program::Kernel(body) => {
            let found = caught(|| body(session(fault)));
            let text = found.err().map(|error| format!("{error:#}")).unwrap_or_default();
            ensure!(names(fault, &text), "{}: {what}: not found, but {text:?}", fault.pass);
            CHANGED.set(changed_before);
            body(session(&clean))?;
            "a kernel".to_owned()
        }
        Program::Exact(body) => {
            let noted = |fault: &Fault| {
                let noted = || exact::noted(Session::Interpret(Stage::Traced), body);
                let (noted, runs) = record_passes(Some(*fault), noted);
                let changes = runs.iter().filter(|run| run.before.to_string() != run.after.to_string()).count();
                Ok::<_, anyhow::Error>((noted?, changes))
            };
            let (faulty, _) = noted(fault)?;
            ensure!(faulty[0] != faulty[1], "{}: {what}: not found", fault.pass);
            let (clean, changes) = noted(&clean)?;
            ensure!(clean[0] == clean[1], "{}: both kernels store other bits without a fault", fault.pass);
            CHANGED.set(changed_before + changes);
            "two kernels".to_owned()
        }
    };
    ensure!(CHANGED.get() > changed_before, "{}: the pass does not change {by}", fault.pass);
    println!("{}: {what}: found by {by} in {:.1} s", fault.pass, start.elapsed().as_secs_f64());
    COUNTS.lock().unwrap().entry(fault.pass).or_default()[0] += 1;
    Ok(())
}

/// Returns true if a problem names the pass of a fault.
fn names(fault: &Fault, problem: &str) -> bool {
    let texts = ["pass {} changes results", "pass `{}` made an invalid module"];
    texts.iter().any(|text| problem.contains(&text.replace("{}", fault.pass)))
}

/// Runs a function. A panic is an error.
fn caught(body: impl FnOnce() -> Result<()>) -> Result<()> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        Err(anyhow!("{}", payload.downcast_ref::<String>().map_or("a panic", String::as_str)))
    })
}

fn a_program_is_reduced_for_a_pass() -> Result<()> {
    let swapped = Fault { pass: "canonicalize", plant: |_, after| mutations::swap(after, Opcode::SubI) };
    let (whole, core) = random::reduced_size(Session::Interpret(Stage::Passes(Some(swapped))), PROGRAMS)?;
    println!("a program of {whole} steps is reduced to {core}");
    ensure!(core < whole && core <= 12, "{whole} steps are reduced to {core}");
    Ok(())
}
