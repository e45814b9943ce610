//! Speed of the plain launches of the examples relative to the best result of tuning: `cargo bench
//! --bench kernels -- --tune [OPTION]... [ROW]...`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cutlet as ct;
use cutlet::tune::{Records, Trial};
use cutlet::{Backend, Device};

use super::compared::configuration::Place;
use super::compared::tuning::{Choice, Tuning};
use super::compared::{ALL, rows};

const HELP: &str = "
Tries all configurations of the rows of benches/compare, and says what fraction of the best the plain launch reaches.
Words are parts of names of rows, or names with other sizes, such as \"softmax f32 100 1000\"; none: all rows, on a GPU.

  --backend B    cpu, ptx or tileir
  --runs N       runs of each configuration (10)
  --limit S      seconds that a configuration may take at a time (20)
  --record FILE  where answers are kept: what is in it is not measured again
  --afresh       but is with this";

/// Result of a row.
struct Outcome {
    name: String,
    /// Time of the best over that of the plain launch.
    fraction: f64,
}

/// Runs the rows and options of a command line.
pub fn start(words: &[String]) -> Result<()> {
    let mut how =
        Tuning { backend: Backend::Cpu, runs: 10, limit: Duration::from_secs(20), record: None, afresh: false };
    let (mut backend, mut patterns) = (None, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word}: a value is missing"));
        match word.as_str() {
            "--backend" => backend = Some(value()?.parse().map_err(anyhow::Error::msg)?),
            "--runs" => how.runs = value()?.parse()?,
            "--limit" => how.limit = Duration::try_from_secs_f64(value()?.parse()?)?,
            "--record" => how.record = Some(PathBuf::from(value()?)),
            "--afresh" => how.afresh = true,
            "--help" => {
                println!("{HELP}");
                return Ok(());
            }
            option if option.starts_with('-') => bail!("there is no option {option}; there are{HELP}"),
            pattern => patterns.push(pattern),
        }
    }
    let device = Device::first()?;
    how.backend = backend.unwrap_or(device.backend());
    let device = if how.backend == Backend::Cpu { Device::cpu() } else { device };
    let chosen = select(&patterns);
    let own = chosen.iter().all(|(name, _)| patterns.contains(name));
    ensure!(
        device != Device::cpu() || own,
        "these rows are for GPUs: name one with sizes of its own for the cpu back end"
    );
    report(&chosen, device, &how)
}

/// Names of rows, and their plain launches.
fn select<'a>(patterns: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let all: Vec<(&str, &str)> = ALL
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once(": "))
        .collect();
    let mut chosen: Vec<(&str, &str)> = all
        .iter()
        .copied()
        .filter(|(name, _)| patterns.is_empty() || patterns.iter().any(|pattern| name.contains(pattern)))
        .collect();
    for pattern in patterns.iter().filter(|pattern| !all.iter().any(|(name, _)| name.contains(*pattern))) {
        // Other sizes: the plain launch of the same kernel and type, if there is one.
        let words = pattern.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let like = all.iter().find(|(name, _)| name.starts_with(&words));
        chosen.push((pattern, like.map_or("", |(_, plain)| plain)));
    }
    chosen
}

fn report(chosen: &[(&str, &str)], device: Device, how: &Tuning) -> Result<()> {
    let start = Instant::now();
    let (mut outcomes, mut failed) = (Vec::new(), 0);
    for (name, plain) in chosen {
        match row(name, plain, device, how) {
            Ok(fraction) => outcomes.push(Outcome { name: (*name).to_owned(), fraction }),
            Err(error) => {
                failed += 1;
                println!("{name}: {error:#}");
                if let Some(ct::Error::TimedOut { .. }) = error.downcast_ref() {
                    bail!("the device does not answer any more; what was measured before is in the record");
                }
            }
        }
    }
    if let Some(least) = outcomes.iter().min_by(|a, b| a.fraction.total_cmp(&b.fraction)) {
        let mean = (outcomes.iter().map(|o| o.fraction.ln()).sum::<f64>() / outcomes.len() as f64).exp();
        println!(
            "{} rows on {} in {:.0} s: plain launches reach {:.1} % of the best on average, {:.1} % at least ({})",
            outcomes.len(),
            device.name(),
            start.elapsed().as_secs_f64(),
            mean * 100.0,
            least.fraction * 100.0,
            least.name
        );
    }
    ensure!(failed == 0, "{failed} rows could not be tuned");
    Ok(())
}

/// Tunes a row and prints its line.
fn row(name: &str, plain: &str, device: Device, how: &Tuning) -> Result<f64> {
    let row = rows::open(name, Place { device, sets: 1 })?;
    let (default, tuned) = row.tune(name, plain, how)?;
    let best = tuned.best();
    let of = (name, device);
    let (plain, fastest) = (time(&default, &tuned, of, how)?, time(best, &tuned, of, how)?);
    let count = tuned.successes().len() + tuned.failures().len() + tuned.left_out().len();
    let Some(plain) = plain else { bail!("the plain launch, `{}`, fails", default.label) };
    let fastest = fastest.context("the best has no times")?;
    let fraction = fastest.as_secs_f64() / plain.as_secs_f64();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let of = if tuned.is_cached() { "as recorded".to_owned() } else { format!("of {count}") };
    println!(
        "{name}: plain {:.1} us ({}), best {of} {:.1} us ({}), {:.1} %",
        micros(plain),
        default.label,
        micros(fastest),
        best.label,
        fraction * 100.0
    );
    for (choice, error) in tuned.failures() {
        println!("  {}: {error}", choice.label);
    }
    Ok(fraction)
}

/// The median of a configuration: measured now, or as the record has it.
fn time(
    choice: &Choice,
    tuned: &ct::tune::TuningResult<Choice>,
    (name, device): (&str, Device),
    how: &Tuning,
) -> Result<Option<Duration>> {
    if let Some((_, times)) = tuned.successes().iter().find(|(c, _)| c == choice) {
        return Ok(Some(times.median()));
    }
    let (Some(path), true) = (&how.record, tuned.is_cached()) else { return Ok(None) };
    let records = Records::read(path)?;
    let backend = how.backend.to_string();
    let of_this = |record: &&ct::tune::Record| {
        let key = &record.key;
        (&*key.name, &*key.device, &key.backend) == (name, device.name(), &backend)
            && record.winner == tuned.best().label
    };
    let trial = records.all().iter().find(of_this).and_then(|record| record.trial(&choice.label).cloned());
    Ok(match trial {
        Some(Trial::Times(times)) => Some(times[times.len() / 2]),
        _ => None,
    })
}
