//! No two files of a room need each other, directly or through other files of the room.
//!
//! The needs of a file are its `crate::`, `super::` and `self::` paths, and those that start with a
//! module of its own. Re-exports are followed to the file that defines the name. A re-export alone
//! is no need: the `mod.rs` of a room may name all of its files, and counts only where it holds
//! code.
//!
//! A method call is an edge, too, if the methods of its type are in several files ([`methods`]).

mod methods;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::source::{code_of, is_name, is_test, sources, tokens};
use methods::Methods;

/// The names of a module or item, from the root of the crate on.
type Name = Vec<String>;

/// A name that a `use` imports.
struct Use {
    exported: bool,
    /// As written, without the new name of a renaming; ends with `*` for all names.
    path: Name,
    name: String,
}

/// A source file.
struct File {
    uses: Vec<Use>,
    /// Names of items that it defines.
    defines: BTreeSet<String>,
    /// Its tokens, without `use` and `mod` lines.
    body: Vec<String>,
    methods: Methods,
}

/// Files by name, and the name of the folder that `crate` denotes.
struct Tree {
    files: BTreeMap<Name, File>,
    root: Name,
    /// Names of methods of the library, which a folder outside of `src` calls, too.
    library: BTreeSet<String>,
}

fn name_of(parts: &[&str]) -> Name {
    parts.iter().map(|part| part.to_string()).collect()
}

