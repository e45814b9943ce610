//! Every public operation has an example that runs, and is in the list of all operations.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::source::{is_name, is_test, sources, tokens};

/// Rooms of operations, and the files whose `pub use` define which of their names are public.
const ROOMS: [(&str, &[&str]); 3] = [
    ("ops", &["ops/mod.rs", "lib.rs", "prelude.rs", "ops/pointer/mod.rs"]),
    ("tile", &["lib.rs", "prelude.rs"]),
    ("layout", &["layout/mod.rs"]),
];

/// Rooms of host functions, and the same files. Every public function of these rooms has an
/// example, which also shows its types.
const HOST_ROOMS: [(&str, &[&str]); 2] = [("launch", &["lib.rs"]), ("runtime", &["lib.rs"])];

/// Places there that are no part of the crate's front: calls of the driver, and types of the names
/// of others.
const INNER: [&str; 3] = ["runtime/driver", "launch/compile/guard_check.rs", "launch/array_expr/generated.rs"];

/// Public functions that are no items of a type, in a module of their own.
const OPEN_FILES: [&str; 1] = ["layout/f2_matrix.rs"];

/// State of the scan of a file at a line.
#[derive(Default)]
struct Scan {
    /// Lines of the doc comment and attributes before the next item.
    before: Vec<String>,
    /// Depth of brackets in an attribute that has begun.
    open: i32,
    /// Indentation and type of the `impl` around.
    within: Option<(usize, String)>,
    operations: usize,
    without: Vec<String>,
    /// True for functions of the host: any call is an example of them.
    host: bool,
    /// Functions and macros: their names, and their rows in the list of all operations.
    functions: Vec<(String, String)>,
}

impl Scan {
    /// Scans a line. `is_public`: of the name of a type, or of a function without one.
    fn line(&mut self, line: &str, is_public: &dyn Fn(&str) -> bool) {
        let (text, indent) = (line.trim(), line.len() - line.trim_start().len());
        let brackets = |text: &str| text.matches('[').count() as i32 - text.matches(']').count() as i32;
        if self.open > 0 || text.starts_with("#[") || text.starts_with("$(#[") {
            self.open += brackets(text);
            self.before.push(text.to_string());
            return;
        }
        if text.starts_with("///") {
            self.before.push(text.to_string());
            return;
        }
        if self.within.as_ref().is_some_and(|(impl_indent, _)| indent <= *impl_indent && text == "}") {
            self.within = None;
        }
        if text.starts_with("impl") {
            self.within = Some((indent, self_type(text)));
        }
        if let Some(name) = item(text, indent, !self.before.is_empty()) {
            let of_type = self.within.as_ref().filter(|(impl_indent, _)| indent > *impl_indent);
            // Methods of a macro exist for tiles and scalars, or for the type that the macro
            // receives.
            let public = match of_type {
                Some((_, owner)) => owner.starts_with('$') || is_public(owner),
                None if text.starts_with("macro_rules") => self.has("macro_export"),
                None if indent > 0 && !is_type(text) => true,
                None => is_public(name),
            };
            if public && !self.has("#[doc(hidden)]") {
                self.operations += 1;
                if !is_type(text) && !text.contains("fn $") {
                    let row = self.row(name, of_type.map_or("", |(_, owner)| owner), indent);
                    self.functions.push((name.to_string(), row));
                }
                let needs_none = self.host && is_type(text);
                if !(needs_none || self.has_example()) {
                    self.without.push(name.to_string());
                }
            }
        }
        self.before.clear();
    }

    /// A row for the list of all operations.
    fn row(&self, name: &str, owner: &str, indent: usize) -> String {
        let text = self.before.iter().filter_map(|line| line.strip_prefix("///")).collect::<String>();
        let sentence = text.trim().split(". ").next().unwrap_or("").trim_end_matches(['.', ':']);
        let owner = if owner.is_empty() && indent > 0 { "Tile" } else { owner };
        let room = if ["Tile", "Scalar", "Array", "ArrayMut"].contains(&owner) { "tile" } else { "ops" };
        let (page, owners) = match owner {
            "" => (format!("ops/fn.{name}.html"), String::new()),
            _ => (format!("{room}/struct.{owner}.html#method.{name}"), format!("`{owner}`")),
        };
        format!("| [`{name}`](https://docs.rs/cutlet/latest/cutlet/{page}) | {owners} | {sentence} |")
    }

