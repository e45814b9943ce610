//! The foreign check of Tile IR bytecode: NVIDIA's disassembler and our printer print the same
//! text, and NVIDIA's assembler accepts the bytecode.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

use anyhow::{Context, Result, ensure};
use cutlet::Target;
use cutlet::backend::tileir::{Assembler, read};
use cutlet::ir::{Attr, BlockId, Module, Opcode, Type};

use crate::temp_dir::TemporaryFolder;

/// Targets of the assembled kernels.
pub const TARGETS: [&str; 4] = ["sm_80", "sm_90", "sm_100", "sm_120"];

struct Tools {
    assembler: Assembler,
    disassembler: PathBuf,
}

/// Returns the tools: those of `CUTLET_TILEIRAS` and `CUTLET_TILEIRDISASM`, else those that
/// `scripts/tools` installs, else the assembler that the library finds and the disassembler in its
/// folder.
fn find() -> Option<&'static Tools> {
    static FOUND: LazyLock<Option<Tools>> = LazyLock::new(|| {
        let installed = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin").join(name);
        let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
        let assembler = match named("CUTLET_TILEIRAS") {
            None if installed("tileiras").exists() => Assembler::at(installed("tileiras")),
            _ => Assembler::find().ok()?,
        };
        let beside = assembler.path().with_file_name("tileirdisasm");
        let candidates = named("CUTLET_TILEIRDISASM").into_iter().chain([installed("tileirdisasm"), beside]);
        let disassembler = candidates.into_iter().find(|path| path.exists())?;
        Some(Tools { assembler, disassembler })
    });
    FOUND.as_ref()
}

/// Returns true if the tools exist.
pub fn found() -> bool {
    find().is_some()
}

fn tools() -> Result<&'static Tools> {
    find().context("no tileiras: run scripts/tools, or set CUTLET_TILEIRAS")
}

/// Returns true if cubins are kept, in the disk cache, for a machine with a GPU and without an
/// assembler.
pub fn keeps_cubins() -> bool {
    std::env::var_os("CUTLET_SUITE_KEEP_CUBINS").is_some()
}

/// Returns true if every kernel is assembled for every target.
fn assembles_all() -> bool {
    keeps_cubins() || std::env::var_os("CUTLET_SUITE_ALL_TARGETS").is_some()
}

/// Returns true if every kernel is assembled for at least one target.
fn assembles_each() -> bool {
    std::env::var_os("CUTLET_SUITE_EACH_KERNEL").is_some()
}

/// Returns true if the hash of `what` selects this target, of one in `every` inputs.
fn is_selected(what: &[u8], target: Target, every: usize) -> bool {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    let selected = hasher.finish() % (every * TARGETS.len()) as u64;
    TARGETS.get(selected as usize).is_some_and(|name| target.to_string() == *name)
}

/// Number of tests of which one has its first kernel assembled.
const EVERY: usize = 256;
/// Number of forms of which one is assembled; with `CUTLET_SUITE_EACH_KERNEL`, all of them.
const FORMS_EVERY: usize = 12;

thread_local! {
    /// True until the test of this thread assembles its first kernel.
    static FIRST: Cell<bool> = const { Cell::new(false) };
}

/// Returns the targets for which a test is translated: one before and one since `sm_100`, selected
/// by its name. `CUTLET_SUITE_EACH_KERNEL`, `CUTLET_SUITE_ALL_TARGETS` and kept cubins ask for all.
pub fn targets_of(test: &str) -> impl Iterator<Item = &'static str> {
    let mut hasher = DefaultHasher::new();
    test.hash(&mut hasher);
    let selected = (hasher.finish() % 2) as usize;
    let all = assembles_all() || assembles_each();
    TARGETS.into_iter().enumerate().filter(move |(index, _)| all || index % 2 == selected).map(|(_, target)| target)
}

/// To be called before each test.
pub fn begin_test() {
    FIRST.set(true);
}

