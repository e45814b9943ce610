//! Tests in exact mode: floats are elements of Z/2^w, and results of all ways are compared by their
//! bits, without a reference on the host and without a tolerance (`docs/exact.md`).
//!
//! A test runs twice. The interpreter runs its traces before any pass, and notes the arrays that
//! the test checks. Then the code of a back end runs, and the bits have to be equal: of the
//! optimized module (`cpu_exact::…`), of the passes of the ptx back end (`cpu_exact_rewritten::…`),
//! of its schedules (`cpu_exact_schedule::…`), of Tile IR bytecode (`cpu_exact_tileir::…`) and on a
//! GPU (`gpu_exact::…`, `gpu_exact_tileir::…`). By default a sample of the short tests runs on the
//! CPU, and all tests run on a GPU. `CUTLET_SUITE_EXACT=k` runs every k-th test on the CPU (1:
//! all). A test whose trace takes longer than `CUTLET_SUITE_EXACT_LIMIT` seconds ([`LIMIT`]) is
//! skipped, and counted at the end. All ways of a test share the run of the trace.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use cutlet as ct;
use cutlet::Device;
use cutlet::ir::Module;

use crate::harness::{Session, Stage};
use crate::runner::Completion;
use crate::schedules;

/// Tests that run in exact mode: random kernels, products, attention, sums, scans and atomic
/// additions.
const SUBJECTS: [&str; 21] = [
    "random/",
    "random_product/",
    "product/",
    "chained/",
    "mma_loops/",
    "reduce/",
    "scan/",
    "extents/",
    "atomic_store/",
    "ragged/",
    "joined_operands/",
    "operand_forms/",
    "operand_conversion/",
    "epilogue/",
    "data_partition/",
    "pingpong/",
    "thread_local_reduction/",
    "tma_boxes/",
    "linalg/",
    "exp_order/",
    "narrow/",
];

/// Tests whose results depend on the order of tile blocks where numbers have another order: sums
/// and maxima in one array.
const LEFT_OUT: [&str; 1] = ["atomic_store/assumed"];

/// Tests of which a sample runs if `CUTLET_SUITE_EXACT` is not set. The interpreter takes up to a
/// minute for one of the others: a product in the ring has ten times the operations of one of
/// floats.
const SHORT: [&str; 5] = ["random/", "reduce/float", "mma_loops/", "thread_local_reduction/softmax", "product/scaled"];

/// Every how many of the short tests of a way run.
const EVERY: u64 = 12;

/// Seconds for the trace of a test.
const LIMIT: f64 = 10.0;

/// Bits of an array that a test checks.
#[derive(Clone, Debug, PartialEq)]
pub struct Noted {
    what: String,
    bits: Vec<u64>,
}

enum Mode {
    /// Floats are floats.
    Floats,
    /// A test that compares programs by itself ([`compared`]).
    Selected,
    /// The reference runs.
    Noting(Vec<Noted>),
    /// A back end runs.
    Comparing(VecDeque<Noted>),
}

thread_local! {
    static MODE: RefCell<Mode> = const { RefCell::new(Mode::Floats) };
    static IS_EXACT: Cell<bool> = const { Cell::new(false) };
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns the time at which the interpretation of a trace ends.
pub fn time_limit() -> Option<Instant> {
    UNTIL.get()
}

/// Runs a function whose launches are in exact mode.
fn in_the_ring<X>(body: impl FnOnce() -> X) -> X {
    /// Restores the state also after a panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_EXACT.set(self.0);
        }
    }
    let _restore = Restore(IS_EXACT.replace(true));
    ct::with_exact_mode(body)
}

/// Runs a function in a mode. Returns the mode as the function left it.
fn within<X>(mode: Mode, body: impl FnOnce() -> X) -> (X, Mode) {
    /// Restores the mode also after a panic.
    struct Restore(Option<Mode>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(mode) = self.0.take() {
                MODE.set(mode);
            }
        }
    }
    let mut restore = Restore(Some(MODE.replace(mode)));
    let result = body();
    let left = MODE.replace(restore.0.take().expect("the mode before"));
    (result, left)
}

/// Ways in which a test runs in exact mode, and their sessions. A way without its GPU is left out.
pub fn ways(name: &str, gpu: Option<Device>) -> Vec<(&'static str, Session)> {
    let is_subject = SUBJECTS.iter().any(|subject| name.starts_with(subject));
    if !is_subject || LEFT_OUT.contains(&name) {
        return vec![];
    }
    let mut ways = vec![
        ("cpu_exact", Session::Run(Device::cpu())),
        ("cpu_exact_rewritten", Session::Interpret(Stage::Rewritten)),
        ("cpu_exact_tileir", Session::InterpretTileIr("sm_100".parse().expect("a target"))),
    ];
    if schedules::may_be_simulated(name) && wish().is_some() {
        ways.push(("cpu_exact_schedule", Session::Interpret(Stage::Scheduled)));
    }
    ways.retain(|(way, _)| is_selected(way, name));
    if let Some(device) = gpu {
        ways.push(("gpu_exact", Session::Run(device)));
        if std::env::var_os("CUTLET_SUITE_TILEIR").is_some() {
            ways.push(("gpu_exact_tileir", Session::RunTileIr(device)));
        }
    }
    ways
}

/// Returns true for the tests of the sample. The hash of the name decides, so a filter does not
/// change the sample.
fn is_selected(way: &str, name: &str) -> bool {
    let is_short = SHORT.iter().any(|part| name.starts_with(part));
    let mut hasher = DefaultHasher::new();
    (way, name).hash(&mut hasher);
    let number = hasher.finish();
    wish().map_or(is_short && number.is_multiple_of(EVERY), |every| number.is_multiple_of(every.max(1)))
}

