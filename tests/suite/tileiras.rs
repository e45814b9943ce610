//! The foreign check of Tile IR bytecode: NVIDIA's disassembler prints what our printer prints, and
//! NVIDIA's assembler accepts it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

use anyhow::{Context, Result, ensure};
use cutlet::Target;
use cutlet::backend::tileir::{Assembler, read};

/// What kernels are assembled for, the most thorough one first.
pub const TARGETS: [&str; 4] = ["sm_90", "sm_80", "sm_100", "sm_120"];

struct Tools {
    assembler: Assembler,
    disassembler: PathBuf,
}

/// The tools: those that `CUTLET_TILEIRAS` and `CUTLET_TILEIRDISASM` name, else those that
/// `scripts/tools` installs, else the assembler that the library finds and the disassembler beside it.
fn tools() -> Option<&'static Tools> {
    static FOUND: LazyLock<Option<Tools>> = LazyLock::new(|| {
        let installed = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin").join(name);
        let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
        let assembler = match named("CUTLET_TILEIRAS") {
            None if installed("tileiras").exists() => Assembler::at(installed("tileiras")),
            _ => Assembler::find().ok()?,
        };
        let beside = assembler.path().with_file_name("tileirdisasm");
        let candidates = named("CUTLET_TILEIRDISASM").into_iter().chain([installed("tileirdisasm"), beside]);
        let disassembler = candidates.into_iter().find(|path| path.exists())?;
        Some(Tools { assembler, disassembler })
    });
    FOUND.as_ref()
}

/// Are the tools there?
pub fn found() -> bool {
    tools().is_some()
}

/// Are cubins to be kept for a machine that has a GPU and no assembler? Then they go through the disk cache.
pub fn keeps_cubins() -> bool {
    std::env::var_os("CUTLET_SUITE_KEEP_CUBINS").is_some()
}

/// Disassembles and assembles bytecode; equal files are looked at once.
///
/// # Errors
/// Where the texts differ, or what the assembler said.
pub fn check(bytecode: &[u8], target: Target, assemble: &dyn Fn(&Assembler) -> Result<Vec<u8>>) -> Result<()> {
    type Answers = HashMap<(Vec<u8>, Target), std::result::Result<(), String>>;
    static ANSWERS: LazyLock<Mutex<Answers>> = LazyLock::new(Default::default);
    let key = (bytecode.to_vec(), target);
    if let Some(answer) = ANSWERS.lock().unwrap().get(&key) {
        return answer.clone().map_err(anyhow::Error::msg);
    }
    let answer = look_at(bytecode, assemble).map_err(|error| format!("{error:#}"));
    ANSWERS.lock().unwrap().insert(key, answer.clone());
    answer.map_err(anyhow::Error::msg)
}

fn look_at(bytecode: &[u8], assemble: &dyn Fn(&Assembler) -> Result<Vec<u8>>) -> Result<()> {
    let tools = tools().context("no tileiras: run scripts/tools, or set CUTLET_TILEIRAS")?;
    let ours = read(bytecode)?.to_string();
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), bytecode)?;
    let output = Command::new(&tools.disassembler).arg(file.path()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tileirdisasm refused the bytecode:\n{said}\n{ours}");
    let theirs = String::from_utf8_lossy(&output.stdout);
    let differing = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
    ensure!(ours == theirs, "the reference disassembler prints another text: {differing:#?}");
    let cubin = assemble(&tools.assembler).with_context(|| ours.clone())?;
    ensure!(cubin.starts_with(b"\x7fELF"), "no ELF file");
    Ok(())
}
