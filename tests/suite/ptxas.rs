//! The foreign check of generated PTX: NVIDIA's assembler accepts it, without spills and warnings.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};

use anyhow::{Context, Result, bail, ensure};
use cutlet::Target;

use crate::sums;
use crate::temp_dir::TemporaryFolder;

/// The assembler: `CUTLET_PTXAS`, else the one that `scripts/tools` installs, else the one on
/// `PATH`.
pub fn find() -> Option<&'static Path> {
    static FOUND: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin/ptxas");
        let named = std::env::var_os("CUTLET_PTXAS").map(PathBuf::from);
        let candidates = named.into_iter().chain([installed, PathBuf::from("ptxas")]);
        candidates.into_iter().find(|path| {
            let probe = Command::new(path).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            probe.is_ok_and(|status| status.success())
        })
    });
    FOUND.as_deref()
}

/// Strictness of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Demand {
    /// Nothing is assembled: the code is noted (see [`sums`]).
    Noted,
    /// Accepted; matrix instructions may be serialised, since hints may leave them few registers.
    Assembled,
    /// Accepted without warnings.
    Accepted,
    /// And no register is spilled to memory.
    NoSpills,
}

/// Returns the number of texts for a target of which one is assembled; with
/// `CUTLET_SUITE_EACH_KERNEL`, all of them.
fn sampling_interval(target: &str, demand: Demand) -> u64 {
    match target {
        _ if std::env::var_os("CUTLET_SUITE_EACH_KERNEL").is_some() => 1,
        "sm_80" => 5,
        "sm_86" | "sm_89" if demand != Demand::NoSpills => 3,
        "sm_90a" if demand != Demand::NoSpills => 3,
        _ => 1,
    }
}

/// Returns true if a text is in the sample of those that are assembled.
fn is_sampled(ptx: &str, target: &str, demand: Demand) -> bool {
    let mut hasher = DefaultHasher::new();
    ptx.hash(&mut hasher);
    hasher.finish().is_multiple_of(sampling_interval(target, demand))
}

/// Assembles PTX for the target it names; equal texts are assembled once, and most texts are
/// sampled.
///
/// # Errors
/// The messages of the assembler, if it refused the text, warned, serialised matrix instructions or
/// spilled.
pub fn assemble(ptx: &str, target: &str, demand: Demand) -> Result<()> {
    if demand == Demand::Noted {
        sums::note(ptx);
        return Ok(());
    }
    if !is_sampled(ptx, target, demand) {
        return Ok(());
    }
    type Answers = HashMap<(String, String), std::result::Result<String, String>>;
    static ANSWERS: LazyLock<Mutex<Answers>> = LazyLock::new(Default::default);
    let key = (ptx.to_owned(), target.to_owned());
    let known = ANSWERS.lock().unwrap().get(&key).cloned();
    let answer = match known {
        Some(answer) => answer,
        None => {
            let answer = run(ptx, target)?;
            ANSWERS.lock().unwrap().insert(key, answer.clone());
            answer
        }
    };
    let log = match answer {
        Ok(log) => log,
        Err(log) => bail!("ptxas refused the code for {target}:\n{log}\n{}", numbered(ptx)),
    };
    ensure!(!log.contains("warning"), "ptxas warns about the code for {target}:\n{log}\n{}", numbered(ptx));
    let serialised = log.contains("C75");
    ensure!(
        demand == Demand::Assembled || !serialised,
        "matrix instructions are serialised for {target}:\n{log}\n{}",
        numbered(ptx)
    );
    let spills = log.lines().flat_map(spilled_bytes).any(|bytes| bytes > 0);
    ensure!(demand != Demand::NoSpills || !spills, "spills for {target}:\n{log}");
    Ok(())
}

/// Returns true if a kernel needs more shared memory for operands than this target has. Tiles of
/// tests are for the targets with the most shared memory.
pub fn is_too_small(target: Target, error: &cutlet::Error) -> bool {
    let cutlet::Error::Unsupported(problems) = error else { return false };
    let room = |p: &cutlet::Diagnostic| p.message.contains("bytes of shared memory are needed for operands");
    target.arch < 90 && problems.iter().all(room)
}

/// Returns the output of `nvdisasm` with these options for the machine code of PTX that is
/// assembled with this option. `None` if the folder of the assembler has no `nvdisasm`.
///
/// # Errors
/// The messages of one of the two.
pub fn disassembled(ptx: &str, target: &str, option: &str, how: &[&str]) -> Result<Option<String>> {
    let Some(nvdisasm) = find().map(|ptxas| ptxas.with_file_name("nvdisasm")).filter(|tool| tool.is_file()) else {
        return Ok(None);
    };
    let Some(folder) = machine_code(ptx, target, option)? else { return Ok(None) };
    said(&nvdisasm, &[how, &[path(&folder.path().join(CUBIN))?]].concat()).map(Some)
}

/// Name of the file of machine code in its folder.
const CUBIN: &str = "code.cubin";

/// A folder with the machine code that the assembler makes of PTX with this option.
///
/// # Errors
/// The messages of the assembler.
pub fn machine_code(ptx: &str, target: &str, option: &str) -> Result<Option<TemporaryFolder>> {
    let Some(ptxas) = find() else { return Ok(None) };
    let folder = TemporaryFolder::new()?;
    let source = folder.path().join("code.ptx");
    std::fs::write(&source, ptx)?;
    said(ptxas, &[&format!("-arch={target}"), option, "-o", path(&folder.path().join(CUBIN))?, path(&source)?])?;
    Ok(Some(folder))
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path of characters")
}

fn said(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    ensure!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// "N bytes stack frame, 0 bytes spill stores, 0 bytes spill loads".
fn spilled_bytes(line: &str) -> impl Iterator<Item = u32> {
    let parts = line.split(',').filter(|part| part.contains("spill"));
    parts.map(|part| part.trim().split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(u32::MAX))
}

fn run(ptx: &str, target: &str) -> Result<std::result::Result<String, String>> {
    let assembler = find().context("no ptxas: run scripts/tools, or set CUTLET_PTXAS")?;
    let mut child = Command::new(assembler)
        .args(["-v", "-o", "/dev/null", &format!("-arch={target}"), "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // A refusal may close the pipe early; the exit status tells.
    let _ = child.stdin.take().context("the pipe was asked for")?.write_all(ptx.as_bytes());
    let output = child.wait_with_output()?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    Ok(if output.status.success() { Ok(log) } else { Err(log) })
}

fn numbered(text: &str) -> String {
    text.lines().enumerate().map(|(index, line)| format!("{:5} {line}\n", index + 1)).collect()
}
