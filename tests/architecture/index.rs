//! The index of the ptx back end is complete: its files and functions exist, and each file with a
//! matching call is in its row.

use std::fs;
use std::path::{Path, PathBuf};

use super::source::{code_of, is_test, sources, tokens};

/// File with the index.
const INDEX: &str = "src/backend/ptx/mod.rs";

/// Beginnings of rows, and the calls whose files must be in that row. `isa` defines most of them.
const CALLS: &[(&str, &[&str])] = &[
    ("`wgmma.wait_group`", &["wgmma_wait_group(", "wait_mmas_here(", "wait_all_mmas("]),
    ("`bar.sync`", &["bar_sync(", "emit_bar_sync(", "sync_at(", "Requirement::Barrier"]),
    ("full and empty mbarriers", &["mbarrier_init(", "mbarrier_wait(", "wait_for_phase(", "mbarrier_arrive("]),
    ("order of MMAs and exponentials", &["bar_arrive("]),
    ("warp specialization", &["ProducerRejection::Target"]),
    ("clusters, multicast", &["ClusterMulticast {", "multicast_loads"]),
    ("tensor maps", &["tma_load(", "tma_map(", "tma_store_map("]),
    ("`cp.async`", &["cp_async_wait_group(", "CpAsyncPlan {"]),
    ("TMA stores", &["bulk_commit_group("]),
    ("padding", &["Padding", "padding_bits(", "store_padding("]),
    ("instruction of an MMA", &["MmaPlan::new("]),
    ("swizzle of MMA operands", &["SharedLayout::swizzled("]),
    ("`setmaxnreg`", &["setmaxnreg("]),
    ("`.minnctapersm`", &["min_blocks = Some("]),
];

/// A row of the index.
#[derive(Debug, PartialEq)]
struct Row<'a> {
    subject: &'a str,
    /// The named files and folders, each with the names in parentheses after it.
    files: Vec<(&'a str, Vec<&'a str>)>,
}

/// Returns the texts in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the rows of all tables of a text.
fn rows(text: &str) -> Vec<Row<'_>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("//! | "));
    lines
        .filter_map(|line| {
            let (subject, rest) = line.split_once(" | ")?;
            let mut files = Vec::new();
            let mut after = rest;
            while let Some((_, from)) = after.split_once('`') {
                let (name, from) = from.split_once('`')?;
                after = from;
                if name.contains('/') || name.ends_with(".rs") {
                    let inside = from.strip_prefix(" (").and_then(|inside| inside.split_once(')'));
                    files.push((name, inside.map_or(Vec::new(), |(names, _)| quoted(names).collect())));
                }
            }
            (!files.is_empty()).then_some(Row { subject, files })
        })
        .collect()
}

/// Returns the file or folder of this name in the back end, in `src` or in the repository.
fn found(root: &Path, name: &str) -> Option<PathBuf> {
    ["src/backend/ptx", "src", ""].iter().map(|folder| root.join(folder).join(name)).find(|path| path.exists())
}

/// Returns true if the code defines this name. For `A::b`, both must be in the code.
fn defines(code: &str, name: &str) -> bool {
    let all = tokens(code);
    if let Some((owner, item)) = name.split_once("::") {
        return [owner, item].iter().all(|part| all.contains(part));
    }
    let is_definition = |word: &str| ["fn", "struct", "enum", "trait", "type", "const"].contains(&word);
    all.windows(2).any(|pair| is_definition(pair[0]) && pair[1] == name)
}

/// Returns true if the code has these tokens, not as a definition.
fn calls(code: &[&str], call: &str) -> bool {
    let call = tokens(call);
    let is_call = |at: usize| code[at..].starts_with(&call) && (at == 0 || !["fn", "struct"].contains(&code[at - 1]));
    (0..code.len()).any(is_call)
}

/// Returns the rows that lack a file with a matching call. `files`: paths and code.
fn missing<'a>(rows: &[Row<'_>], files: &'a [(String, String)]) -> Vec<String> {
    let code: Vec<(&'a str, Vec<&'a str>)> = files.iter().map(|(path, code)| (&**path, tokens(code))).collect();
    let mut faults = Vec::new();
    for (subject, wanted) in CALLS {
        let Some(row) = rows.iter().find(|row| row.subject.starts_with(subject)) else {
            faults.push(format!("no row {subject}"));
            continue;
        };
        for call in *wanted {
            let having = code.iter().filter(|(_, code)| calls(code, call)).map(|(path, _)| *path);
            let unnamed = having.filter(|path| row.files.iter().all(|(name, _)| name != path));
            faults.extend(unnamed.map(|path| format!("row {subject}: `{path}` has `{call}`")));
        }
    }
    faults
}