/// Returns the index of the token that closes the group which begins at `start`.
fn end_of_group(all: &[&str], start: usize) -> usize {
    let mut depth = 0;
    for (at, &token) in all.iter().enumerate().skip(start) {
        match token {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    all.len()
}

/// Returns the types that macros of the file make: the capitalized names in a call of a macro that
/// declares a type with the name of a variable, without those in nested groups.
fn types_of_macros(all: &[&str]) -> BTreeSet<String> {
    let is_type = |w: &[&str]| matches!(w[0], "struct" | "enum" | "trait" | "type") && w[1] == "$";
    let macros = (0..all.len()).filter(|&at| all[at] == "macro_rules" && at + 3 < all.len());
    let declaring = macros.filter(|&at| all[at + 3..end_of_group(all, at + 3)].windows(2).any(is_type));
    let declaring: BTreeSet<&str> = declaring.map(|at| all[at + 2]).collect();
    let mut types = BTreeSet::new();
    for at in 0..all.len().saturating_sub(2) {
        if !declaring.contains(all[at]) || all[at + 1] != "!" || !matches!(all[at + 2], "{" | "(" | "[") {
            continue;
        }
        let (mut inner, end) = (at + 3, end_of_group(all, at + 2));
        while inner < end {
            if matches!(all[inner], "{" | "(" | "[") {
                inner = end_of_group(all, inner);
            } else if all[inner].starts_with(char::is_uppercase) {
                types.insert(all[inner].to_string());
            }
            inner += 1;
        }
    }
    types
}

impl File {
    fn read(text: &str) -> File {
        const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "macro_rules"];
        let code = code_of(text);
        let all = tokens(&code);
        let methods = Methods::read(&all);
        let defines = types_of_macros(&all);
        let mut file = File { uses: Vec::new(), defines, body: Vec::new(), methods };
        let (mut at, mut exported) = (0, false);
        while at < all.len() {
            match all[at] {
                "pub" => {
                    exported = true;
                    at += 1;
                    if all.get(at) == Some(&"(") {
                        at += all[at..].iter().position(|&t| t == ")").unwrap() + 1;
                    }
                    continue;
                }
                // Without captures of an `impl Trait`.
                "use" if all[at + 1] != "<" => at = file.use_tree(&all, at + 1, &[], exported),
                "mod" if all.get(at + 2) == Some(&";") => at += 2,
                word if ITEMS.contains(&word) => {
                    let named = all[at + 1..].iter().find(|t| is_name(t) && **t != "mut" && !ITEMS.contains(t));
                    file.defines.extend(named.map(|name| name.to_string()));
                    at += 1;
                }
                token => {
                    file.body.push(token.to_string());
                    at += 1;
                }
            }
            exported = false;
        }
        file
    }

    /// Parses one branch of a `use`, up to a `,`, `}` or `;`; returns the index of that token.
    fn use_tree(&mut self, all: &[&str], mut at: usize, prefix: &[&str], exported: bool) -> usize {
        let mut path = prefix.to_vec();
        loop {
            match all[at] {
                "{" => {
                    at += 1;
                    while all[at] != "}" {
                        at = self.use_tree(all, at, &path, exported);
                        at += usize::from(all[at] == ",");
                    }
                    return at + 1;
                }
                "::" => at += 1,
                "," | "}" | ";" => break,
                "as" => {
                    self.bring(&path, all[at + 1], exported);
                    return at + 2;
                }
                word => {
                    path.push(word);
                    at += 1;
                }
            }
        }
        if path.last() == Some(&"self") && path.len() > 1 {
            path.pop();
        }
        if let Some(&name) = path.last() {
            self.bring(&path, name, exported);
        }
        at
    }

    fn bring(&mut self, path: &[&str], name: &str, exported: bool) {
        self.uses.push(Use { exported, path: name_of(path), name: name.to_string() });
    }

    fn mentions(&self, name: &str) -> bool {
        self.body.iter().any(|token| token == name)
    }

    /// Names that follow `module::` in the body.
    fn through<'a>(&'a self, module: &'a str) -> impl Iterator<Item = &'a String> {
        let calls = move |w: &&[String]| w[0] == module && w[1] == "::" && is_name(&w[2]);
        self.body.windows(3).filter(calls).map(|w| &w[2])
    }
}

impl Tree {
    /// Reads the files of a folder. Their names begin with `root`.
    fn read(folder: &Path, root: Name) -> Tree {
        let mut paths = Vec::new();
        sources(folder, &mut paths);
        let mut files = BTreeMap::new();
        for path in paths.iter().filter(|path| !is_test(path)) {
            let relative = path.strip_prefix(folder).unwrap().with_extension("");
            let parts = relative.iter().map(|part| part.to_str().unwrap().to_string());
            let mut name: Name = root.iter().cloned().chain(parts).collect();
            if matches!(name.last().unwrap().as_str(), "mod" | "lib" | "main") {
                name.pop();
            }
            files.insert(name, File::read(&fs::read_to_string(path).unwrap()));
        }
        Tree { files, root, library: BTreeSet::new() }
    }

    /// A path in the file `from` as a name; `None` where it leads out of the crate or to something
    /// local.
    fn absolute(&self, from: &Name, path: &[String]) -> Option<Name> {
        let join = |base: &[String], rest: &[String]| Some([base, rest].concat());
        match path.first()?.as_str() {
            "crate" => join(&self.root, &path[1..]),
            "self" => join(from, &path[1..]),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                join(&from[..from.len().checked_sub(up)?], &path[up..])
            }
            first => {
                let child = [from.as_slice(), &[first.to_string()]].concat();
                if self.files.contains_key(&child) { join(from, path) } else { None }
            }
        }
    }

    /// The file that defines a name: itself where the name is a module.
    fn definition(&self, name: &[String], asked: &mut BTreeSet<Name>) -> Option<Name> {
        let length = (0..=name.len()).rev().find(|&length| self.files.contains_key(&name[..length]))?;
        let (module, rest) = name.split_at(length);
        let (file, Some(item)) = (&self.files[module], rest.first()) else { return Some(module.to_vec()) };
        if file.defines.contains(item) || !asked.insert(name.to_vec()) {
            return Some(module.to_vec());
        }
        let module = module.to_vec();
        let follow = |used: &Use, all: bool, asked: &mut BTreeSet<Name>| {
            let path = &used.path[..used.path.len() - usize::from(all)];
            let from = self.absolute(&module, path).filter(|from| !all || self.files.contains_key(from))?;
            let found = self.definition(&[&from, &rest[usize::from(!all)..]].concat(), asked)?;
            // A glob import may lack this name.
            let is_there = self.files[&found].defines.contains(item) || found.last() == Some(item);
            (!all || is_there).then_some(found)
        };
        let direct = file.uses.iter().filter(|used| used.name == *item).find_map(|used| follow(used, false, asked));
        direct.or_else(|| file.uses.iter().filter(|used| used.name == "*").find_map(|used| follow(used, true, asked)))
    }

    /// The files that a file needs, each with a path by which it does.
    fn needs(&self, from: &Name) -> BTreeMap<Name, String> {
        let file = &self.files[from];
        let mut names: Vec<Name> = Vec::new();
        for used in file.uses.iter().filter(|used| !used.exported || file.mentions(&used.name)) {
            if let Some(all) = used.path.strip_suffix(&["*".to_string()]) {
                let Some(module) = self.absolute(from, all) else { continue };
                let Some(other) = self.files.get(&module) else { continue };
                let words = file.body.iter().filter(|word| other.defines.contains(*word));
                names.extend(words.map(|word| [&module[..], std::slice::from_ref(word)].concat()));
                continue;
            }
            let Some(name) = self.absolute(from, &used.path) else { continue };
            match self.files.contains_key(&name) {
                true => {
                    names.extend(file.through(&used.name).map(|item| [&name[..], std::slice::from_ref(item)].concat()))
                }
                false => names.push(name),
            }
        }
        for start in 0..file.body.len() {
            let is_start = start == 0 || file.body[start - 1] != "::";
            let path: Name = file.body[start..].iter().take(12).cloned().collect();
            let length = path
                .iter()
                .enumerate()
                .take_while(|(i, token)| if i % 2 == 0 { is_name(token) } else { *token == "::" });
            let path: Name = path[..length.count()].iter().step_by(2).cloned().collect();
            if is_start && path.len() > 1 {
                names.extend(self.absolute(from, &path));
            }
        }
        let found =
            names.into_iter().filter_map(|name| Some((self.definition(&name, &mut BTreeSet::new())?, name.join("::"))));
        found.filter(|(file, _)| file != from && *file != self.root).collect()
    }
}