    fn has(&self, text: &str) -> bool {
        self.before.iter().any(|line| line.contains(text))
    }

    /// Returns true if there is a code block that runs: of the item itself, from a macro, or at the
    /// rows of the enclosing macro.
    fn has_example(&self) -> bool {
        let mut blocks = self.before.iter().filter_map(|line| line.strip_prefix("/// ```"));
        let runs =
            self.host || self.has("launch(") || self.has("on_cpu(") || self.has("assert") || self.has("compile(");
        let block = blocks.next();
        // Examples that need a GPU are only compiled.
        let shown = block == Some("") || (self.host && block == Some("no_run"));
        (shown && runs) || self.has("example!(") || self.has("$(#[$doc])")
    }
}

fn is_type(text: &str) -> bool {
    ["struct", "enum", "trait"].iter().any(|kind| tokens(text).contains(kind))
}

/// The name of a public item, or of the row of a macro that makes one.
fn item(text: &str, indent: usize, is_documented: bool) -> Option<&str> {
    let words = tokens(text);
    if let ["macro_rules", "!", name, ..] = words[..] {
        return Some(name);
    }
    if let [name, "=", ..] = words[..] {
        return (indent > 0 && is_documented && is_name(name)).then_some(name);
    }
    let ["pub", rest @ ..] = &words[..] else { return None };
    let kind = rest.iter().position(|word| !["const", "unsafe"].contains(word))?;
    let name = *rest.get(kind + 1)?;
    ["fn", "struct", "enum", "trait"].contains(&rest[kind]).then_some(if name == "$" { rest[kind + 2] } else { name })
}

/// The name of the type that an `impl` is of: `$` and a name where a macro has it; nothing for a
/// trait's.
fn self_type(text: &str) -> String {
    let words = tokens(text);
    let mut at = 1;
    let mut depth = 0;
    // Over the generics.
    while at < words.len() && (depth > 0 || words[at] == "<") {
        depth += match words[at] {
            "<" => 1,
            ">" => -1,
            _ => 0,
        };
        at += 1;
    }
    if words.contains(&"for") {
        return String::new();
    }
    match words.get(at) {
        Some(&"$") => format!("${}", words.get(at + 1).unwrap_or(&"")),
        Some(name) => (*name).to_string(),
        None => String::new(),
    }
}

/// Names in the `pub use` of a file.
fn exported(text: &str) -> HashSet<String> {
    let uses = text.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    // Operations have a private type of a name that is public there, and the host has private
    // functions of names of operations.
    let others = ["target::", "ops::", "crate::ops::", "crate::element::"];
    let uses = uses.filter(|list| !others.iter().any(|other| list.starts_with(other)));
    uses.flat_map(|list| tokens(list)).filter(|word| is_name(word)).map(str::to_owned).collect()
}

/// Returns the scan of a file; items without an example are `file: name`.
fn scan(file: &Path, text: &str, host: bool, is_public: &dyn Fn(&str) -> bool) -> Scan {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let mut scan = Scan { host, ..Scan::default() };
    code.lines().for_each(|line| scan.line(line, is_public));
    scan.without.iter_mut().for_each(|name| *name = format!("{}: {name}", file.display()));
    scan
}

