//! The gain of each optimization of the ptx back end (an ablation):
//! `cargo bench --bench kernels -- --disable-each [OPTION]... [ROW]...`.
//!
//! 1. For each row and optimization, PTX is generated with the optimization off. Forms with the PTX
//!    of the plain launch are skipped.
//! 2. All other forms are compiled on all cores.
//! 3. The forms of a row are measured alternately. The plain launch is one of them twice: the ratio
//!    of its two times is the noise.
//!
//! The ratio of a form is its time over that of the plain launch: 1.10 is a gain of 10 % by the
//! optimization.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use cutlet as ct;
use cutlet::backend::PlanOverride;
use cutlet::backend::ptx::{Optimization, OptimizationSet};
use cutlet::{Backend, Bench, Device, Hints, Target};

use super::compared::configuration::{Place, Row, Step};
use super::compared::{ALL, rows};

const HELP: &str = "
Measures the plain launches of the rows of benches/compare with each optimization of the ptx back end off.
Words are parts of names of rows; none: all rows. Without a GPU the optimizations that change the code of each row are printed.

  --only KEYS    optimizations with commas between (all)
  --millis T     milliseconds of launches of each form (100)
  --tsv FILE     writes a table of rows and optimizations with tabs between
  --changes      does not measure, although there is a GPU";

/// Minimum and maximum of timed launches of a form.
const RUNS: [usize; 2] = [10, 400];
/// Launches that estimate the time of a row.
const ESTIMATE_RUNS: usize = 3;
/// Ratio from which an optimization counts as a gain in the summary.
const GAIN: f64 = 1.02;

/// The options of the command line.
struct Options {
    patterns: Vec<String>,
    optimizations: Vec<Optimization>,
    millis: f64,
    tsv: Option<PathBuf>,
    changes_only: bool,
}

/// A row, its plain launch, and the forms of it that have other code.
struct Subject {
    name: &'static str,
    /// Number of the configuration.
    plain: usize,
    hints: Hints,
    changed: Vec<Optimization>,
    /// Forms that cannot be generated or compiled, with the reason.
    failed: Vec<(Optimization, String)>,
}

/// The result of a row.
struct Outcome {
    name: &'static str,
    micros: f64,
    noise: f64,
    ratios: Vec<(Optimization, f64)>,
    failed: Vec<(Optimization, String)>,
}

/// Launches a form.
type Launch<'a> = &'a dyn Fn(&mut ()) -> ct::Result<()>;

/// Runs the measurement with the options of the command line.
pub fn start(words: &[String]) -> Result<()> {
    let Some(options) = options(words)? else {
        println!("{HELP}");
        return Ok(());
    };
    let begin = Instant::now();
    let rows = ALL.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    let is_requested = |name: &str| {
        options.patterns.is_empty() || options.patterns.iter().any(|pattern| name.contains(pattern.as_str()))
    };
    let rows: Vec<(&'static str, &'static str)> = rows.filter(|(name, _)| is_requested(name)).collect();
    ensure!(!rows.is_empty(), "no row has such a name");
    let gpu = Device::gpu(0).ok().filter(|_| !options.changes_only);
    let device = gpu.unwrap_or_else(Device::cpu);
    let target = device.target().unwrap_or(Target::SM_90A);
    let mut kernels = ct::aot::Kernels::on(device);
    let mut subjects = Vec::new();
    for (name, plain) in rows {
        let row = rows::open(name, Place { device, sets: 1 })?;
        let subject = subject(&*row, (name, plain), target, &options)?;
        if gpu.is_none() {
            println!("{}", changes(&subject));
        } else {
            let forms = subject.changed.iter().map(|&optimization| without(subject.hints, optimization));
            kernels =
                forms.chain([subject.hints]).fold(kernels, |kernels, hints| named(&*row, &subject, hints, kernels));
        }
        subjects.push(subject);
    }
    let count: usize = subjects.iter().map(|subject| subject.changed.len()).sum();
    println!("{} rows, {count} forms with other code, after {:.0} s", subjects.len(), begin.elapsed().as_secs_f64());
    let Some(device) = gpu else { return Ok(()) };
    let total = kernels.len();
    // A form that fails is reported when its row is measured.
    let compiled = ct::compile_all(kernels, |_| ());
    println!(
        "{} of {total} kernels compiled, {} failed, after {:.0} s",
        compiled.compiled,
        compiled.failed.len(),
        begin.elapsed().as_secs_f64()
    );
    let mut outcomes = Vec::new();
    for subject in subjects {
        let outcome = measured(subject, device, options.millis)?;
        println!("{}", line_of(&outcome));
        outcomes.push(outcome);
    }
    println!("{}", summary(&outcomes, &options.optimizations));
    if let Some(path) = &options.tsv {
        std::fs::write(path, table(&outcomes, &options.optimizations)).context(path.display().to_string())?;
    }
    println!("measured on {} in {:.0} s", device.name(), begin.elapsed().as_secs_f64());
    Ok(())
}

