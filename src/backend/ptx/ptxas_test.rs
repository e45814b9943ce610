//! ptxas for tests: from `CUTLET_PTXAS`, `.tools/bin` or the search path.

use crate::util::collect::CollectVec as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::target::Target;

fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("CUTLET_PTXAS") {
        return Some(path.into());
    }
    let local = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/bin/ptxas"));
    if local.exists() {
        return Some(local);
    }
    let works = Command::new("ptxas").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    works.then(|| "ptxas".into())
}

/// Assembles a module and returns the remarks of ptxas; `None`, with a printed line, when there is
/// no ptxas.
///
/// # Panics
/// When ptxas refuses the text: with its messages and the lines that they are about.
pub(crate) fn assemble(target: Target, text: &str) -> Option<String> {
    assembled(target, text, &["-v"]).map(|(log, _)| log)
}

/// Assembles a module with lines, and returns its machine code.
///
/// # Panics
/// As [`assemble`].
pub(crate) fn cubin_with_lines(target: Target, text: &str) -> Option<Vec<u8>> {
    assembled(target, text, &["-lineinfo"]).map(|(_, cubin)| cubin)
}

fn assembled(target: Target, text: &str, options: &[&str]) -> Option<(String, Vec<u8>)> {
    let Some(ptxas) = find() else {
        println!("skipped: no ptxas (scripts/tools installs it)");
        return None;
    };
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("cutlet-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let source = std::env::temp_dir().join(format!("{name}.ptx"));
    let cubin = source.with_extension("cubin");
    std::fs::write(&source, text).expect("a writable temporary folder");
    let output = Command::new(ptxas)
        .args(options)
        .args([&format!("-arch={target}"), "-o"])
        .args([&cubin, &source])
        .output()
        .expect("ptxas runs");
    let code = std::fs::read(&cubin).unwrap_or_default();
    let _ = std::fs::remove_file(&cubin);
    let _ = std::fs::remove_file(&source);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let lines: Vec<&str> = text.lines().collect_vec();
        let mut report = String::new();
        for message in log.lines().take(30) {
            let number = message.split("line ").nth(1).and_then(|rest| rest.split(';').next()?.trim().parse().ok());
            let line = number.and_then(|n: usize| lines.get(n - 1)).unwrap_or(&"");
            report += &format!("{message}\n    {}\n", line.trim());
        }
        panic!("ptxas refused the text for {target}:\n{report}");
    }
    Some((log, code))
}
