//! Consistency of `docs/features.md`: its totals are those of its rows, and the names in it are
//! names of the crate.

#[path = "architecture/source.rs"]
mod source;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use source::{code_of, is_name, is_test, sources, tokens};

const ROWS: usize = 336;
const COLUMNS: [&str; 3] = ["cpu", "ptx", "tileir"];
const LETTERS: [&str; 4] = ["y", "p", "n", "-"];

/// Rooms in which every word outside of functions counts, because of macros with tables of names,
/// variants and fields. Elsewhere only items with `pub` count.
const FRONT: [&str; 9] =
    ["ops", "tile", "kernel", "launch", "runtime", "element.rs", "error.rs", "lib.rs", "backend/mod.rs"];

/// Rooms from which a kernel's author takes nothing.
const BEHIND: [&str; 2] = ["backend/ptx", "pass"];

/// Keywords between `pub` and the name of an item.
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "const", "type", "mod", "unsafe"];

/// The names of the crate, file by file.
type Names = Vec<HashSet<String>>;

fn names_of_the_crate() -> Names {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    let place = |path: &Path| path.strip_prefix(&root).unwrap().to_owned();
    paths.retain(|path| !is_test(path) && !BEHIND.iter().any(|room| place(path).starts_with(room)));
    paths.iter().map(|path| names_of(&place(path), &fs::read_to_string(path).unwrap())).collect()
}

/// Returns true if there is `a`, or a file with `a` and `b` for `a::b`.
fn has(names: &Names, path: &[&str]) -> bool {
    names.iter().any(|file| path.iter().all(|&name| file.contains(name)))
}

/// The names in a file at a place in `src/`, of the rooms above it, and of the environment.
fn names_of(place: &Path, text: &str) -> HashSet<String> {
    let front = FRONT.iter().any(|room| place.starts_with(room));
    let mut names: HashSet<String> = place.iter().map(|part| part.to_str().unwrap().replace(".rs", "")).collect();
    names.extend(text.split('"').filter(|text| text.starts_with("CUTLET_")).map(str::to_owned));
    let code = code_of(text);
    let words = tokens(&code);
    let mut at = 0;
    while at < words.len() {
        let before = |n: usize| at.checked_sub(n).map_or("", |at| words[at]);
        let is_public = ITEMS.contains(&before(1)) && [before(2), before(3)].contains(&"pub");
        let is_item =
            is_public || ["pub", "impl"].contains(&before(1)) || (before(1) == "!" && before(2) == "macro_rules");
        let is_function = before(1) == "fn" && (is_name(words[at]) || words[at] == "$");
        if is_item || (front && !is_function && ![".", "::"].contains(&before(1))) {
            names.insert(words[at].to_owned());
        }
        at = if is_function { end_of_function(&words, at) } else { at + 1 };
    }
    names
}

/// Returns the index after the body of a function, or after the `;` in its place.
fn end_of_function(words: &[&str], start: usize) -> usize {
    let mut depth = 0;
    for (at, &word) in words.iter().enumerate().skip(start) {
        match word {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 && (word == "}" || word == ";") {
            return at + 1;
        }
    }
    words.len()
}

/// The paths of the crate in a span of code: the span itself, or the functions that an expression
/// calls.
fn paths(span: &str) -> Vec<Vec<&str>> {
    let words = tokens(span);
    let mut paths = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let mut path = vec![words[at]];
        while words.get(at + 1) == Some(&"::") && at + 2 < words.len() {
            at += 2;
            path.push(words[at]);
        }
        at += 1;
        let whole = at == words.len() && path.len() * 2 - 1 == words.len();
        let named = path[0].starts_with(|c: char| c.is_alphabetic() || c == '_');
        if named && (whole || path.len() > 1 || ["(", "!"].iter().any(|sign| words.get(at) == Some(sign))) {
            path.retain(|&name| name != "ct");
            paths.push(path);
        }
    }
    paths
}

/// The cells of a line of a table.
fn cells(line: &str) -> Option<Vec<String>> {
    let line = line.strip_prefix('|')?.strip_suffix('|')?.replace("\\|", "\0");
    Some(line.split('|').map(|cell| cell.trim().replace('\0', "|")).collect())
}

/// The rows of features: an id, a description, our names, three letters, remarks.
fn rows(text: &str) -> Vec<Vec<String>> {
    let is_id = |cell: &str| cell.starts_with(|c: char| c.is_ascii_uppercase()) && cell.ends_with(char::is_numeric);
    text.lines().filter_map(cells).filter(|row| is_id(&row[0])).collect()
}

