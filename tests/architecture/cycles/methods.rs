//! Method calls as edges between files: from the file of a call to the file that defines the
//! method.
//!
//! Sources have no types, so a call counts only if its method is certain:
//! * `self.m()` and `Self::m()` in an `impl` block of a type call the method `m` of this type. So
//!   do `this.m()`, and `lowering.m()` for the type `Lowering` ([`VARIABLES`]).
//!   A type of the library may have the method itself.
//! * `x.m()` and `x.y.m()` call the only method with this name in the crate. Exceptions: `std` has
//!   the method, or for other crates the library, or all methods of the type are in one file.

use std::collections::{BTreeMap, BTreeSet};

use super::{Name, Tree, room};
use crate::source::is_name;

/// Names of methods of `std` that types of the crate have, too.
const STD: &[&str] = &[
    "all",
    "any",
    "chain",
    "clear",
    "contains",
    "cycle",
    "drain",
    "entry",
    "extend",
    "fill",
    "filter",
    "find",
    "first",
    "fold",
    "get",
    "get_mut",
    "insert",
    "free",
    "into_iter",
    "is_empty",
    "is_none",
    "is_some",
    "iter",
    "join",
    "last",
    "len",
    "map",
    "max",
    "min",
    "next",
    "parse",
    "place",
    "pop",
    "position",
    "product",
    "push",
    "reduce",
    "release",
    "remove",
    "repeat",
    "retain",
    "rev",
    "scan",
    "skip",
    "step_by",
    "sum",
    "swap",
    "take",
    "then",
    "truncate",
    "write",
    "zip",
];

/// Variables that have the same type everywhere.
const VARIABLES: &[(&str, &str)] = &[("info", "KernelInfo"), ("lowering", "Lowering"), ("machine", "Machine")];

/// The object of a call.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Receiver {
    /// `self` or `Self` in an `impl` block of this type.
    Own(String),
    /// A variable.
    Named(String),
    /// A field, or the value of an expression.
    Other,
}

/// The methods that a file defines and calls.
#[derive(Default)]
pub struct Methods {
    /// By type.
    defined: BTreeMap<String, BTreeSet<String>>,
    calls: BTreeSet<(Receiver, String)>,
}

/// The type of an `impl` block, from the tokens between `impl` and `{`.
fn type_of(header: &[&str]) -> Option<String> {
    let mut depth = 0;
    let mut name = None;
    for (at, &token) in header.iter().enumerate() {
        match token {
            "<" => depth += 1,
            ">" if at > 0 && header[at - 1] == "-" => {}
            ">" => depth -= 1,
            "where" if depth == 0 => break,
            // The type follows the trait; `for<'a>` is a bound.
            "for" if depth == 0 => name = None,
            "mut" | "dyn" | "const" => {}
            token if depth == 0 && is_name(token) => name = Some(token.to_string()),
            _ => {}
        }
    }
    name
}

impl Methods {
    pub fn read(all: &[&str]) -> Methods {
        let mut methods = Methods::default();
        let mut depth = 0;
        // The `impl` block that the token is in: its type, and its depth.
        let mut block: Option<(String, usize)> = None;
        let mut at = 0;
        while at < all.len() {
            match all[at] {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    block = block.filter(|(_, outer)| *outer < depth);
                }
                "impl" if block.is_none() && (at == 0 || matches!(all[at - 1], "}" | ";" | "]" | "unsafe")) => {
                    let Some(length) = all[at..].iter().position(|&token| token == "{") else { break };
                    block = type_of(&all[at + 1..at + length]).map(|name| (name, depth));
                    at += length;
                    depth += 1;
                }
                "fn" => {
                    if let Some((name, _)) = block.as_ref().filter(|(_, outer)| outer + 1 == depth) {
                        methods.defined.entry(name.clone()).or_default().insert(all[at + 1].to_string());
                    }
                }
                separator @ ("." | "::") if at > 0 => {
                    let is_call = matches!(all.get(at + 2..), Some(["(", ..] | ["::", "<", ..]));
                    let owner = block.as_ref().map(|(name, _)| name.clone());
                    let receiver = match (separator, all[at - 1], owner) {
                        (".", "self", Some(owner)) | ("::", "Self", Some(owner)) => Some(Receiver::Own(owner)),
                        ("::", ..) => None,
                        (_, name, _) if is_name(name) && (at < 2 || all[at - 2] != ".") => {
                            Some(Receiver::Named(name.to_string()))
                        }
                        _ => Some(Receiver::Other),
                    };
                    if let Some(receiver) = receiver.filter(|_| is_call) {
                        methods.calls.insert((receiver, all[at + 1].to_string()));
                    }
                }
                _ => {}
            }
            at += 1;
        }
        methods
    }
}

/// Edges by method calls: the two files, and the call.
pub fn edges(tree: &Tree) -> Vec<(Name, Name, String)> {
    // By name of the method: the files and types that define it.
    let mut definitions: BTreeMap<&str, Vec<(&Name, &str)>> = BTreeMap::new();
    for (file, content) in &tree.files {
        for (owner, names) in &content.methods.defined {
            for name in names {
                definitions.entry(name).or_default().push((file, owner));
            }
        }
    }
    // Files that define methods of a type with this name, by room.
    let mut files_of: BTreeMap<(&[String], &str), usize> = BTreeMap::new();
    for (file, content) in &tree.files {
        for owner in content.methods.defined.keys() {
            *files_of.entry((room(file), owner)).or_default() += 1;
        }
    }
    let is_declared = |owner: &String| tree.files.values().any(|file| file.defines.contains(owner));
    let mut edges = Vec::new();
    for (file, content) in &tree.files {
        for (receiver, name) in &content.methods.calls {
            let found = definitions.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
            let of_room: Vec<_> = found.iter().filter(|(other, _)| room(other) == room(file)).collect();
            let of_type = |is_it: &dyn Fn(&str) -> bool| -> Vec<&Name> {
                let files: Vec<&Name> =
                    of_room.iter().filter(|(_, owner)| is_it(owner)).map(|(other, _)| *other).collect();
                if files.contains(&file) { Vec::new() } else { files }
            };
            let files = match receiver {
                Receiver::Own(owner) if tree.library.contains(name) && !is_declared(owner) => Vec::new(),
                Receiver::Own(owner) => of_type(&|other| other == owner),
                Receiver::Named(variable) if variable == "this" => {
                    of_type(&|other| content.methods.defined.contains_key(other))
                }
                Receiver::Named(variable) if VARIABLES.iter().any(|(name, _)| name == variable) => {
                    of_type(&|other| VARIABLES.contains(&(variable, other)))
                }
                Receiver::Named(_) | Receiver::Other => match found {
                    [(other, owner)]
                        if *other != file && !STD.contains(&name.as_str()) && !tree.library.contains(name) =>
                    {
                        if files_of[&(room(other), *owner)] > 1 {
                            vec![*other]
                        } else {
                            Vec::new()
                        }
                    }
                    _ => Vec::new(),
                },
            };
            if let [other] = files[..] {
                edges.push((file.clone(), other.clone(), format!("calls {name}()")));
            }
        }
    }
    edges
}