/// Returns the scan of all files of these rooms.
fn scan_of(rooms: &[(&str, &[&str])], host: bool) -> Scan {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Scan::default();
    for (room, lists) in rooms {
        let public: HashSet<String> =
            lists.iter().flat_map(|list| exported(&fs::read_to_string(root.join(list)).unwrap())).collect();
        let mut files: Vec<PathBuf> = Vec::new();
        sources(&root.join(room), &mut files);
        for file in files.iter().filter(|file| !is_test(file)) {
            let place = file.strip_prefix(&root).unwrap();
            if host && INNER.iter().any(|inner| place.starts_with(inner)) {
                continue;
            }
            let open = OPEN_FILES.iter().any(|open| place == Path::new(open));
            let text = fs::read_to_string(file).unwrap();
            let found = scan(place, &text, host, &|name| open || public.contains(name));
            all.operations += found.operations;
            all.without.extend(found.without);
            all.functions.extend(found.functions);
        }
    }
    all
}

#[test]
fn every_public_operation_has_a_runnable_example() {
    let Scan { operations, without, .. } = scan_of(&ROOMS, false);
    assert!(without.is_empty(), "{} of {operations} have no example that runs: {without:#?}", without.len());
    // A smaller number shows a defect of the scan.
    assert!(operations >= 500, "{operations} public operations");
}

#[test]
fn every_public_function_of_the_host_has_a_runnable_example() {
    let Scan { operations, without, .. } = scan_of(&HOST_ROOMS, true);
    assert!(without.is_empty(), "{} of {operations} have no example that runs: {without:#?}", without.len());
    assert!(operations >= 200, "{operations} public functions");
}

#[test]
fn every_operation_is_in_the_list_of_all() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    let text = fs::read_to_string(list).unwrap();
    // The names in rows, without the types before them.
    let links = text.split("\n| [`").skip(1).filter_map(|rest| rest.split("`]").next());
    let listed: HashSet<&str> = links.filter_map(|name| name.trim_end_matches('!').rsplit("::").next()).collect();
    let operations = scan_of(&ROOMS[..2], false).functions;
    let missing = operations.iter().filter(|(name, _)| !listed.contains(name.as_str()));
    let missing: String = missing.map(|(_, row)| format!("\n{row}")).collect();
    assert!(
        missing.is_empty(),
        "docs/operations.md lacks rows; put these into the sections of their families:{missing}"
    );
    let known: HashSet<&str> = operations.iter().map(|(name, _)| name.as_str()).collect();
    let gone: Vec<&&str> = listed.iter().filter(|name| !known.contains(**name) && !made_by_macros(name)).collect();
    assert!(gone.is_empty(), "docs/operations.md lists what is not there: {gone:?}");
}

/// Operations whose names are only in the rows of a macro, or in other rooms.
fn made_by_macros(name: &str) -> bool {
    name.starts_with("atomic_") || ["impl_kernel_args", "read", "write", "array_mut"].contains(&name)
}

#[test]
fn missing_examples_are_found() {
    let text = "
/// Text.
pub fn plain() {}
/// ```
/// launch(x);
/// ```
#[must_use]
pub fn shown() {}
/// ```ignore
/// launch(x);
/// ```
pub fn ignored() {}
/// ```
/// fn never_run() {}
/// ```
pub fn not_run() {}
/// Not public.
pub fn private() {}
impl<T: A<B>> Open<T> {
    /// Text.
    pub fn method(self) {}
}
impl Closed {
    pub fn own(self) {}
}
impl Display for Open {
    fn fmt() {}
}
functions! {
    /// Text.
    row = Row;
    /// ```
    /// assert!(true);
    /// ```
    shown_row = Row;
}
";
    let found = scan(Path::new("f"), text, false, &|name| !["private", "Closed"].contains(&name));
    let Scan { operations, without, functions, .. } = found;
    let link = "https://docs.rs/cutlet/latest/cutlet/ops/struct.Open.html#method.method";
    assert_eq!(functions[4].1, format!("| [`method`]({link}) | `Open` | Text |"));
    let names: Vec<&str> = functions.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["plain", "shown", "ignored", "not_run", "method", "row", "shown_row"]);
    assert_eq!(without, ["f: plain", "f: ignored", "f: not_run", "f: method", "f: row"]);
    assert_eq!(operations, 7);
}
