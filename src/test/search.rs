//! The search for a failing case, and its report.

use crate::util::collect::CollectVec as _;
use std::fmt;
use std::path::PathBuf;

use super::arrays::element::Tolerance;
use super::corpus::Corpus;
use super::draw::{Case, Drawn};
use super::examine::{Requirements, Verdict, examine};
use super::instance::{Subject, prepare};
use super::laws::Law;
use super::program::program;
use super::random::Random;
use super::reduce::reduce;
use crate::runtime::{Backend, Device};
use crate::util::report;

/// Number of cases of a property, unless `CUTLET_PROPERTY_CASES` or `PROPTEST_CASES` has another
/// one.
const CASES: usize = 64;

/// Maximum number of rejected cases for each case that runs.
const MAX_REJECTED: usize = 20;

/// Requirements of a property, and the choice of its cases.
pub(super) struct Settings {
    pub laws: Vec<Law>,
    pub tolerance: Option<Tolerance>,
    /// The number of cases; `None`: that of the environment.
    pub cases: Option<usize>,
    /// The seed of the only case.
    pub only: Option<u64>,
    pub corpus: Option<PathBuf>,
}

/// A property that holds for all cases that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Number of cases that ran.
    pub cases: usize,
    /// Number of cases that [`Draw::assume`](super::Draw::assume) rejected.
    pub rejected: usize,
}

/// A failing case of a property.
#[derive(Clone)]
pub struct Finding {
    kernel: String,
    seed: u64,
    message: String,
    draws: String,
    program: String,
    case: usize,
    runs: usize,
}

impl Finding {
    /// Returns the seed of the case.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let wrong = |y: ArrayMut<i32, 1>| y.store(0, ct::full([8], 1));
    /// let property = Kernel::new(wrong).shapes(|_| (1, (Output::new([8]),))).reference(|(y,)| y.fill(|_| 2)).without_corpus();
    /// let found = property.check().unwrap_err();
    /// assert_eq!(property.seed(found.seed()).check().unwrap_err().seed(), found.seed());
    /// ```
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the sentence of the failure.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let wrong = |y: ArrayMut<i32, 1>| y.store(0, ct::full([8], 1));
    /// let property = Kernel::new(wrong).shapes(|_| (1, (Output::new([8]),))).reference(|(y,)| y.fill(|_| 2)).without_corpus();
    /// assert_eq!(property.check().unwrap_err().message(), "array `a`: element [0] is 1, the reference has 2");
    /// ```
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the reduced case as a test in Rust.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let wrong = |y: ArrayMut<i32, 1>| y.store(0, ct::full([8], 1));
    /// let property = Kernel::new(wrong).shapes(|_| (1, (Output::new([8]),))).reference(|(y,)| y.fill(|_| 2)).without_corpus();
    /// assert!(property.check().unwrap_err().program().contains("assert_eq!(a.to_vec()?[0], 2i32);"));
    /// ```
    pub fn program(&self) -> &str {
        &self.program
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { kernel, seed, message, draws, program, case, runs } = self;
        writeln!(f, "a property of kernel `{kernel}` fails in case {case}, of seed {seed:#x}")?;
        writeln!(f, "  {}", message.replace('\n', "\n  "))?;
        writeln!(f, "  {draws}")?;
        writeln!(f, "reduced in {runs} runs to:\n\n{program}\n")?;
        write!(f, "CUTLET_PROPERTY_SEED={seed:#x} or `.seed({seed:#x})` runs this case alone")
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the number in an environment variable, decimal or hexadecimal with `0x`.
///
/// # Panics
/// If the variable is set to other text.
fn number_from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(number.unwrap_or_else(|_| panic!("environment variable {name}={text}: expected a number")))
}

/// Returns the GPU that cases also run on.
fn device() -> Option<Device> {
    match Backend::from_env() {
        Ok(Some(Backend::Cpu)) => None,
        _ => (Device::num_gpus() > 0).then(|| Device::gpu(0).ok())?,
    }
}

/// Reports the case if the kernel or the reference panics, next to the text of the panic.
struct Context<'a>(&'a str, u64);

impl Drop for Context<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            report::requested(format_args!(
                "a property of kernel `{}` panics in the case of seed {:#x}\n",
                self.0, self.1
            ));
        }
    }
}

/// Runs the cases of a property: those of the corpus, then random ones.
pub(super) fn search(subject: &dyn Subject, settings: &Settings) -> Result<Summary, Box<Finding>> {
    let name = subject.name();
    let required = Requirements { laws: settings.laws.clone(), tolerance: settings.tolerance, device: device() };
    let corpus = Corpus::new(settings.corpus.as_deref(), &name);
    let mut summary = Summary { cases: 0, rejected: 0 };
    let only = settings.only.or_else(|| number_from_env("CUTLET_PROPERTY_SEED"));
    let cases = settings.cases.or_else(|| number_from_env("CUTLET_PROPERTY_CASES").map(|n| n as usize));
    let cases = cases.or_else(|| number_from_env("PROPTEST_CASES").map(|n| n as usize)).unwrap_or(CASES);
    let (known, cases) = match only {
        Some(seed) => (vec![seed], 1),
        None => (corpus.seeds(), cases),
    };
    let mut random = Random::named(0, &name);
    let cases = cases.max(known.len());
    let mut known = known.into_iter();
    while summary.cases < cases && summary.rejected <= MAX_REJECTED * cases {
        let seed = known.next().unwrap_or_else(|| random.word());
        let case = Case { seed, ..Case::default() };
        let context = Context(&name, seed);
        let verdict = examine(subject, &case, &required);
        drop(context);
        match verdict {
            Verdict::Passed => summary.cases += 1,
            Verdict::Rejected if only.is_some() => break,
            Verdict::Rejected => summary.rejected += 1,
            Verdict::Failed(failure) => {
                let reduced = reduce(subject, &required, case, failure);
                let prepared = prepare(subject, &reduced.case);
                let draws = describe(&prepared.drawn);
                corpus.add(seed, &format!("{}; {}", draws, reduced.failure.message));
                let program = program(&name, &prepared, &reduced.failure, (seed, settings.tolerance));
                let message = reduced.failure.message;
                let case = summary.cases + summary.rejected + 1;
                return Err(Box::new(Finding {
                    kernel: name,
                    seed,
                    message,
                    draws,
                    program,
                    case,
                    runs: reduced.runs,
                }));
            }
        }
    }
    Ok(summary)
}

/// Returns the draws of a case as text. Usual arrangements and contents are omitted.
fn describe(drawn: &[Drawn]) -> String {
    let is_plain = |drawn: &&Drawn| !drawn.name.contains('.') || drawn.value != 0;
    let texts = drawn.iter().filter(is_plain).map(|drawn| format!("{} = {}", drawn.name, drawn.shown));
    texts.collect_vec().join(", ")
}