#[test]
fn the_index_names_existing_files_and_functions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join(INDEX)).unwrap();
    let rows = rows(&text);
    assert!(rows.len() > 30, "{} rows", rows.len());
    let mut faults = Vec::new();
    for (name, items) in rows.iter().flat_map(|row| &row.files) {
        let Some(path) = found(root, name) else {
            faults.push(format!("`{name}` does not exist"));
            continue;
        };
        let code = if items.is_empty() { String::new() } else { code_of(&fs::read_to_string(path).unwrap()) };
        faults.extend(items.iter().filter(|item| !defines(&code, item)).map(|item| format!("`{name}` lacks `{item}`")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn each_file_with_a_matching_call_is_in_its_row() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (text, folder) = (fs::read_to_string(root.join(INDEX)).unwrap(), root.join("src/backend/ptx"));
    let mut files = Vec::new();
    sources(&folder, &mut files);
    let named = |file: &PathBuf| {
        let path = file.strip_prefix(&folder).unwrap().display().to_string();
        let is_subject = !path.starts_with("isa/") && !path.starts_with("measured/") && !is_test(file);
        is_subject.then(|| (path, code_of(&fs::read_to_string(file).unwrap())))
    };
    let files: Vec<(String, String)> = files.iter().filter_map(named).collect();
    let faults = missing(&rows(&text), &files);
    assert!(faults.is_empty(), "{INDEX}:\n{}", faults.join("\n"));
    // Each call of the table exists, so that a renamed one is noticed.
    let is_used = |call: &&&str| files.iter().any(|(_, code)| code.contains(**call));
    let unused: Vec<_> = CALLS.iter().flat_map(|(_, wanted)| *wanted).filter(|call| !is_used(call)).collect();
    assert!(unused.is_empty(), "calls that no file has: {unused:?}");
}

/// Returns the texts in quotation marks after the first `start` of a text, to the first `end`.
fn names_in<'a>(text: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    let list = text.split_once(start).and_then(|(_, after)| after.split_once(end)).map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).collect()
}

#[test]
fn the_list_of_passes_is_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let (all, optimizations) = (read("src/pass/manager.rs"), read("src/pass/mod.rs"));
    let text = read("src/backend/ptx/compile.rs");
    let head: String = text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n");
    let names = names_in(&all, "pub const NAMES: &[&str] = &[", "];");
    assert!(names.len() > 40, "{names:?}");
    // Passes of the tileir back end alone are in its folder.
    let mut files = Vec::new();
    sources(&root.join("src/backend/tileir"), &mut files);
    let tileir: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let is_known = |name: &&str| quoted(&head).any(|known| known == *name) || tokens(&tileir).contains(name);
    let unknown: Vec<_> = names.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "passes that the head of `backend/ptx/compile.rs` lacks: {unknown:?}");
    let pipeline = names_in(&optimizations, "pub const PIPELINE: &[Pass] = &[", "];");
    let listed = head.split_once("`pass::PIPELINE` (`pass/mod.rs`):").unwrap().1.split_once(" (").unwrap().0;
    assert_eq!(quoted(listed).collect::<Vec<_>>(), pipeline);
    let list = head.split_once("# All passes in order").unwrap().1;
    let number = |line: &str| line.strip_prefix("//! ")?.split_once(". ")?.0.parse::<usize>().ok();
    let numbers: Vec<usize> = list.lines().filter_map(number).collect();
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
}

#[test]
fn faults_of_an_index_are_found() {
    let text = "//! | `setmaxnreg` | `a/b.rs` (at last: `f`, `T::g`); `c.rs` | |\n//! |---|\n//! | plain | none |\n";
    let rows = rows(text);
    let files = vec![("a/b.rs", vec!["f", "T::g"]), ("c.rs", vec![])];
    assert_eq!(rows, [Row { subject: "`setmaxnreg`", files }]);
    assert!(defines("pub fn f() {}", "f") && !defines("f();", "f"));
    assert!(defines("impl T { fn g() {} }", "T::g") && !defines("fn g() {}", "T::g"));
    let file = |path: &str, code: &str| (path.to_owned(), code.to_owned());
    let call = CALLS.iter().find(|(subject, _)| *subject == "`setmaxnreg`").unwrap().1[0];
    let files =
        [file("c.rs", &format!("b.{call}1);")), file("d.rs", &format!("b.{call}1);")), file("e.rs", "fn f() {}")];
    let faults = missing(&rows, &files);
    let of_row: Vec<&String> = faults.iter().filter(|fault| fault.contains("setmaxnreg")).collect();
    assert_eq!(of_row, [&format!("row `setmaxnreg`: `d.rs` has `{call}`")]);
    assert!(missing(&rows, &[file("e.rs", &format!("fn {call}) {{}}"))]).iter().all(|fault| !fault.contains("has")));
}
