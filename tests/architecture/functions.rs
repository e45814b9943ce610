//! Length of functions: a longer function has several tasks, and is split.

use std::fs;
use std::path::Path;

use super::all_sources;
use super::source::{is_word, without_comments_and_texts};

/// Maximum number of lines of a function, from `fn` to its last brace.
const MAX_LINES: usize = 90;

/// Returns the length of a function in bytes, from its parameters on; `None` without a body.
fn body_length(rest: &str) -> Option<usize> {
    let (mut parentheses, mut braces) = (0, 0);
    for (at, c) in rest.char_indices() {
        match c {
            '(' | '[' => parentheses += 1,
            ')' | ']' => parentheses -= 1,
            ';' if parentheses == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns name and number of lines of the functions of a file.
fn functions(text: &str) -> Vec<(String, usize)> {
    let code = without_comments_and_texts(text);
    let starts = code.match_indices("fn ").filter(|(at, _)| !code[..*at].ends_with(is_word));
    let function = |(at, word): (usize, &str)| {
        let rest = &code[at + word.len()..];
        let name: String = rest.chars().take_while(|&c| is_word(c)).collect();
        let length = body_length(&rest[name.len()..])?;
        let lines = rest[..name.len() + length].matches('\n').count() + 1;
        (!name.is_empty()).then_some((name, lines))
    };
    starts.filter_map(function).collect()
}

#[test]
fn functions_are_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut faults = Vec::new();
    for file in all_sources() {
        let path = file.strip_prefix(root).unwrap().display();
        let long = functions(&fs::read_to_string(&file).unwrap()).into_iter().filter(|(_, lines)| *lines > MAX_LINES);
        faults.extend(long.map(|(name, lines)| format!("{path}: `{name}` has {lines} lines")));
    }
    assert!(faults.is_empty(), "more than {MAX_LINES} lines:\n{}", faults.join("\n"));
}

#[test]
fn lines_of_functions_are_counted() {
    let text = "trait T {\n    fn declared(&self, array: [u8; 4]);\n}\n// fn comment() {\n\
                fn short() -> usize { 1 }\nfn long(f: fn(u8)) {\n    if true {\n        \"a\nb}\";\n    }\n}\n";
    assert_eq!(functions(text), [("short".to_string(), 1), ("long".to_string(), 6)]);
}
