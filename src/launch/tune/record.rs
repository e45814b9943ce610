//! Results of searches as text, which can be committed with the source. The text is sorted. Errors
//! of its parser have line numbers. A result is valid only if all parts of its key are equal.

use crate::util::collect::CollectVec as _;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use super::key::TuneKey;
use crate::error::{Diagnostic, Error, Location, Result};
use crate::launch::file;

/// First line of a file; the digit is the version of the format.
const FIRST_LINE: &str = "# tuning records of cutlet, format 1";

/// Measurement of one configuration, or the reason of its absence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trial {
    /// Execution times in ascending order, at least one.
    Times(Vec<Duration>),
    /// Error of the configuration.
    Failed(String),
    /// Reason of the rejection before an execution.
    LeftOut(String),
}

/// Result of one search.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Key of the result.
    pub key: TuneKey,
    /// The selected configuration as `Debug` text. Empty if the search was aborted; the record then
    /// has only the configurations that caused this.
    pub winner: String,
    /// All configurations as `Debug` text: the fastest first, then those without times.
    pub trials: Vec<(String, Trial)>,
}

impl Record {
    /// Returns the measurement of a configuration.
    ///
    /// ```
    /// # let text = "# tuning records of cutlet, format 1\n\n[record]\nname \"n\"\ndevice \"d\"\nbackend \"cpu\"\ntarget \"\"\n\
    /// # driver \"\"\nversion \"1\"\nkernel \"\"\nspace \"\"\nwinner \"64\"\ntrial \"64\" 10 20\nfailed \"7\" \"odd\"\n";
    /// let records = cutlet::tune::Records::parse("scale.tune", text)?;
    /// assert!(matches!(records.all()[0].trial("64"), Some(cutlet::tune::Trial::Times(times)) if times.len() == 2));
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[must_use]
    pub fn trial(&self, configuration: &str) -> Option<&Trial> {
        self.trials.iter().find(|(text, _)| text == configuration).map(|(_, trial)| trial)
    }
}

/// Results of searches for several devices and names, sorted. Their text can be committed: a
/// repeated search changes the lines of one record only.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("cutlet-scale-{}.tune", std::process::id()));
/// # fn work(tile: usize) -> cutlet::Result<()> { Ok(std::thread::sleep(std::time::Duration::from_micros(tile as u64))) }
/// let tuner = cutlet::Tuner::new().name("scale").record(&path).bench(cutlet::Bench::new().runs(3));
/// tuner.run(cutlet::Device::cpu(), &mut (), [64usize, 1024], |(), &tile| work(tile))?;
///
/// let records = cutlet::tune::Records::read(&path)?;
/// assert_eq!(records.all()[0].winner, "64");
/// assert_eq!(cutlet::tune::Records::parse("scale.tune", &records.to_string())?, records);
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), cutlet::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    all: Vec<Record>,
}