fn problems(text: &str, names: &Names, expected: usize) -> Vec<String> {
    let rows = rows(text);
    let mut problems = Vec::new();
    let mut seen = HashSet::new();
    let mut counts = [[0; LETTERS.len()]; COLUMNS.len()];
    let (mut both, mut one) = (0, 0);
    for row in &rows {
        let [id, what, ours, letters @ .., remarks] = row.as_slice() else {
            problems.push(format!("{}: {} cells", row[0], row.len()));
            continue;
        };
        let mut wrong = |message: String| problems.push(format!("{id}: {message}"));
        if !seen.insert(id) {
            wrong("the id stands twice".into());
        }
        if letters.len() != COLUMNS.len() || what.is_empty() {
            wrong(format!("{} cells", row.len()));
            continue;
        }
        for (column, letter) in letters.iter().enumerate() {
            match LETTERS.iter().position(|known| known == letter) {
                Some(known) => counts[column][known] += 1,
                None => wrong(format!("`{letter}` is no letter")),
            }
        }
        let some = letters.iter().any(|letter| letter == "y" || letter == "p");
        if some == ours.is_empty() {
            wrong("there is something where, and only where, there is a name".into());
        }
        if letters.iter().any(|letter| letter != "y") && remarks.is_empty() {
            wrong("the remarks do not say why".into());
        }
        both += usize::from(letters[0] == "y" && letters[1] == "y");
        one += usize::from(matches!((letters[0].as_str(), letters[1].as_str()), ("y", "-") | ("-", "y")));
        for path in ours.split('`').skip(1).step_by(2).flat_map(paths) {
            if !has(names, &path) {
                wrong(format!("there is no `{}`", path.join("::")));
            }
        }
    }
    if rows.len() != expected {
        problems.push(format!("{} rows", rows.len()));
    }
    let head = text.split("\n## ").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let mut totals = vec![format!("{both} of {} rows. In {one} more rows", rows.len())];
    totals.extend(
        COLUMNS.iter().zip(counts).map(|(name, [y, p, n, none])| format!("| {name} | {y} | {p} | {n} | {none} |")),
    );
    totals.retain(|total| !head.contains(total));
    problems.extend(totals.iter().map(|total| format!("the head does not say: {total}")));
    problems
}

#[test]
fn the_document_is_true() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/features.md");
    let problems = problems(&fs::read_to_string(path).unwrap(), &names_of_the_crate(), ROWS);
    assert!(problems.is_empty(), "docs/features.md:\n{}", problems.join("\n"));
}

#[test]
fn false_entries_are_found() {
    let code =
        "pub struct Knob; impl Knob { pub fn turn() { let x = \"CUTLET_KNOB\"; } fn own() {} } macro_rules! press {}";
    let names = vec![names_of(Path::new("ops/knob.rs"), code)];
    let of = |rows: &str| {
        let text = format!("1 of 2 rows. In 0 more rows\n| cpu | 1 | 0 | 1 | 0 |\n| ptx | 1 | 0 | 1 | 0 |\n{rows}");
        problems(&format!("{text}\n| tileir | 2 | 0 | 0 | 0 |\n"), &names, 2).join("\n")
    };
    let second = "| A2 | b | compose: `ct::turn(x \\| y) + z`, `press!`, `CUTLET_KNOB` | n | n | y | none |";
    let with = |first: &str| of(&format!("{first}\n{second}"));
    assert_eq!(with("| A1 | a | `Knob::turn`, `knob::Knob`, `+` | y | y | y | |"), "");
    assert_eq!(with("| A1 | a | `Knob::pull` | y | y | y | |"), "A1: there is no `Knob::pull`");
    assert_eq!(with("| A1 | a | `x` | y | y | y | |"), "A1: there is no `x`");
    assert_eq!(with("| A1 | a | `own` | y | y | y | |"), "A1: there is no `own`");
    assert_eq!(with("| A1 | a | `x + pull(y)` | y | y | y | |"), "A1: there is no `pull`");
    assert_eq!(with("| A1 | a | `CUTLET_PULL` | y | y | y | |"), "A1: there is no `CUTLET_PULL`");
    assert_eq!(with("| A2 | a | `turn` | y | y | y | |"), "A2: the id stands twice");
    assert!(with("| A1 | a | `turn` | y | y | x | |").contains("`x` is no letter"));
    assert!(with("| A1 | a | | y | y | y | |").contains("there is a name"));
    assert!(with("| A1 | a | `turn` | y | p | y | |").contains("do not say why"));
    assert!(with("| A1 | a | `turn` | y | n | y | no |").contains("the head does not say: 0 of 2 rows"));
    assert_eq!(of(second).lines().next(), Some("1 rows"));
}
