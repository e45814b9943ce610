//! Source files that documents and indices name exist.

use std::fs;
use std::path::{Path, PathBuf};

use super::source::sources;

/// Documents that name source files in backticks.
const DOCUMENTS: [&str; 7] = [
    "CONTRIBUTING.md",
    "docs/schedule.md",
    "docs/schedule_passes.md",
    "docs/tour.md",
    "src/backend/ptx/compile.rs",
    "src/backend/ptx/mod.rs",
    "src/backend/ptx/optimizations.rs",
];

/// Returns the names in backticks that end with `.rs`. Groups in braces and wildcards are left out.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let names = text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs"));
    names.filter(|name| !name.contains(['{', '*', ' ', '\n']))
}

fn is_missing(files: &[PathBuf], name: &str) -> bool {
    !files.iter().any(|file| file.ends_with(name))
}

#[test]
fn named_files_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "tests", "benches", "examples"] {
        sources(&root.join(folder), &mut files);
    }
    let (mut count, mut missing) = (0, Vec::new());
    for document in DOCUMENTS {
        let text = fs::read_to_string(root.join(document)).unwrap();
        let fenced: String = text.split("```").step_by(2).collect();
        count += named(&fenced).count();
        missing
            .extend(named(&fenced).filter(|name| is_missing(&files, name)).map(|name| format!("{document}: {name}")));
    }
    assert!(count > 100, "{count} names");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn missing_files_are_found() {
    let files = [PathBuf::from("/root/src/ir/module.rs")];
    assert_eq!(
        named("`ir/module.rs` and `a` in `ir/{a,b}.rs`, `x/y.rs`").collect::<Vec<_>>(),
        ["ir/module.rs", "x/y.rs"]
    );
    assert!(!is_missing(&files, "ir/module.rs") && is_missing(&files, "ir/odule.rs") && is_missing(&files, "x/y.rs"));
}