/// Returns the options of a command line, or `None` for `--help`.
fn options(words: &[String]) -> Result<Option<Options>> {
    let optimizations = Optimization::ALL.to_vec();
    let mut options = Options { patterns: Vec::new(), optimizations, millis: 100.0, tsv: None, changes_only: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word}: a value is missing"));
        match word.as_str() {
            "--only" => {
                let others = OptimizationSet::all_but(value()?).map_err(anyhow::Error::msg)?;
                options.optimizations.retain(|&optimization| !others.contains(optimization));
            }
            "--millis" => options.millis = value()?.parse()?,
            "--tsv" => options.tsv = Some(PathBuf::from(value()?)),
            "--changes" => options.changes_only = true,
            "--help" => return Ok(None),
            option if option.starts_with('-') => bail!("there is no option {option}; there are{HELP}"),
            pattern => options.patterns.push(pattern.to_owned()),
        }
    }
    Ok(Some(options))
}

/// Returns hints that disable an optimization.
fn without(hints: Hints, optimization: Optimization) -> Hints {
    let optimizations = hints.plan.optimizations.without(optimization);
    hints.plan(PlanOverride { optimizations, ..hints.plan })
}

/// Finds the optimizations that change the code of a row's plain launch.
fn subject(row: &dyn Row, (name, plain): (&'static str, &str), target: Target, options: &Options) -> Result<Subject> {
    let is_plain =
        |label: &String| label == plain || label.strip_prefix(plain).is_some_and(|rest| rest.starts_with(','));
    let plain = row.labels().iter().position(is_plain).unwrap_or(0);
    let hints = row.hints(plain);
    let code = |hints: Hints| -> ct::Result<Vec<String>> {
        let mut out = Vec::new();
        row.call_with([plain, 0], Backend::Ptx, hints, Step::Ptx { target, out: &mut out })?;
        Ok(out)
    };
    let usual = code(hints).with_context(|| format!("row `{name}`"))?;
    let mut subject = Subject { name, plain, hints, changed: Vec::new(), failed: Vec::new() };
    for &optimization in &options.optimizations {
        match code(without(hints, optimization)) {
            Ok(other) if other == usual => {}
            Ok(_) => subject.changed.push(optimization),
            Err(error) => subject.failed.push((optimization, error.to_string())),
        }
    }
    Ok(subject)
}

/// Adds the kernels of a form to a list.
fn named(row: &dyn Row, subject: &Subject, hints: Hints, kernels: ct::aot::Kernels) -> ct::aot::Kernels {
    let device = Device::cpu();
    let mut held = Some(kernels);
    // An error here appears again when the row is measured.
    let _ = row.call_with([subject.plain, 0], Backend::Ptx, hints, Step::CompileSummary(&mut held));
    held.unwrap_or_else(|| ct::aot::Kernels::on(device))
}

/// Measures the forms of a row alternately.
fn measured(subject: Subject, device: Device, millis: f64) -> Result<Outcome> {
    let Subject { name, plain, hints, changed, mut failed } = subject;
    let row = rows::open(name, Place { device, sets: 1 })?;
    row.fill(0)?;
    let launch = |hints: Hints| row.call_with([plain, 0], Backend::Ptx, hints, Step::Launch);
    let mut forms: Vec<(Optimization, Hints)> = Vec::new();
    for optimization in changed {
        let hints = without(hints, optimization);
        match launch(hints).and_then(|()| device.synchronize()) {
            Ok(()) => forms.push((optimization, hints)),
            Err(error @ ct::Error::TimedOut { .. }) => bail!("{name} without {}: {error}", optimization.key()),
            Err(error) => failed.push((optimization, error.to_string())),
        }
    }
    let stream = device.default_stream();
    let estimate = Bench::new().warm_up(1).runs(ESTIMATE_RUNS).run(&stream, || launch(hints))?.median().as_secs_f64();
    let runs = (millis / 1e3 / estimate.max(1e-6)) as usize;
    let all: Vec<Hints> = [hints].into_iter().chain(forms.iter().map(|&(_, hints)| hints)).chain([hints]).collect();
    let launch = &launch;
    let ways: Vec<_> = all.iter().map(|&hints| move |(): &mut ()| launch(hints)).collect();
    let ways: Vec<Launch<'_>> = ways.iter().map(|way| way as Launch<'_>).collect();
    let bench = Bench::new().warm_up(1).runs(runs.clamp(RUNS[0], RUNS[1]));
    let compared = bench.compare(&stream, &mut (), &ways)?;
    let micros = compared.times()[0].median().as_secs_f64() * 1e6;
    let ratios =
        forms.iter().enumerate().map(|(at, &(optimization, _))| (optimization, compared.ratio(at + 1))).collect();
    Ok(Outcome { name, micros, noise: compared.ratio(ways.len() - 1), ratios, failed })
}

