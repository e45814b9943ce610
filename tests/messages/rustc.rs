//! Diagnostics of rustc for the files of `fail/`: one run for each, against the library that was
//! built for this program.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use crate::said::folder;

/// Parts of a diagnostic that tell of this crate's inner parts; a user reads past them. The part
/// about `println` depends on the sources of the standard library, which are not on each machine.
const LEFT_OUT: [&str; 14] = [
    "= help: the following types",
    "= help: the trait",
    "help: the trait",
    "= help: for that trait implementation",
    "= help: the following other types",
    "help: the following other types",
    "note: required by a bound",
    "note: required for",
    "= note: required for",
    "= note: this error originates",
    "= note: the full type name",
    "= note: the full name for the type",
    "= note: consider using `--verbose`",
    "note: `println` could also refer to",
];

/// Diagnostics of rustc by file.
static SAID: Mutex<Vec<(&str, Vec<Said>)>> = Mutex::new(Vec::new());

/// One error, and its line in the file.
struct Said {
    line: usize,
    text: String,
    /// Number of lines as rustc prints it, with the parts of `LEFT_OUT`.
    lines: usize,
}

/// Returns the first line and the number of lines of each diagnostic for a wrong argument.
pub fn wrong_arguments(file: &str) -> Vec<(String, usize)> {
    let first = |said: Said| (said.text.lines().next().unwrap_or_default().to_string(), said.lines);
    let all = compile(file).into_iter().map(first);
    all.filter(|(first, _)| first.contains("the argument is") || first.contains("the arguments `")).collect()
}

/// Returns the diagnostics for the part of `fail/FILE.rs` with the heading `// ## TITLE`.
pub fn said(file: &'static str, title: &str) -> String {
    let path = folder().join("fail").join(file).with_extension("rs");
    let source = std::fs::read_to_string(&path).expect("the file of this case");
    let heads: Vec<(usize, &str)> =
        source.lines().enumerate().filter_map(|(i, line)| Some((i + 1, line.strip_prefix("// ## ")?))).collect();
    let own = heads.iter().position(|(_, head)| *head == title);
    let own = own.unwrap_or_else(|| panic!("fail/{file}.rs has no part `{title}`"));
    let end = heads.get(own + 1).map_or(usize::MAX, |(line, _)| *line);
    let mut known = SAID.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if known.iter().all(|(name, _)| *name != file) {
        known.push((file, compile(file)));
    }
    let all = known.iter().find(|(name, _)| *name == file).map(|(_, all)| all.iter()).into_iter().flatten();
    let texts: Vec<&str> =
        all.filter(|said| (heads[own].0..end).contains(&said.line)).map(|said| said.text.as_str()).collect();
    assert!(!texts.is_empty(), "rustc says nothing of `{title}` in fail/{file}.rs");
    texts.join("\n")
}

/// The compiler that built this program, most likely.
pub fn command() -> Command {
    Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()))
}

/// Returns the diagnostics for each file of `fail/types/`: wrong element types and ranks do not
/// compile. A loop body that assigns to a captured variable does not compile either, nor do
/// argument and element types of users that unsafe code would trust.
pub fn of_types() -> Vec<(String, String)> {
    let files = std::fs::read_dir(folder().join("fail/types")).expect("the folder").flatten();
    let mut names: Vec<String> =
        files.filter_map(|file| Some(file.path().file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    let said = |name: String| {
        let texts: Vec<String> = compile(&format!("types/{name}")).into_iter().map(|said| said.text).collect();
        assert!(!texts.is_empty(), "rustc says nothing of fail/types/{name}.rs");
        (name, texts.join("\n"))
    };
    names.into_iter().map(said).collect()
}

/// Returns all diagnostics of a file, which must not compile.
fn compile(file: &str) -> Vec<Said> {
    let (library, dependencies) = library();
    let out = format!("cutlet-messages-{}-{}", std::process::id(), file.replace('/', "-"));
    let out = std::env::temp_dir().join(out);
    let mut command = command();
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["--edition", "2024", "--crate-name", "case", "--emit", "metadata", "-A", "dead_code"]);
    command.args(["--color", "never", "--diagnostic-width", "200"]);
    command.arg("--extern").arg(format!("cutlet={}", library.display()));
    command.arg("-L").arg(format!("dependency={}", dependencies.display()));
    command.arg("-o").arg(&out).arg(format!("tests/messages/fail/{file}.rs"));
    let output = command.output().expect("rustc");
    let _ = std::fs::remove_file(&out);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "fail/{file}.rs compiles");
    text.split("\n\n").filter_map(|block| one(block, file)).collect()
}

/// Returns the library that was built last before this program, and the folder of its dependencies.
fn library() -> (PathBuf, PathBuf) {
    let program = std::env::current_exe().expect("this program");
    let built = program.metadata().and_then(|meta| meta.modified()).expect("its time");
    let folder = program.parent().expect("its folder").to_path_buf();
    let files = std::fs::read_dir(&folder).expect("its folder").flatten();
    let candidates = files.filter(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libcutlet-") && name.ends_with(".rlib")
    });
    let times = candidates.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())));
    let newest = times.filter(|(time, _)| *time <= built).max();
    (newest.expect("the library beside this program").1, folder)
}

/// Returns one diagnostic without line numbers, paths, and the parts of `LEFT_OUT`.
fn one(block: &str, file: &str) -> Option<Said> {
    if !block.trim_start().starts_with("error") || block.contains("error: aborting due to") {
        return None;
    }
    let line = block.split(&format!("fail/{file}.rs:")).nth(1)?.split(':').next()?.parse().ok()?;
    let mut text = String::new();
    let mut left_out = false;
    for line in block.lines() {
        let code = line.split_once('|').filter(|(number, _)| number.trim().parse::<u32>().is_ok());
        let line = code.map_or(line.trim_end().to_string(), |(_, code)| format!("  |{code}").trim_end().to_string());
        let part = line.trim_start();
        let begins = ["= ", "note: ", "help: "].iter().any(|start| part.starts_with(start));
        if begins {
            left_out = LEFT_OUT.iter().any(|start| part.starts_with(start));
        }
        let noise = part.starts_with("-->") || part.starts_with(":::") || part == "|" || part == "...";
        if !left_out && !noise {
            text += &format!("{}{part}\n", if text.is_empty() { "" } else { "  " });
        }
    }
    Some(Said { line, text, lines: block.trim().lines().count() })
}