fn wish() -> Option<u64> {
    std::env::var("CUTLET_SUITE_EXACT").ok().and_then(|text| text.parse().ok())
}

/// Runs a test in exact mode. A test of a long trace is skipped.
pub fn run(name: &str, session: Session, body: &dyn Fn(Session) -> Result<()>) -> Result<Completion> {
    // A random kernel that fails is reduced: each candidate is run by both.
    if name.starts_with("random/") {
        return within(Mode::Selected, || body(session)).0.map(|()| Completion::Completed);
    }
    match of_trace(name, body).get().expect("the trace was interpreted") {
        Trace::Noted(noted) => same_as(noted.clone(), session, body).map(|()| Completion::Completed),
        Trace::Long => Ok(Completion::Skipped("exact mode: the trace takes too long".to_owned())),
        Trace::Failed(error) => Err(anyhow!("exact mode: the interpreter: {error}")),
    }
}

/// Runs a body: in exact mode by the interpreter and then by a session, else by the session alone.
pub fn compared(session: Session, body: &dyn Fn(Session) -> Result<()>) -> Result<()> {
    match MODE.with_borrow(|mode| matches!(mode, Mode::Selected)) {
        true => {
            let noted = noted(Session::Interpret(Stage::Traced), body).context("exact mode: the interpreter")?;
            same_as(noted, session, body)
        }
        false => body(session),
    }
}

/// Result of the interpretation of the traces of a test.
enum Trace {
    Noted(Vec<Noted>),
    Long,
    Failed(String),
}

/// Interprets the traces of a test, once for all of its ways.
fn of_trace(name: &str, body: &dyn Fn(Session) -> Result<()>) -> Arc<OnceLock<Trace>> {
    static TRACES: Mutex<BTreeMap<String, Arc<OnceLock<Trace>>>> = Mutex::new(BTreeMap::new());
    let trace = TRACES.lock().unwrap().entry(name.to_owned()).or_default().clone();
    trace.get_or_init(|| {
        let limit = std::env::var("CUTLET_SUITE_EXACT_LIMIT").ok().and_then(|text| text.parse().ok());
        let until = Instant::now() + Duration::from_secs_f64(limit.unwrap_or(LIMIT));
        UNTIL.set(Some(until));
        let noted = noted(Session::Interpret(Stage::Traced), body);
        UNTIL.set(None);
        match noted {
            Ok(noted) => Trace::Noted(noted),
            Err(_) if Instant::now() > until => Trace::Long,
            Err(error) => Trace::Failed(format!("{error:#}")),
        }
    });
    trace
}

/// Runs a session, and compares the arrays that the body checks with those that were noted.
fn same_as(noted: Vec<Noted>, session: Session, body: &dyn Fn(Session) -> Result<()>) -> Result<()> {
    in_the_ring(|| {
        let (result, left) = within(Mode::Comparing(noted.into()), || body(session));
        result.context("exact mode")?;
        let Mode::Comparing(left) = left else { unreachable!("the mode remains") };
        ensure!(left.is_empty(), "exact mode: {} arrays were not compared", left.len());
        Ok(())
    })
}

/// Runs a body in exact mode, and returns the arrays that it checks.
pub fn noted(session: Session, body: &dyn Fn(Session) -> Result<()>) -> Result<Vec<Noted>> {
    in_the_ring(|| noted_floats(session, body))
}

/// Runs a body, and returns the arrays that it checks.
pub fn noted_floats(session: Session, body: &dyn Fn(Session) -> Result<()>) -> Result<Vec<Noted>> {
    let (result, noted) = within(Mode::Noting(vec![]), || body(session));
    result?;
    let Mode::Noting(noted) = noted else { unreachable!("the mode remains") };
    Ok(noted)
}

/// Returns true if bits are noted or compared instead of the checks of the tests.
pub fn is_active() -> bool {
    MODE.with_borrow(|mode| matches!(mode, Mode::Noting(_) | Mode::Comparing(_)))
}

/// Rewrites a trace, if the mode is selected.
pub fn rewrite(module: &mut Module) -> Result<()> {
    match IS_EXACT.get() {
        true => ct::pass::exact(module).map_err(|problems| anyhow!("{}", problems[0])),
        false => Ok(()),
    }
}

/// Notes the bits of an array, or compares them with those that were noted.
pub fn check(what: &str, bits: Vec<u64>) -> Result<()> {
    MODE.with_borrow_mut(|mode| match mode {
        Mode::Floats | Mode::Selected => Ok(()),
        Mode::Noting(noted) => {
            noted.push(Noted { what: what.to_owned(), bits });
            Ok(())
        }
        Mode::Comparing(expected) => {
            let expected = expected.pop_front().with_context(|| format!("{what}: the interpreter checks no array"))?;
            ensure!(expected.what == what, "{what}: the interpreter checks {} here", expected.what);
            let differing = |(a, b): &(&u64, &u64)| a != b;
            let first = expected.bits.iter().zip(&bits).position(|(a, b)| a != b);
            let count = expected.bits.iter().zip(&bits).filter(differing).count();
            ensure!(expected.bits.len() == bits.len(), "{what}: {} and {} elements", expected.bits.len(), bits.len());
            match first {
                None => Ok(()),
                Some(at) => Err(anyhow!(
                    "{what}: {count} of {} elements are wrong, the first at {at}: bits {:#x} instead of {:#x}",
                    bits.len(),
                    bits[at],
                    expected.bits[at]
                )),
            }
        }
    })
}
