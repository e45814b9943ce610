//! Notes of ptxas on the PTX of a kernel.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cutlet::Target;
use cutlet::inspect::Spills;

/// Returns the ptxas of `CUTLET_PTXAS`, of `scripts/tools`, or of the search path.
fn ptxas() -> PathBuf {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let of_tools = || folders.map(|folder| folder.join(".tools/bin/ptxas")).find(|path| path.exists());
    std::env::var_os("CUTLET_PTXAS").map(PathBuf::from).or_else(of_tools).unwrap_or_else(|| "ptxas".into())
}

/// Assembles PTX, and returns the registers of a thread, the spilled bytes and each loss of
/// performance that ptxas names. The cost model knows neither of the last two. PTX with lines
/// (`CUTLET_LINES=1`) also has the lines of spilled values.
pub fn notes(ptx: &[u8], target: Target) -> Result<String> {
    let file = std::env::temp_dir().join(format!("assembled-{}.ptx", std::process::id()));
    std::fs::write(&file, ptx)?;
    let cubin = file.with_extension("cubin");
    let text = String::from_utf8_lossy(ptx);
    let has_lines = text.contains("    .loc ");
    let mut command = Command::new(ptxas());
    command.args(has_lines.then_some("-lineinfo"));
    command.arg(format!("-arch={target}")).args(["-v", "-o"]).args([&cubin, &file]);
    let done = command.output().with_context(|| format!("{command:?}"));
    std::fs::remove_file(&file)?;
    let code = std::fs::read(&cubin).unwrap_or_default();
    let _ = std::fs::remove_file(&cubin);
    let done = done?;
    let log = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{log}");
    let number_before = |words: &str| {
        let before = log.split_once(words)?.0.trim_end();
        before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
    };
    let mut notes = format!("{} registers", number_before(" registers").unwrap_or(0));
    let spilled = number_before(" bytes spill stores").unwrap_or(0);
    if spilled > 0 {
        notes += &format!(", {spilled} bytes spilled");
    }
    for (_, loss) in log.lines().filter_map(|line| line.split_once("Potential Performance Loss: ")) {
        notes += &format!(", {loss}");
    }
    if spilled > 0 && has_lines {
        let entry = text.split_once(".entry ").and_then(|(_, rest)| rest.split_once('(')).context("an entry")?.0;
        notes += &format!("\n{}", Spills::of_cubin(entry, &code, target)?);
    }
    Ok(notes)
}