/// Returns the line of a row without measurements.
fn changes(subject: &Subject) -> String {
    let keys: Vec<&str> = subject.changed.iter().map(|optimization| optimization.key()).collect();
    let mut text = format!("{}: {}", subject.name, keys.join(" "));
    for (optimization, error) in &subject.failed {
        let _ = write!(text, "\n  without {}: {error}", optimization.key());
    }
    text
}

/// Returns the lines of a row: ratios in descending order.
fn line_of(outcome: &Outcome) -> String {
    let Outcome { name, micros, noise, ratios, failed } = outcome;
    let mut sorted = ratios.clone();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut text = format!("{name}: {micros:.1} us, noise {noise:.3}");
    for (optimization, ratio) in sorted {
        let _ = write!(text, "\n  {ratio:.3} {}", optimization.key());
    }
    for (optimization, error) in failed {
        let _ = write!(text, "\n  fails {}: {}", optimization.key(), error.lines().next().unwrap_or_default());
    }
    text
}

/// Returns the summary: for each optimization its best and its worst ratio over all rows.
fn summary(outcomes: &[Outcome], optimizations: &[Optimization]) -> String {
    let mut text = format!(
        "\n{:24} {:>4} {:>5} {:>6} {:>6}  row of the best; row of the worst\n",
        "optimization", "rows", "gains", "best", "worst"
    );
    let mut lines: BTreeMap<(i64, &str), String> = BTreeMap::new();
    let mut unused = Vec::new();
    for &optimization in optimizations {
        let of_rows = outcomes.iter().flat_map(|outcome| {
            outcome.ratios.iter().filter(|(other, _)| *other == optimization).map(|&(_, ratio)| (outcome.name, ratio))
        });
        let of_rows: Vec<(&str, f64)> = of_rows.collect();
        let best = of_rows.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let worst = of_rows.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let (Some((best_row, best)), Some((worst_row, worst))) = (best, worst) else {
            unused.push(optimization.key());
            continue;
        };
        let gains = of_rows.iter().filter(|(_, ratio)| *ratio >= GAIN).count();
        let (key, rows) = (optimization.key(), of_rows.len());
        let line = format!("{key:24} {rows:4} {gains:5} {best:6.3} {worst:6.3}  {best_row}; {worst_row}\n");
        lines.insert((-(best * 1e6) as i64, key), line);
    }
    text.extend(lines.into_values());
    if !unused.is_empty() {
        let _ = writeln!(text, "without effect on the code of these rows: {}", unused.join(", "));
    }
    text
}

/// Returns the ratios as a table with tabs between: a line for each row, a column for each
/// optimization.
fn table(outcomes: &[Outcome], optimizations: &[Optimization]) -> String {
    let keys: Vec<&str> = optimizations.iter().map(|optimization| optimization.key()).collect();
    let mut text = format!("row\tus\tnoise\t{}\n", keys.join("\t"));
    for Outcome { name, micros, noise, ratios, failed } in outcomes {
        let _ = write!(text, "{name}\t{micros:.2}\t{noise:.4}");
        for optimization in optimizations {
            let ratio = ratios.iter().find(|(other, _)| other == optimization);
            let fails = failed.iter().any(|(other, _)| other == optimization);
            let _ = match ratio {
                Some((_, ratio)) => write!(text, "\t{ratio:.4}"),
                None => write!(text, "\t{}", if fails { "fails" } else { "" }),
            };
        }
        text.push('\n');
    }
    text
}