impl Records {
    /// Reads a file. A missing file has no records.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// assert!(ct::tune::Records::read("/nowhere/scale.tune")?.all().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Argument`] with the erroneous line.
    pub fn read(path: impl AsRef<Path>) -> Result<Records> {
        let path = path.as_ref();
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Records::parse(&name, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Records::default()),
            Err(source) => Err(Error::Io { path: name, source }),
        }
    }

    /// Parses the text of a file (`include_str!`). Errors contain the name `file`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let error = ct::tune::Records::parse("scale.tune", "winner 7").unwrap_err().to_string();
    /// assert!(error.starts_with("scale.tune:1:1: the first line is not"), "{error}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] with the erroneous line.
    pub fn parse(file: &str, text: &str) -> Result<Records> {
        let wrong = |(line, problem): (usize, String)| {
            let location = Location { file: file.to_owned().into(), line: line as u32, column: 1 };
            Error::Argument(Diagnostic::new(problem, Some(location)))
        };
        parse(text).map_err(wrong)
    }

    /// Writes the file by atomic replacement: a reader never gets a part of it. A symbolic link is
    /// followed, and an existing file keeps its mode.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let path = std::env::temp_dir().join(format!("cutlet-write-{}.tune", std::process::id()));
    /// ct::tune::Records::default().write(&path)?;
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        file::replace(path.as_ref(), self.to_string().as_bytes())
    }

    /// Returns all records, sorted by key.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// assert!(ct::tune::Records::default().all().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn all(&self) -> &[Record] {
        &self.all
    }

    /// Inserts a record. It replaces the one with the same name, device and back end.
    pub(super) fn put(&mut self, record: Record) {
        let same = |other: &Record| same_place(&other.key, &record.key);
        self.all.retain(|other| !same(other));
        let at = self.all.partition_point(|other| other.key < record.key);
        self.all.insert(at, record);
    }

    /// Returns the record that is valid for a key.
    ///
    /// ```
    /// let key = cutlet::tune::TuneKey::of(cutlet::Device::cpu(), "scale", "", &[64])?;
    /// let why = cutlet::tune::Records::default().find(&key).unwrap_err();
    /// assert_eq!(why, "there is no record of `scale` for cpu (cpu)");
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// The reason, if no record is valid: the differences from the record of that name, device and
    /// back end.
    pub fn find(&self, key: &TuneKey) -> std::result::Result<&Record, String> {
        let Some(record) = self.all.iter().find(|record| same_place(&record.key, key)) else {
            return Err(format!("there is no record of `{}` for {} ({})", key.name, key.device, key.backend));
        };
        let parts = record.key.parts().into_iter().zip(key.parts());
        let other: Vec<String> = parts
            .filter(|((_, recorded), (_, now))| recorded != now)
            .map(|((part, recorded), (_, now))| format!("{part} was `{recorded}` and is `{now}`"))
            .collect_vec();
        if other.is_empty() {
            let unfinished = || format!("the search of `{}` for {} had to end without a winner", key.name, key.device);
            return if record.winner.is_empty() { Err(unfinished()) } else { Ok(record) };
        }
        Err(format!("the record of `{}` for {} is out of date: {}", key.name, key.device, other.join(", ")))
    }
}

impl Records {
    /// Changes a file. Records that other threads and processes add at the same time are kept.
    ///
    /// # Errors
    /// As [`Records::read`].
    pub(super) fn update(path: &Path, mut change: impl FnMut(&mut Records)) -> Result<()> {
        let name = path.display().to_string();
        file::update(path, |text| {
            let mut records = text.map_or(Ok(Records::default()), |text| Records::parse(&name, text))?;
            change(&mut records);
            Ok(records.to_string())
        })
    }

    /// Returns the configurations that aborted searches with this key, and the reasons.
    pub(super) fn stuck(&self, key: &TuneKey) -> Vec<(String, String)> {
        let records = self.all.iter().filter(|record| record.key == *key && record.winner.is_empty());
        let failed = |(text, trial): &(String, Trial)| match trial {
            Trial::Failed(why) => Some((text.clone(), why.clone())),
            _ => None,
        };
        records.flat_map(|record| record.trials.iter().filter_map(failed)).collect_vec()
    }
}

/// Returns true if the record of one key replaces that of the other one.
fn same_place(a: &TuneKey, b: &TuneKey) -> bool {
    (&a.name, &a.device, &a.backend) == (&b.name, &b.device, &b.backend)
}

impl fmt::Display for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST_LINE}")?;
        for record in &self.all {
            writeln!(f, "\n[record]")?;
            for (part, value) in record.key.parts() {
                writeln!(f, "{part} {}", quoted(value))?;
            }
            writeln!(f, "winner {}", quoted(&record.winner))?;
            for (configuration, trial) in &record.trials {
                let configuration = quoted(configuration);
                match trial {
                    Trial::Times(times) => {
                        write!(f, "trial {configuration}")?;
                        times.iter().try_for_each(|time| write!(f, " {}", time.as_nanos()))?;
                        writeln!(f)?;
                    }
                    Trial::Failed(why) => writeln!(f, "failed {configuration} {}", quoted(why))?,
                    Trial::LeftOut(why) => writeln!(f, "left-out {configuration} {}", quoted(why))?,
                }
            }
        }
        Ok(())
    }
}

