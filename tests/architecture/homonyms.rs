//! Types of the ptx back end have distinct names, as far as other files see them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::source::{code_of, is_name, is_test, sources, tokens};

/// Returns the names of the types of a file that other files see: `pub`, `pub(crate)`,
/// `pub(super)` or `pub(in path)`.
fn visible_types(text: &str) -> Vec<String> {
    let code = code_of(text);
    let all = tokens(&code);
    let mut types = Vec::new();
    for at in (0..all.len()).filter(|&at| all[at] == "pub") {
        let mut next = at + 1;
        if all.get(next) == Some(&"(") {
            let Some(length) = all[next..].iter().position(|&token| token == ")") else { continue };
            next += length + 1;
        }
        next += usize::from(all.get(next) == Some(&"unsafe"));
        let is_type = matches!(all.get(next), Some(&("struct" | "enum" | "trait" | "type" | "union")));
        types.extend(all.get(next + 1).filter(|name| is_type && is_name(name)).map(|name| name.to_string()));
    }
    types
}

#[test]
fn types_of_the_ptx_back_end_have_distinct_names() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/backend/ptx");
    let mut files = Vec::new();
    sources(&folder, &mut files);
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| !is_test(file)) {
        let place = file.strip_prefix(&folder).unwrap().display().to_string();
        for name in visible_types(&fs::read_to_string(file).unwrap()) {
            places.entry(name).or_default().push(place.clone());
        }
    }
    assert!(places.len() > 300, "{} types", places.len());
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "types with one name: {places:#?}");
}

#[test]
fn visible_types_are_found() {
    let text = "pub struct A;\npub(super) enum B {}\npub(in crate::x) trait C {}\nstruct D { pub e: u32 }\npub fn f() {}\n\
                pub unsafe trait G {}\npub(crate) type H = u32;\n#[cfg(test)]\nmod tests { pub struct I; }\n";
    assert_eq!(visible_types(text), ["A", "B", "C", "G", "H"]);
}
