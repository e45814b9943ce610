//! Source files, and the part of their text that is code of the crate.

use std::fs;
use std::path::{Path, PathBuf};

/// Every source file in a folder and in the folders in it.
pub fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// Returns true if the file is a module of tests.
pub fn is_test(file: &Path) -> bool {
    file.components().any(|part| ["tests", "tests.rs"].iter().any(|test| part.as_os_str() == *test))
}

/// Returns the text without comments, without the contents of string literals, and without items
/// that are only compiled for tests.
pub fn code_of(text: &str) -> String {
    let text = without_comments_and_texts(text);
    let mut code = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("#[cfg(test)]") {
        code.push_str(before);
        rest = &after[end_of_item(after)..];
    }
    code + rest
}

/// The text without comments and quoted texts. All line breaks remain.
pub fn without_comments_and_texts(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            'r' if !out.ends_with(is_word) => raw_length(rest),
            '"' => quoted_length(rest, '"'),
            // A character, not a lifetime.
            '\'' if rest[1..].starts_with('\\') => quoted_length(rest, '\''),
            '\'' if rest.chars().nth(2) == Some('\'') => rest.char_indices().nth(3).map_or(rest.len(), |(at, _)| at),
            _ => 0,
        };
        if skipped == 0 {
            out.push(c);
        } else if c != '/' {
            out.push_str("\"\"");
            out.extend(rest[..skipped].matches('\n'));
        }
        rest = &rest[if skipped == 0 { c.len_utf8() } else { skipped }..];
    }
    out
}

/// Length of a raw string; 0 where there is none.
fn raw_length(text: &str) -> usize {
    let marks = text[1..].len() - text[1..].trim_start_matches('#').len();
    if !text[1 + marks..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(marks));
    let start = 2 + marks;
    text[start..].find(&end).map_or(text.len(), |at| start + at + end.len())
}

/// Returns the length of a literal between quotation marks.
fn quoted_length(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == mark => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the end of the first item of a text: after its braces, or after a `;` before any brace.
fn end_of_item(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Words, `::` and single signs of code.
pub fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            ':' if rest.starts_with("::") => 2,
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// Returns true if the token is a name or a number.
pub fn is_name(token: &str) -> bool {
    token.chars().all(is_word)
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn tests_and_texts_are_no_code() {
    let text = "#[cfg(test)]\nmod tests;\nfn a() {} // b \"\n#[cfg(test)]\nmod more {\n  fn c() {}\n}\nfn d() {}";
    assert_eq!(tokens(&code_of(text)).concat(), "fna(){}fnd(){}");
    let text = "let x: &'a str = \"b::c \\\" // d\"; '\"' '\\'' e::f; r#\"use \"g\"#; r\"\\\" h // i";
    let code = code_of(text);
    assert_eq!(tokens(&code).concat(), "letx:&'astr=\"\";\"\"\"\"e::f;\"\";\"\"h");
}
