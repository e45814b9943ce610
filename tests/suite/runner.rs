//! Runs tests that the program makes itself, several at a time, and speaks as cargo's own test
//! programs do: the same arguments, as far as they apply here, the same lines and the same exit
//! status. Knows no test.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

/// Result of a test that did not fail.
pub enum Completion {
    /// It ran to its end.
    Completed,
    /// It was skipped because a requirement is missing.
    Skipped(String),
}

/// A test.
pub struct Trial {
    name: String,
    ignored: bool,
    body: Box<dyn FnOnce() -> Result<Completion> + Send>,
}

impl Trial {
    /// A test of this name.
    pub fn new(name: impl Into<String>, body: impl FnOnce() -> Result<Completion> + Send + 'static) -> Trial {
        Trial { name: name.into(), ignored: false, body: Box::new(body) }
    }

    /// The same test; `ignored`: it only runs on request.
    pub fn ignored(self, ignored: bool) -> Trial {
        Trial { ignored, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Options of the command line.
#[derive(Default)]
struct Arguments {
    filters: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    list: bool,
    pretty: bool,
    /// Ignored tests alone; or with the others.
    only_ignored: bool,
    with_ignored: bool,
    threads: Option<usize>,
}

impl Arguments {
    fn parse(words: impl Iterator<Item = String>) -> Result<Arguments> {
        let mut arguments = Arguments::default();
        let mut words = words;
        while let Some(word) = words.next() {
            let (name, mut value) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name.to_string(), Some(value.to_string())),
                _ => (word, None),
            };
            let mut value = || value.take().or_else(|| words.next()).with_context(|| format!("{name}: what?"));
            match name.as_str() {
                "--exact" => arguments.exact = true,
                "--list" => arguments.list = true,
                "--ignored" => arguments.only_ignored = true,
                "--include-ignored" => arguments.with_ignored = true,
                "--skip" => arguments.skipped.push(value()?),
                "--test-threads" => arguments.threads = Some(number(&name, &value()?)?),
                "--format" => arguments.pretty = value()? == "pretty",
                "--color" => drop(value()?),
                "--quiet" | "-q" => arguments.pretty = false,
                // Nothing is captured, and nothing measured.
                "--nocapture" | "--no-capture" | "--show-output" | "--test" => {}
                option if option.starts_with('-') => bail!("{option}: no option of this program"),
                _ => arguments.filters.push(name),
            }
        }
        Ok(arguments)
    }

    fn wants(&self, trial: &Trial) -> bool {
        let names = |text: &String| if self.exact { trial.name == *text } else { trial.name.contains(text.as_str()) };
        let named = self.filters.is_empty() || self.filters.iter().any(names);
        named && !self.skipped.iter().any(names) && (trial.ignored || !self.only_ignored)
    }

    fn runs(&self, trial: &Trial) -> bool {
        !trial.ignored || self.only_ignored || self.with_ignored
    }
}

fn number<T: FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| anyhow!("{name} {text}: no number"))
}

/// Results of all tests.
#[derive(Default)]
struct Count {
    passed: usize,
    ignored: usize,
    failed: Vec<(String, String)>,
    /// Time of each test.
    times: Vec<(Duration, String)>,
}

/// Number of the slowest tests that are printed.
const LONGEST: usize = 8;

impl Count {
    /// Counts a result and prints it.
    fn add(&mut self, arguments: &Arguments, name: String, result: Option<Result<Completion>>, time: Duration) {
        self.times.push((time, name.clone()));
        let (sign, word) = match &result {
            Some(Ok(Completion::Completed)) => (".", "ok".to_string()),
            Some(Ok(Completion::Skipped(reason))) => ("i", format!("ignored, {reason}")),
            Some(Err(_)) => ("F", "FAILED".to_string()),
            None => ("i", "ignored".to_string()),
        };
        if arguments.pretty {
            println!("test {name} ... {word}");
        } else {
            let before = self.passed + self.ignored + self.failed.len();
            print!("{}{sign}", if before > 0 && before.is_multiple_of(100) { "\n" } else { "" });
            // A terminal shows the signs as they come.
            let _ = std::io::Write::flush(&mut std::io::stdout());
        }
        match result {
            Some(Ok(Completion::Completed)) => self.passed += 1,
            Some(Err(error)) => self.failed.push((name, format!("{error:#}"))),
            Some(Ok(Completion::Skipped(_))) | None => self.ignored += 1,
        }
    }

    /// Prints the times by the first part of the names, and the slowest tests.
    fn print_times(&mut self) {
        if self.times.is_empty() {
            return;
        }
        let mut ways = BTreeMap::<&str, Duration>::new();
        for (time, name) in &self.times {
            *ways.entry(name.split("::").next().unwrap_or(name)).or_default() += *time;
        }
        let seconds = |time: &Duration| format!("{:.1} s", time.as_secs_f64());
        let ways: Vec<String> = ways.iter().map(|(way, time)| format!("{way} {}", seconds(time))).collect();
        println!("\n\ntimes: {}", ways.join(", "));
        self.times.sort_unstable_by(|a, b| b.cmp(a));
        let longest = self.times.iter().take(LONGEST).map(|(time, name)| format!("{name} {}", seconds(time)));
        println!("longest: {}", longest.collect::<Vec<_>>().join(", "));
    }

    fn print(&self, filtered_out: usize, start: Instant) {
        if !self.failed.is_empty() {
            println!("\n\nfailures:\n");
            self.failed.iter().for_each(|(name, message)| println!("---- {name} ----\n{message}\n"));
            println!("\nfailures:");
            self.failed.iter().for_each(|(name, _)| println!("    {name}"));
        }
        println!(
            "\n\ntest result: {}. {} passed; {} failed; {} ignored; 0 measured; {filtered_out} filtered out; finished in {:.2}s\n",
            if self.failed.is_empty() { "ok" } else { "FAILED" },
            self.passed,
            self.failed.len(),
            self.ignored,
            start.elapsed().as_secs_f64()
        );
    }
}

/// Runs a test; a panic is a failure.
fn run_one(body: Box<dyn FnOnce() -> Result<Completion> + Send>) -> Result<Completion> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(anyhow!("panicked: {}", text.unwrap_or_default()))
    })
}

/// Runs the tests that the command line selects.
pub fn run(trials: Vec<Trial>) -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::from(2);
        }
    };
    let (all, start) = (trials.len(), Instant::now());
    let wanted: Vec<Trial> = trials.into_iter().filter(|trial| arguments.wants(trial)).collect();
    if arguments.list {
        wanted.iter().for_each(|trial| println!("{}: test", trial.name));
        return ExitCode::SUCCESS;
    }
    let (count, filtered_out) = (wanted.len(), all - wanted.len());
    println!("\nrunning {count} test{}", if count == 1 { "" } else { "s" });
    let threads = arguments.threads.or_else(|| thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let (next, (sender, receiver)) = (Mutex::new(wanted.into_iter()), mpsc::channel());
    let mut results = Count::default();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            let (next, arguments, sender) = (&next, &arguments, sender.clone());
            scope.spawn(move || {
                let take = || next.lock().ok().and_then(|mut next| next.next());
                while let Some(trial) = take() {
                    let start = Instant::now();
                    let result = arguments.runs(&trial).then_some(trial.body).map(run_one);
                    if sender.send((trial.name, result, start.elapsed())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        receiver.iter().for_each(|(name, result, time)| results.add(&arguments, name, result, time));
    });
    results.print_times();
    results.print(filtered_out, start);
    if results.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(101) }
}
