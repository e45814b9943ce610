//! Each example is one short file without further modules.

use std::fs;
use std::path::Path;

/// Lines before `main`, with the head of the file: kernels and their helpers.
const MAX_LINES: usize = 59;

/// Returns the faults of an example.
fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    match text.lines().position(|line| line.trim_start_matches("pub ").starts_with("fn main(")) {
        None => faults.push("no `main`".to_string()),
        Some(lines) if lines > MAX_LINES => faults.push(format!("{lines} lines before `main`, more than {MAX_LINES}")),
        Some(_) => {}
    }
    for line in text.lines().map(str::trim_start) {
        let used = line.trim_start_matches("pub ").strip_prefix("use ");
        let known = ["cutlet", "std", "ct::"].iter();
        if used.is_some_and(|path| !known.clone().any(|name| path.starts_with(name))) || line.starts_with("mod ") {
            faults.push(format!("`{line}`: only the library and the standard one are there"));
        }
    }
    faults
}

#[test]
fn examples_are_single_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            count += 1;
            wrong.extend(faults(&fs::read_to_string(&path).unwrap()).iter().map(|fault| format!("{name}: {fault}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count >= 24, "{count} examples");
}

#[test]
fn dependent_examples_are_found() {
    assert!(faults("use cutlet as ct;\nuse std::fs;\nfn main() {}\n").is_empty());
    assert_eq!(faults("mod harness;\nuse anyhow::Result;\nfn main() {}\n").len(), 2);
    assert_eq!(faults(&format!("{}fn main() {{}}\n", "\n".repeat(60))).len(), 1);
    assert_eq!(faults("fn helper() {}\n").len(), 1);
}
