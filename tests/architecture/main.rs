//! Permitted dependencies between the rooms of `src/`, compared with the paths in the sources.

mod cycles;
mod examples;
mod functions;
mod hidden;
mod homonyms;
mod index;
mod paths;
mod programs;
mod public_items;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use source::{code_of, is_test, sources};

/// A room (path prefix in `src/`, `mod.rs` and extension left out) and the rooms it may name. The
/// longest matching prefix counts. A room may always name itself and its contents.
const ROOMS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("target", &[]),
    ("sealed", &[]),
    ("util", &[]),
    ("types/dtype", &[]),
    // Only the names of the rounding modes are from the IR.
    ("types/float_codec", &["types/dtype", "ir"]),
    ("layout", &["error", "util"]),
    ("types/element", &["types/float_codec", "types/dtype", "error", "ir", "sealed"]),
    ("types/packed_formats", &["types/float_codec", "types/dtype", "types/element", "sealed"]),
    ("types/complex", &["types/element", "sealed"]),
    // The list of its files.
    ("types", &[]),
    ("ir", &["types/dtype", "error", "util"]),
    ("ir/print", &["types/float_codec", "ir", "types/dtype", "error", "util"]),
    ("ir/parse", &["types/float_codec", "ir", "types/dtype", "error", "util"]),
    ("pass", &["ir", "types/dtype", "error", "types/float_codec", "util"]),
    ("backend", &["ir", "pass", "types/dtype", "error", "target", "types/float_codec", "layout"]),
    ("backend/cpu", &["backend", "ir", "pass", "types/float_codec", "types/dtype", "error", "target", "util"]),
    ("backend/tileir", &["backend", "ir", "pass", "types/float_codec", "types/dtype", "error", "target", "util"]),
    (
        "backend/ptx",
        &["backend", "ir", "pass", "types/float_codec", "layout", "types/dtype", "error", "target", "util"],
    ),
    // Runs the plans of one back end by means of another one.
    (
        "backend/schedule_sim",
        &["backend", "backend/cpu", "backend/ptx", "ir", "layout", "types/dtype", "error", "target"],
    ),
    // An argument of a launch tells which memory it uses.
    ("kernel", &["backend", "tile", "ops", "types/element", "ir", "types/dtype", "error", "runtime", "util", "sealed"]),
    ("tile", &["types/element", "ir", "types/dtype", "error", "types/float_codec", "util", "sealed"]),
    (
        "ops",
        &[
            "tile",
            "types/element",
            "types/complex",
            "types/packed_formats",
            "kernel",
            "ir",
            "layout",
            "types/dtype",
            "error",
            "types/float_codec",
            "util",
            "sealed",
        ],
    ),
    // In memory kernels are known by their constants or by their trace.
    ("cache", &["error", "ir", "kernel", "util"]),
    ("runtime", &["*"]),
    ("launch", &["*"]),
    // Property tests launch kernels with arrays of their own.
    ("test", &["*"]),
    ("guide", &["*"]),
    ("prelude", &["*"]),
    // The launch of documentation examples.
    ("doctest", &["*"]),
    ("lib", &["*"]),
];

/// Rooms that only these rooms may name, in precedence over the table above.
const TOP: &[(&str, &[&str])] = &[
    ("runtime", &["runtime", "launch", "kernel", "test", "lib"]),
    ("launch", &["runtime", "launch", "test", "lib", "prelude", "doctest"]),
];

/// Names that the crate root re-exports, and their rooms.
const ROOT_NAMES: &[(&str, &str)] = &[
    ("Diagnostic", "error"),
    ("Error", "error"),
    ("Location", "error"),
    ("Note", "error"),
    ("Result", "error"),
    ("Target", "target"),
    ("dtype", "types/dtype"),
    ("element", "types/element"),
    ("float_codec", "types/float_codec"),
];

/// Every `crate::a::b` of the code as "a/b", groups expanded to one level after their prefix.
fn crate_paths(code: &str) -> BTreeSet<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut paths = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let mut rest = &code[at + "crate::".len()..];
        let mut prefix = Vec::new();
        loop {
            let name = word(rest);
            if name.is_empty() {
                break;
            }
            rest = &rest[name.len()..];
            prefix.push(name);
            match rest.strip_prefix("::") {
                Some(after) => rest = after,
                None => break,
            }
        }
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut start = true;
            for (position, c) in group.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => start = true,
                    c if c.is_whitespace() => {}
                    _ if start && depth == 0 => {
                        start = false;
                        let mut path = prefix.clone();
                        path.push(word(&group[position..]));
                        paths.insert(path.join("/"));
                    }
                    _ => {}
                }
            }
        } else {
            paths.insert(prefix.join("/"));
        }
    }
    paths
}

