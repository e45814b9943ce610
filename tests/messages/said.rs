//! Cases, and the comparison of their messages with the stored text.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::rustc;

/// One mistake.
pub struct Case {
    pub title: &'static str,
    /// By the rules at the head of this program.
    pub score: u32,
    pub answer: Answer,
}

/// Source of the message of a case.
pub enum Answer {
    /// The text that this function returns.
    Said(fn() -> String),
    /// The diagnostics of rustc for the part of this file of `fail/` with the case's title as
    /// heading.
    Rustc(&'static str),
}

pub struct Group {
    pub name: &'static str,
    pub about: &'static str,
    pub cases: &'static [Case],
}

/// No answer takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// The folder of this program's sources.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages")
}

/// Compares the messages of a group with `said/NAME.txt`.
pub fn compare(group: &Group) {
    let said = |case: &Case| {
        let said = match case.answer {
            Answer::Said(answer) => within_limit(case.title, answer),
            Answer::Rustc(file) => rustc::said(file, case.title),
        };
        (format!("{} ({})", case.title, case.score), with_source(&said))
    };
    compare_texts(group.name, group.cases.iter().map(said).collect());
}

/// Compares texts, each with its head, with `said/NAME.txt`; or keeps them there, if the
/// environment says so.
pub fn compare_texts(name: &str, texts: Vec<(String, String)>) {
    let path = folder().join("said").join(name).with_extension("txt");
    let part = |(head, text): (String, String)| format!("## {head}\n{}\n", text.trim_end());
    let now: Vec<String> = texts.into_iter().map(part).collect();
    if std::env::var_os("CUTLET_BLESS").is_some() {
        std::fs::write(&path, now.join("\n")).expect("the file of these texts");
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    for (kept, now) in kept.split("\n## ").zip(&now) {
        let (kept, now) = (kept.trim_start_matches("## ").trim_end(), now.trim_start_matches("## ").trim_end());
        assert!(kept == now, "kept in {}:\n{kept}\n\nsaid now:\n{now}\n", path.display());
    }
    assert_eq!(kept, now.join("\n"), "{}", path.display());
}

/// Returns the message, unless the time limit is exceeded.
fn within_limit(title: &str, answer: fn() -> String) -> String {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || send.send(answer()));
    match receive.recv_timeout(LIMIT) {
        Ok(text) => text,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("no answer in {} s: {title}", LIMIT.as_secs()),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("a thread that ends has sent its answer"),
        },
    }
}

/// Replaces each `tests/messages/FILE.rs:LINE:COLUMN` by `<source text from there>`, which survives
/// edits.
fn with_source(text: &str) -> String {
    let mut parts = text.split("tests/messages/");
    let mut result = parts.next().unwrap_or_default().to_string();
    for part in parts {
        result += &named_place(part).unwrap_or_else(|| format!("tests/messages/{part}"));
    }
    result
}

fn named_place(text: &str) -> Option<String> {
    let mut fields = text.splitn(3, ':');
    let source = std::fs::read_to_string(folder().join(fields.next()?)).ok()?;
    let line: usize = fields.next()?.parse().ok()?;
    let rest = fields.next()?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let column: usize = rest[..digits].parse().ok()?;
    let code = source.lines().nth(line - 1)?.get(column - 1..)?;
    Some(format!("<{}>{}", code.trim_end_matches(';'), &rest[digits..]))
}