/// Disassembles bytecode, and assembles a sample of it. A form is an op with its element types,
/// ranks and attributes, in a loop or branch. One form of twelve is assembled, for one of the
/// targets; other element types of the op have other targets. The first kernel of one test in 256
/// is also assembled, for the selected target. Sizes are a part of the form only for matrix
/// products, whose sizes select the instruction. Equal files are checked once.
///
/// # Errors
/// Returns the difference of the texts, or the messages of the assembler.
pub fn check(bytecode: &[u8], target: Target, assemble: &dyn Fn(&Assembler) -> Result<Vec<u8>>) -> Result<()> {
    static TEXTS: LazyLock<Answers<Vec<u8>>> = LazyLock::new(Default::default);
    static CODE: LazyLock<Answers<(Vec<u8>, Target)>> = LazyLock::new(Default::default);
    static FORMS: LazyLock<Mutex<HashSet<(Target, String)>>> = LazyLock::new(Default::default);
    once(&TEXTS, bytecode.to_vec(), &|| compare_texts(bytecode))?;
    let (first, forms) = (FIRST.replace(false), forms(&read(bytecode)?));
    let mut known = FORMS.lock().unwrap();
    let count = known.len();
    let every = if assembles_each() { 1 } else { FORMS_EVERY };
    let turns = forms.into_iter().filter(|form| is_selected(form.as_bytes(), target, every));
    known.extend(turns.map(|form| (target, form)));
    let new = known.len() > count;
    drop(known);
    let in_turn = match assembles_each() {
        true => is_selected(bytecode, target, 1),
        false => first && is_selected(bytecode, target, EVERY),
    };
    if !(new || in_turn || assembles_all()) {
        return Ok(());
    }
    once(&CODE, (bytecode.to_vec(), target), &|| {
        let cubin = assemble(&tools()?.assembler)
            .with_context(|| read(bytecode).map_or_else(|e| e.to_string(), |m| m.to_string()))?;
        ensure!(cubin.starts_with(b"\x7fELF"), "no ELF file");
        Ok(())
    })
}

type Answers<K> = Mutex<HashMap<K, std::result::Result<(), String>>>;

/// The answer to a question, found the first time.
fn once<K: Hash + Eq>(answers: &Answers<K>, key: K, find: &dyn Fn() -> Result<()>) -> Result<()> {
    if let Some(answer) = answers.lock().unwrap().get(&key) {
        return answer.clone().map_err(anyhow::Error::msg);
    }
    let answer = find().map_err(|error| format!("{error:#}"));
    answers.lock().unwrap().insert(key, answer.clone());
    answer.map_err(anyhow::Error::msg)
}

fn compare_texts(bytecode: &[u8]) -> Result<()> {
    let ours = read(bytecode)?.to_string();
    let folder = TemporaryFolder::new()?;
    let file = folder.path().join("kernel.tilebc");
    std::fs::write(&file, bytecode)?;
    let output = Command::new(&tools()?.disassembler).arg(&file).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tileirdisasm refused the bytecode:\n{said}\n{ours}");
    let theirs = String::from_utf8_lossy(&output.stdout);
    let differing = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
    ensure!(ours == theirs, "the reference disassembler prints another text: {differing:#?}");
    Ok(())
}

/// The ops of a module as texts without sizes and numbers.
fn forms(module: &Module) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    for entry in &module.entries {
        block_forms(module, entry.body, None, &mut forms);
    }
    forms
}

fn block_forms(module: &Module, block: BlockId, around: Option<Opcode>, forms: &mut BTreeSet<String>) {
    for &id in &module.block(block).ops {
        let op = module.op(id);
        let sized = matches!(op.code, Opcode::MmaF | Opcode::MmaI | Opcode::MmaFScaled);
        let mut form = format!("{:?} in {around:?}", op.code);
        for attr in &op.attrs {
            match attr {
                Attr::Value(_) | Attr::Text(_) | Attr::Identities(_) | Attr::Predicate(_) | Attr::Hints(_) => {}
                attr => write!(form, " {attr:?}").expect("a string takes all"),
            }
        }
        for &value in op.operands.iter().chain(&op.results) {
            let kind = match module.ty(value) {
                ty if sized => format!("{ty:?}"),
                ty => kind(module, ty),
            };
            form += &kind;
        }
        forms.insert(form);
        op.regions.iter().for_each(|&region| block_forms(module, region, Some(op.code), forms));
    }
}

/// A type without its sizes.
fn kind(module: &Module, ty: &Type) -> String {
    // Only strides of 1 are known at compile time.
    let array = |view| match module.type_of(view) {
        Type::TensorView { elem, strides, .. } => format!("{elem} {strides:?}"),
        _ => String::new(),
    };
    match ty {
        Type::Tile { elem, shape } => format!(" {elem:?}^{}", shape.len()),
        Type::TensorView { elem, strides, .. } => format!(" array {elem} {strides:?}"),
        Type::PartitionView { view, dim_map, padding, .. } => {
            format!(" tiles {} {dim_map:?} {padding:?}", array(*view))
        }
        Type::StridedView { view, dim_map, padding, .. } => format!(" steps {} {dim_map:?} {padding:?}", array(*view)),
        Type::GatherScatterView { view, sparse_dim, padding, .. } => {
            format!(" rows {} {sparse_dim} {padding:?}", array(*view))
        }
        Type::Token => " token".to_string(),
        other => format!(" {other:?}"),
    }
}
