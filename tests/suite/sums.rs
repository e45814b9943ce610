//! Sums of generated PTX, for changes of the code generator that must not change the generated
//! code.
//!
//! `CUTLET_PTX_SUMS=file` turns every test into one for each target of [`crate::harness`], named
//! `sums_sm_90a::…`, that compiles its kernels and runs nothing. The file is made where there is
//! none, with a line for each test: the sum of all PTX that it compiled (a sample of its cases,
//! with `CUTLET_TESTS=all` every one). Where there is one, a test whose sum differs fails. So: make
//! the file before a change (random kernels are chosen as ever), and run again after it.
//! `CUTLET_PTX_SUMS=folder/`, of a folder that is there, leaves the PTX itself in it, a file a
//! kernel, for `diff -r`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use anyhow::{Context, Result, ensure};

/// Sums of the compiled code of tests, by name.
struct Ledger {
    path: PathBuf,
    /// From earlier; `None`: made now.
    known: Option<BTreeMap<String, String>>,
    made: Mutex<BTreeMap<String, String>>,
}

static LEDGER: LazyLock<Option<Ledger>> = LazyLock::new(|| {
    let path = PathBuf::from(std::env::var_os("CUTLET_PTX_SUMS").filter(|path| !path.is_empty())?);
    let line = |line: &str| line.split_once(' ').map(|(sum, name)| (name.to_string(), sum.to_string()));
    let known = std::fs::read_to_string(&path).ok().map(|text| text.lines().filter_map(line).collect());
    Some(Ledger { path, known, made: Mutex::default() })
});

/// Returns true if sums are requested.
pub fn wanted() -> bool {
    LEDGER.is_some()
}

thread_local! {
    /// The texts of the test that runs.
    static TEXTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes PTX of the test that runs.
pub fn note(text: &str) {
    TEXTS.with_borrow_mut(|texts| texts.push(text.to_string()));
}

/// FNV-1a over all texts, with their ends.
fn sum(texts: &[String]) -> String {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    let fold = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", bytes.fold(0xcbf2_9ce4_8422_2325, fold))
}

/// Runs a test, and keeps or compares the sum of its PTX. Refusals are a part of it.
///
/// # Errors
/// When the sum is not the one of the file.
pub fn checked(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let Some(ledger) = &*LEDGER else { return run() };
    TEXTS.take();
    let outcome = run();
    let mut texts = TEXTS.take();
    texts.extend(outcome.err().map(|error| format!("{error:#}")));
    if ledger.path.is_dir() {
        return keep(&ledger.path, name, &texts);
    }
    let sum = sum(&texts);
    match &ledger.known {
        None => drop(ledger.made.lock().unwrap().insert(name.to_string(), sum)),
        Some(known) => {
            let before = known.get(name).with_context(|| format!("{} has no sum of it", ledger.path.display()))?;
            ensure!(*before == sum, "the PTX of {} kernels has changed: its sum was {before}, is {sum}", texts.len());
        }
    }
    Ok(())
}

fn keep(folder: &Path, name: &str, texts: &[String]) -> Result<()> {
    for (index, text) in texts.iter().enumerate() {
        let plain = |c: char| if c.is_alphanumeric() { c } else { '_' };
        let file = name.chars().map(plain).collect::<String>();
        std::fs::write(folder.join(format!("{file}.{index}.ptx")), text)?;
    }
    Ok(())
}

/// Writes the file, if it was made.
///
/// # Errors
/// When it cannot be written.
pub fn finish() -> Result<()> {
    let Some(ledger) = LEDGER.as_ref().filter(|ledger| ledger.known.is_none() && !ledger.path.is_dir()) else {
        return Ok(());
    };
    let made = ledger.made.lock().unwrap();
    let text: String = made.iter().map(|(name, sum)| format!("{sum} {name}\n")).collect();
    std::fs::write(&ledger.path, text).with_context(|| ledger.path.display().to_string())?;
    println!("{}: {} sums", ledger.path.display(), made.len());
    Ok(())
}
