//! Public items: traits are sealed, or open to implementations of programs, and the documentation
//! states which; types have `Debug`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::source::{is_test, sources};

/// Traits that programs may implement.
const OPEN: &[&str] = &["GraphResource", "IntoGrid", "IntoKernelArg", "Kernel", "LoopState", "Scratch"];

/// Sealed without the supertrait: one implementation covers each type that satisfies the bounds.
const BLANKET: &[&str] = &["ConstantValue"];

/// Returns the names of the public traits, from the list of public items.
fn public_traits(list: &str) -> BTreeSet<&str> {
    list.lines().filter_map(|line| Some(line.split_once(": trait.")?.1)).filter(|name| !name.contains(':')).collect()
}

/// A trait as the source declares it.
struct Declared {
    place: String,
    documentation: String,
    supertraits: Vec<String>,
}

/// Adds the traits of a file.
fn declared(place: &str, text: &str, out: &mut BTreeMap<String, Vec<Declared>>) {
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let line = line.trim_start();
        let Some(rest) = line.strip_prefix("pub trait ").or_else(|| line.strip_prefix("pub unsafe trait ")) else {
            continue;
        };
        let name: String = rest.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
        let above = lines[..at].iter().rev().take_while(|line| !line.is_empty() && **line != "}");
        let documentation = above.filter_map(|line| line.trim_start().strip_prefix("///")).map(str::trim);
        let documentation: Vec<&str> = documentation.collect::<Vec<_>>().into_iter().rev().collect();
        let head = lines[at..].join(" ");
        let head = head.split('{').next().unwrap();
        let bounds = head.split_once(">:").or_else(|| head.split_once(':'));
        let words = bounds.map_or("", |(_, bounds)| bounds).split(|c: char| !c.is_alphanumeric());
        let supertraits = words.map(str::to_owned).collect();
        let documentation = documentation.join(" ");
        let place = place.to_owned();
        out.entry(name).or_default().push(Declared { place, documentation, supertraits });
    }
}

#[test]
fn public_traits_are_sealed_or_open() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(root.join("tests/data/public.txt")).unwrap();
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    let mut traits = BTreeMap::new();
    for file in files.iter().filter(|file| !is_test(file)) {
        let place = file.strip_prefix(root).unwrap().display().to_string();
        declared(&place, &fs::read_to_string(file).unwrap(), &mut traits);
    }
    // Sealed by `Sealed`, or by a sealed supertrait.
    let mut sealed = BTreeSet::from(["Sealed".to_owned()]);
    loop {
        let is_sealed = |declared: &Declared| declared.supertraits.iter().any(|name| sealed.contains(name));
        let more = traits.iter().filter(|(_, all)| all.iter().all(is_sealed)).map(|(name, _)| name.clone());
        let more: Vec<String> = more.filter(|name| !sealed.contains(name)).collect();
        if more.is_empty() {
            break;
        }
        sealed.extend(more);
    }
    let mut faults = Vec::new();
    for name in public_traits(&list) {
        let Some(all) = traits.get(name) else {
            faults.push(format!("`{name}` is declared nowhere in src"));
            continue;
        };
        let (open, blanket) = (OPEN.contains(&name), BLANKET.contains(&name));
        let sentence = if open { "Programs may implement this trait" } else { "This trait is sealed" };
        if open == (blanket || sealed.contains(name)) {
            faults.push(format!("{}: `{name}` is open: {open}; the supertrait differs", all[0].place));
        }
        if !all.iter().any(|declared| declared.documentation.contains(sentence)) {
            faults.push(format!("{}: the documentation of `{name}` lacks \"{sentence}\"", all[0].place));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the public types without `Debug`.
fn types_without_debug(list: &str) -> Vec<&str> {
    let types = list.lines().filter_map(|line| Some(line.split_once(": ")?.1));
    let types: BTreeSet<&str> = types.filter(|item| item.starts_with("struct.") || item.starts_with("enum.")).collect();
    let debug =
        list.lines().filter_map(|line| Some(line.split_once(": impl")?.0).filter(|_| line.contains("Debug for ")));
    let debug: BTreeSet<&str> = debug.collect();
    types.difference(&debug).copied().collect()
}

/// Types of another crate, whose items are not in the list.
const FOREIGN: &[&str] = &["struct.bf16", "struct.f16"];

#[test]
fn public_types_have_debug() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(root.join("tests/data/public.txt")).unwrap();
    assert_eq!(types_without_debug(&list), FOREIGN);
    assert_eq!(types_without_debug("a: struct.X\na: enum.Y\nstruct.X: impl Debug for X\n"), ["enum.Y"]);
}

#[test]
fn supertraits_are_read() {
    let text = "/// One.\n///\n/// This trait is sealed.\npub trait A<T: Copy>: Sealed + Copy {\n}\n\n/// Two.\npub unsafe trait B {}\n\
                pub trait C:\n    Copy\n    + Sealed\n{\n}\n";
    let mut traits = BTreeMap::new();
    declared("a.rs", text, &mut traits);
    assert!(traits["A"][0].supertraits.contains(&"Sealed".to_owned()));
    assert!(traits["A"][0].documentation.contains("This trait is sealed"));
    assert!(!traits["B"][0].documentation.contains("sealed") && traits["B"][0].supertraits == [""]);
    assert!(traits["C"][0].supertraits.contains(&"Sealed".to_owned()));
    assert_eq!(public_traits(".: trait.A\nops: trait.B\ntrait.A: pub trait A\n"), BTreeSet::from(["A", "B"]));
}