/// The first names of a file: files that share them are of one room.
fn room(name: &Name) -> &[String] {
    let length = if name.first().is_some_and(|first| first == "backend") { 2 } else { 1 };
    &name[..length.min(name.len())]
}

/// The files of rooms that need each other in a circle, each circle once, with the paths and calls.
fn circles(tree: &Tree) -> BTreeMap<Vec<String>, String> {
    let files: Vec<&Name> = tree.files.keys().filter(|name| **name != tree.root).collect();
    let mut needs: BTreeMap<&Name, BTreeMap<Name, String>> =
        files.iter().map(|&name| (name, tree.needs(name))).collect();
    for (from, to, call) in methods::edges(tree) {
        if let Some(needs) = needs.get_mut(&from) {
            needs.entry(to).or_insert(call);
        }
    }
    let within = |from: &Name, to: &Name| room(from) == room(to) && needs.contains_key(to);
    let reach = |from: &Name| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(next) = open.pop() {
            for to in needs[&next].keys().filter(|to| within(&next, to)) {
                if reached.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&Name, BTreeSet<Name>> = files.iter().map(|&name| (name, reach(name))).collect();
    let mut circles = BTreeMap::new();
    for (name, all) in &reached {
        let circle: Vec<&Name> =
            files.iter().copied().filter(|&other| all.contains(other) && reached[other].contains(*name)).collect();
        if circle.len() < 2 {
            continue;
        }
        let mut text = String::new();
        for from in &circle {
            for (to, path) in needs[*from].iter().filter(|(to, _)| circle.contains(to)) {
                text += &format!("  {} needs {} ({path})\n", from.join("/"), to.join("/"));
            }
        }
        circles.insert(circle.iter().map(|name| name.join("/")).collect(), text);
    }
    circles
}

#[test]
fn no_two_files_of_a_room_need_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let circles = circles(&Tree::read(&root, Name::new()));
    let texts: Vec<&str> = circles.values().map(String::as_str).collect();
    assert!(texts.is_empty(), "move the common items to a file of their own:\n{}", texts.join("\n"));
}

/// Folders outside of `src`, each with one room.
const OTHER_FOLDERS: &[&str] = &[
    "benches/compare",
    "benches/compare/ours",
    "benches/forms",
    "benches/kernels",
    "benches/launch",
    "benches/schedules",
    "integrations/candle/src",
    "integrations/criterion/src",
    "integrations/nccl/src",
    "kernels/benches/kernels",
    "kernels/benches/ports",
    "kernels/src",
    "models/src",
];

/// Returns the names of the public methods of the library.
fn library_methods() -> BTreeSet<String> {
    let list = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/public.txt")).unwrap();
    let names = list.lines().filter_map(|line| line.split_once("fn ")?.1.split(['(', '<']).next());
    names.map(str::to_owned).collect()
}

#[test]
fn no_two_files_of_another_folder_need_each_other() {
    let library = library_methods();
    assert!(library.contains("reshape") && library.contains("launch"), "{library:?}");
    for folder in OTHER_FOLDERS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let circles = circles(&Tree { library: library.clone(), ..Tree::read(&path, name_of(&[folder])) });
        let found: Vec<&str> = circles.values().map(|text| text.as_str()).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

/// Files of the ptx back end that need nothing of it.
const PTX_TABLES: &[&str] = &["hardware", "optimizations"];

/// Folders of the ptx back end, each with the folders that it may use, in addition to
/// [`PTX_TABLES`].
const PTX_ROOMS: &[(&str, &[&str])] = &[
    ("isa", &[]),
    ("smem", &["tensor_map"]),
    ("register_pressure", &["isa"]),
    ("mul_wide", &["isa"]),
    ("scalar", &["isa"]),
    // A model of its instructions runs functions.
    ("mma", &["isa", "scalar"]),
    ("layout_inference", &["plan/extract_groups", "mma"]),
    // Decisions before instruction selection.
    ("schedule", &["layout_inference", "mma", "options", "plan/num_warps", "smem", "tensor_map"]),
    // Costs of these decisions.
    ("cost", &["layout_inference", "mma", "plan/num_warps", "schedule"]),
    // It selects and schedules, and knows neither the lowering nor instructions.
    ("plan", &["cost", "layout_inference", "mma", "options", "schedule", "smem"]),
];

#[test]
fn rooms_of_the_ptx_back_end_have_permitted_dependencies() {
    let tree = Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), Name::new());
    let mut faults = Vec::new();
    for (room, allowed) in PTX_ROOMS {
        let within = |file: &Name, room: &str| {
            let path: Vec<&str> = ["backend", "ptx"].into_iter().chain(room.split('/')).collect();
            file.starts_with(&name_of(&path))
        };
        let files: Vec<&Name> = tree.files.keys().filter(|file| within(file, room)).collect();
        assert!(!files.is_empty(), "no room {room}");
        for file in files {
            let needs =
                tree.needs(file).into_iter().filter(|(other, _)| other.starts_with(&name_of(&["backend", "ptx"])));
            let unknown = needs.filter(|(other, _)| {
                !within(other, room) && !PTX_TABLES.iter().chain(*allowed).any(|known| within(other, known))
            });
            faults
                .extend(unknown.map(|(other, path)| format!("{} needs {} ({path})", file.join("/"), other.join("/"))));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Folders of the schedule, each with those of the others that it may need; `build` and
/// `layout_dump` may need all.
const SCHEDULE_ROOMS: &[(&str, &[&str])] = &[
    ("ir", &[]),
    ("analysis", &["ir"]),
    ("requirements", &["ir", "analysis"]),
    ("copies", &["ir", "analysis", "requirements"]),
    ("strip_mine", &["ir", "analysis"]),
    ("store", &["ir", "analysis"]),
    // A stage is reused for the staging buffers of stores.
    ("warp_specialize", &["ir", "analysis", "copies", "store"]),
    ("pipeline", &["ir", "analysis", "requirements", "copies", "strip_mine", "store", "warp_specialize"]),
    ("sub_steps", &["ir", "analysis", "requirements", "copies", "strip_mine", "store", "warp_specialize", "pipeline"]),
    (
        "verify",
        &[
            "ir",
            "analysis",
            "requirements",
            "copies",
            "strip_mine",
            "store",
            "warp_specialize",
            "pipeline",
            "sub_steps",
        ],
    ),
];

/// Folders of `lower`, as above. Files of `lower` itself may need all folders, except those of the
/// first row.
const LOWER_ROOMS: &[(&str, &[&str])] = &[
    ("state", &["loop_counter", "named_barriers"]),
    ("memory", &["loop_counter", "named_barriers", "state"]),
    ("async_ops", &["loop_counter", "named_barriers", "state", "memory"]),
    ("compute", &["loop_counter", "named_barriers", "state", "memory", "async_ops"]),
];

/// Folders of `layout_inference`, as above. Files of `layout_inference` itself may need all
/// folders.
const LAYOUT_ROOMS: &[(&str, &[&str])] = &[
    ("analysis", &[]),
    ("layouts", &[]),
    ("state", &["analysis", "layouts"]),
    // One file per op family; `dispatch` alone calls them.
    ("ops", &["analysis", "layouts", "state"]),
];

/// Edges that leave the order of the folders in `backend/ptx/<name>`, by paths or calls of methods.
fn layer_faults(name: &str, rooms: &[(&str, &[&str])]) -> Vec<String> {
    let tree = Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), Name::new());
    let folder = name_of(&["backend", "ptx", name]);
    let calls = methods::edges(&tree);
    let mut faults = Vec::new();
    for (room, allowed) in rooms {
        let within = |file: &Name, room: &str| file.starts_with(&folder) && file.get(3).is_some_and(|f| f == room);
        let files: Vec<&Name> = tree.files.keys().filter(|file| within(file, room)).collect();
        assert!(!files.is_empty(), "no folder {room}");
        for file in files {
            let paths = tree.needs(file).into_iter();
            let calls = calls.iter().filter(|(from, ..)| from == file).map(|(_, to, call)| (to.clone(), call.clone()));
            let needs = paths.chain(calls).filter(|(other, _)| other.starts_with(&folder) && other.len() > 3);
            let unknown =
                needs.filter(|(other, _)| !within(other, room) && !allowed.iter().any(|known| within(other, known)));
            faults.extend(unknown.map(|(other, why)| format!("{} needs {} ({why})", file.join("/"), other.join("/"))));
        }
    }
    let of_folder = tree.files.keys().filter(|file| file.starts_with(&folder) && file.len() > 4);
    let folders: BTreeSet<&str> = of_folder.map(|file| file[3].as_str()).collect();
    assert_eq!(folders, rooms.iter().map(|(folder, _)| *folder).collect(), "folders of the table");
    faults
}

#[test]
fn schedule_folders_are_layered() {
    let faults = layer_faults("schedule", SCHEDULE_ROOMS);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn lower_folders_are_layered() {
    let faults = layer_faults("lower", LOWER_ROOMS);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn layout_inference_folders_are_layered() {
    let faults = layer_faults("layout_inference", LAYOUT_ROOMS);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn only_the_dispatch_calls_op_families_of_layout_inference() {
    let tree = Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), Name::new());
    let folder = name_of(&["backend", "ptx", "layout_inference"]);
    let families = [&folder[..], &name_of(&["ops"])].concat();
    let dispatch = [&folder[..], &name_of(&["dispatch"])].concat();
    let calls = methods::edges(&tree);
    let into = calls.iter().filter(|(_, to, _)| to.starts_with(&families) && *to != families);
    let other: Vec<_> = into.filter(|(from, ..)| *from != dispatch).collect();
    assert!(other.is_empty(), "{other:?}");
}

#[test]
fn circles_are_found() {
    let tree = |files: &[(&str, &str)]| {
        let file = |&(name, text): &(&str, &str)| (name_of(&name.split('/').collect::<Vec<_>>()), File::read(text));
        Tree { files: files.iter().map(file).collect(), root: Name::new(), library: BTreeSet::new() }
    };
    let found = |files: &[(&str, &str)]| circles(&tree(files)).len();
    let facade = ("room", "mod a;\nmod b;\npub use a::A;\npub use b::*;");
    // Through re-exports of the room, which itself needs no other room.
    assert_eq!(found(&[facade, ("room/a", "use super::B;\npub struct A(B);"), ("room/b", "pub struct B;")]), 0);
    assert_eq!(
        found(&[facade, ("room/a", "use super::B;\npub struct A(B);"), ("room/b", "pub struct B(crate::room::A);")]),
        1
    );
    // A room that holds code.
    let code = ("room", "mod a;\npub struct Held;\nfn f() { a::go() }");
    assert_eq!(found(&[code, ("room/a", "use super::Held;\npub fn go() -> Held { todo!() }")]), 1);
    assert_eq!(found(&[code, ("room/a", "pub fn go() {}")]), 0);
    // By types that a macro makes.
    let handles = |made: &str| {
        let text = format!(
            "use super::b::B;\nmacro_rules! handle {{ ($n:ident) => {{ pub struct $n(u32); }} }}\nhandle! {{ #[d] A }}\npub struct M({made});"
        );
        found(&[
            ("room", "mod a;\nmod b;\npub use a::*;"),
            ("room/a", &text),
            ("room/b", "use super::A;\npub struct B(A);"),
        ])
    };
    assert_eq!(handles("B"), 1);
    // Over three files, by an imported module, and in a group.
    let three = [
        ("room/a", "use super::b;\nfn a() { b::b() }"),
        ("room/b", "use super::{c::{self, C}};\npub fn b() -> C { c::c() }"),
    ];
    assert_eq!(found(&[three[0], three[1], ("room/c", "pub struct C;\npub fn c() -> C { super::a::a() }")]), 1);
    assert_eq!(found(&[three[0], three[1], ("room/c", "pub struct C;\npub fn c() -> C { C }")]), 0);
    // By calls of methods of one type in several files; `std` has `get()`, too.
    let ty = ("room/ty", "pub struct Machine;");
    let calls = |call: &str| {
        let a = format!("use super::ty::Machine;\nimpl Machine {{ pub fn a(&self) {{ {call} }} }}");
        let b = "use super::ty::Machine;\nimpl Machine { pub fn b(&self) { self.a() } pub fn get(&self) { self.a() } }";
        found(&[ty, ("room/a", &a), ("room/b", b)])
    };
    for call in ["self.b()", "self.get()", "Self::b(self)", "machine.b()", "machine.get()", "this.b()", "x.y.b()"] {
        assert_eq!(calls(call), 1, "{call}");
    }
    for call in ["self.c()", "self.x.get()", "x.get()", "self.b", "b(self)"] {
        assert_eq!(calls(call), 0, "{call}");
    }
    // Names that only tests need.
    assert_eq!(
        found(&[
            ("room/a", "use super::b::B;\npub struct A(B);"),
            ("room/b", "pub struct B;\n#[cfg(test)]\nmod tests { use super::super::a::A; }")
        ]),
        0
    );
}