/// Returns a text as a quoted string on one line.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => write!(out, "\\u{{{:x}}}", u32::from(c)).expect("writing to a string"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Parses a quoted string; returns it and the rest of the text.
fn unquoted(text: &str) -> std::result::Result<(String, &str), String> {
    let mut rest = text.trim_start().strip_prefix('"').ok_or("a text in quotation marks is missing")?;
    let mut out = String::new();
    loop {
        let end = rest.find(['"', '\\']).ok_or("a quotation mark is missing at the end of a text")?;
        out.push_str(&rest[..end]);
        let mark = rest.as_bytes()[end];
        rest = &rest[end + 1..];
        if mark == b'"' {
            return Ok((out, rest));
        }
        let escape = rest.chars().next().ok_or("nothing follows a backslash")?;
        rest = &rest[escape.len_utf8()..];
        match escape {
            'n' => out.push('\n'),
            '"' | '\\' => out.push(escape),
            'u' => {
                let (digits, after) = rest
                    .strip_prefix('{')
                    .and_then(|rest| rest.split_once('}'))
                    .ok_or("a character \\u{…} is wrong")?;
                let number = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
                out.push(number.ok_or("a character \\u{…} is wrong")?);
                rest = after;
            }
            other => return Err(format!("there is no `\\{other}` in a text")),
        }
    }
}

/// Parses records. An error has its line number.
fn parse(text: &str) -> std::result::Result<Records, (usize, String)> {
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    if lines.next().map(|(_, line)| line) != Some(FIRST_LINE) {
        return Err((1, format!("the first line is not `{FIRST_LINE}`")));
    }
    let mut records = Records::default();
    let mut open: Option<(usize, Draft)> = None;
    for (at, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        if line == "[record]" {
            close(&mut records, open.replace((at, Draft::default())))?;
        } else if let Some((_, draft)) = &mut open {
            draft.line(line).map_err(|problem| (at, problem))?;
        } else {
            return Err((at, "this line belongs to no [record]".into()));
        }
    }
    close(&mut records, open)?;
    Ok(records)
}

/// Incomplete record of the parser.
#[derive(Default)]
struct Draft {
    key: TuneKey,
    parts: Vec<String>,
    winner: Option<String>,
    trials: Vec<(String, Trial)>,
}

impl Draft {
    fn line(&mut self, line: &str) -> std::result::Result<(), String> {
        let (word, rest) = line.split_once(' ').ok_or_else(|| format!("`{line}` has no value"))?;
        let (text, rest) = unquoted(rest)?;
        let trial = match word {
            "trial" => Trial::Times(times(rest)?),
            "failed" => Trial::Failed(last(rest)?),
            "left-out" => Trial::LeftOut(last(rest)?),
            _ if !rest.trim().is_empty() => return Err(format!("`{}` follows what `{word}` has", rest.trim())),
            "winner" => {
                self.winner = Some(text);
                return Ok(());
            }
            part => {
                *self.key.part_mut(part).ok_or_else(|| format!("a record has no `{part}`"))? = text;
                self.parts.push(part.to_owned());
                return Ok(());
            }
        };
        self.trials.push((text, trial));
        Ok(())
    }
}

fn last(rest: &str) -> std::result::Result<String, String> {
    let (text, rest) = unquoted(rest)?;
    if rest.trim().is_empty() { Ok(text) } else { Err(format!("`{}` follows the reason", rest.trim())) }
}

fn times(rest: &str) -> std::result::Result<Vec<Duration>, String> {
    let time = |word: &str| word.parse().map(Duration::from_nanos).map_err(|_| format!("`{word}` is no time in ns"));
    let mut all = rest.split_whitespace().map(time).collect::<std::result::Result<Vec<_>, _>>()?;
    all.sort_unstable();
    if all.is_empty() { Err("a trial has at least one time".into()) } else { Ok(all) }
}

/// Inserts a finished record.
fn close(records: &mut Records, open: Option<(usize, Draft)>) -> std::result::Result<(), (usize, String)> {
    let Some((at, Draft { key, parts, winner, trials })) = open else { return Ok(()) };
    if let Some((missing, _)) = key.parts().iter().find(|(part, _)| !parts.iter().any(|given| given == part)) {
        return Err((at, format!("this record has no `{missing}`")));
    }
    let winner = winner.ok_or((at, "this record has no `winner`".to_owned()))?;
    let measured = |(text, trial): &(String, Trial)| *text == winner && matches!(trial, Trial::Times(_));
    let ended = winner.is_empty() && trials.iter().all(|(_, trial)| matches!(trial, Trial::Failed(_)));
    if !ended && !trials.iter().any(measured) {
        return Err((at, format!("the winner `{winner}` of this record has no times")));
    }
    records.put(Record { key, winner, trials });
    Ok(())
}