/// Returns the room of a path of names.
fn room_of(path: &str) -> Option<&'static str> {
    let first = path.split('/').next().unwrap();
    if let Some((_, room)) = ROOT_NAMES.iter().find(|(name, _)| *name == first) {
        return Some(room);
    }
    let within = |room: &str| path == room || path.strip_prefix(room).is_some_and(|rest| rest.starts_with('/'));
    ROOMS.iter().map(|(room, _)| *room).filter(|room| within(room)).max_by_key(|room| room.len())
}

#[test]
fn dependencies_have_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| !is_test(file)) {
        let name = file.strip_prefix(&root).unwrap().with_extension("").display().to_string();
        let name = name.strip_suffix("/mod").unwrap_or(&name);
        let Some(room) = room_of(name) else {
            faults.push(format!("src/{name}: in no room of this test's table; add it"));
            continue;
        };
        let (_, allowed) = ROOMS.iter().find(|(other, _)| *other == room).unwrap();
        for path in crate_paths(&code_of(&fs::read_to_string(file).unwrap())) {
            let Some(other) = room_of(&path) else {
                // Crate-level macros and names that only the facade has.
                continue;
            };
            let inside = other == room || other.strip_prefix(room).is_some_and(|rest| rest.starts_with('/'));
            let known = inside || allowed.contains(&other) || allowed == &["*"];
            let reserved = TOP.iter().any(|(top, by)| *top == other && !by.contains(&room));
            if !known || reserved {
                faults.push(format!("src/{name}: room `{room}` must not know `{other}` (crate::{path})"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_file_has_a_purpose() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "tests", "examples", "benches"] {
        if root.join(folder).is_dir() {
            sources(&root.join(folder), &mut files);
        }
    }
    let silent: Vec<_> = files.iter().filter(|file| !fs::read_to_string(file).unwrap().starts_with("//!")).collect();
    assert!(silent.is_empty(), "files without a //! head: {silent:?}");
}

/// The folders with sources of this repository, whose sizes are limited.
const SOURCE_ROOTS: &[&str] = &["src", "kernels", "models", "integrations", "tests", "benches", "examples", "fuzz"];

/// Returns the sources of [`SOURCE_ROOTS`], without build folders of other workspaces.
fn all_sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in SOURCE_ROOTS.iter().filter(|folder| root.join(folder).is_dir()) {
        sources(&root.join(folder), &mut files);
    }
    files.retain(|file| file.components().all(|part| part.as_os_str() != "target"));
    files
}

/// Maximum number of source files in a folder.
const MAX_FILES: usize = 15;

/// Folders with more files, and the reason.
const LARGE_FOLDERS: &[(&str, &str)] = &[
    ("benches/kernels/measure", "one file per kernel of `examples`"),
    ("examples", "Cargo takes each file as a target"),
    ("tests", "Cargo takes each file as a target"),
    ("tests/messages/fail/types", "one file per case, which does not compile"),
    ("tests/suite", "one file per subject of the differential suite"),
    ("tests/suite/random/ops", "one file per family of random kernels"),
];

#[test]
fn folders_have_few_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut counts = BTreeMap::new();
    for file in all_sources() {
        *counts.entry(file.parent().unwrap().strip_prefix(root).unwrap().display().to_string()).or_insert(0) += 1;
    }
    counts.retain(|_, count| *count > MAX_FILES);
    let large: Vec<&str> = counts.keys().map(String::as_str).collect();
    let known: Vec<&str> = LARGE_FOLDERS.iter().map(|&(folder, _)| folder).collect();
    assert_eq!(large, known, "folders with more than {MAX_FILES} files: {counts:?}");
}

/// Maximum number of lines of a source file.
const MAX_FILE_LINES: usize = 700;

#[test]
fn files_are_short() {
    let lines = |file: &PathBuf| fs::read_to_string(file).unwrap().lines().count();
    let long: Vec<_> = all_sources().into_iter().filter(|file| lines(file) > MAX_FILE_LINES).collect();
    assert!(long.is_empty(), "more than {MAX_FILE_LINES} lines: {long:?}");
}

#[test]
fn paths_are_found_in_groups_and_bodies() {
    let code = code_of(
        "use crate::{error::Error, ir::{Op, Type}, Target};\nuse crate::pass::fold; // crate::launch\n\
         fn f() -> crate::ir::Op { crate::backend::cpu::run() }\n#[cfg(test)]\nmod tests { use crate::tile; }\n",
    );
    let paths = crate_paths(&code);
    let want = ["Target", "backend/cpu/run", "error", "ir", "ir/Op", "pass/fold"];
    assert_eq!(paths, want.iter().map(|path| path.to_string()).collect());
    assert_eq!(room_of("backend/cpu/run"), Some("backend/cpu"));
    assert_eq!(room_of("Target"), Some("target"));
    assert_eq!(room_of("irrelevant"), None);
}
