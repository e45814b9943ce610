//! Items that are public and hidden from the documentation: programs can use them, so they are as
//! sound as all others.

use std::fs;
use std::path::Path;

use crate::source::{is_test, sources};

/// Hidden items of `src/` that every build has: file, beginning, and the user of the item outside
/// of the crate.
const HIDDEN: &[(&str, &str, &str)] = &[
    ("backend/mod.rs", "pub plan: PlanOverride", "measurements of the cost model: hints never change results"),
    ("backend/mod.rs", "pub struct PlanOverride", "the same"),
    ("backend/mod.rs", "pub const fn plan(", "the same"),
    ("kernel/mod.rs", "pub use launch_arg::StoredConstant", "methods of `LaunchArg`, which is sealed"),
    (
        "kernel/mod.rs",
        "pub use kernel_arg::{ArgConversion, Arguments, FromFields}",
        "`impl_kernel_args!`; an `ArgConversion` of a program's own is `own` or made of fields",
    ),
    ("kernel/mod.rs", "pub use kernel_fn::trace_kernel", "tests of traces"),
    ("kernel/mod.rs", "pub use word_buffer::{INLINE_WORDS, WordBuffer}", "methods of `LaunchArg`, which is sealed"),
    ("launch/inspect/plans.rs", "pub struct CostedPlan ", "measurements of the cost model: compiles alone"),
    ("launch/inspect/plans.rs", "pub fn plans<", "the same"),
    ("layout/mod.rs", "pub mod f2_matrix", "maps over F2, which the ptx back end computes with"),
    ("layout/mod.rs", "pub use convert::", "plans of the ptx back end"),
    ("layout/mod.rs", "pub use mma_fragments::{Instruction", "plans of the ptx back end"),
    ("layout/mod.rs", "pub use inverse::Inverse", "maps over F2, which the ptx back end computes with"),
    ("layout/mod.rs", "pub use shared_layout::", "plans of the ptx back end"),
    ("lib.rs", "pub mod backend", "the compiler: tests and benchmarks call it without a launch"),
    ("lib.rs", "pub mod doctest", "examples of the documentation: a launch on the cpu back end"),
    ("lib.rs", "pub mod ir", "the compiler: a verified module has no effect by itself"),
    ("lib.rs", "pub mod pass", "the compiler: a pass preserves the meaning of a verified module"),
    ("lib.rs", "pub use types::float_codec", "encodings of floats, for tests"),
    ("ops/mod.rs", "pub use control::loop_state::Values", "`impl_loop_state!`"),
    ("runtime/mod.rs", "pub mod driver", "the driver interface, whose calls are unsafe"),
    ("sealed.rs", "pub trait Sealed", "supertrait of sealed traits, which programs cannot name"),
    ("tile/mod.rs", "pub use trace_kernel::Tracer", "methods of `LaunchArg`, which is sealed"),
    ("ops/memory/load_store.rs", "pub fn store<", "the error of a store to an array that is read only"),
    ("ops/support/misuse.rs", "pub fn astype<", "the error of a conversion by another name"),
    ("ops/support/misuse.rs", "pub fn to<", "the same"),
    ("runtime/array/array.rs", "pub fn load<", "the error of a load outside of a kernel"),
    ("runtime/array/array.rs", "pub fn store<", "the error of a store outside of a kernel"),
    ("runtime/foreign/cudarc.rs", "pub struct BorrowedArray<", "a sealed trait mentions it; its fields are private"),
];

#[test]
fn hidden_items_are_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !is_test(file)) {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        let text = fs::read_to_string(file).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for at in (0..lines.len()).filter(|&at| lines[at] == "#[doc(hidden)]") {
            let attribute = |line: &&&str| line.starts_with("#[") || line.starts_with("//");
            let item = lines[at..].iter().find(|line| !attribute(line)).unwrap();
            let before = lines[..at].iter().rev().take_while(attribute);
            let after = lines[at..].iter().take_while(attribute);
            // Tests of this crate alone have it: the feature, or a file that is a module by that
            // feature.
            let of_suite = before.chain(after).any(|line| line.contains("_suite")) || name == "launch/suite.rs";
            // Members of traits have no `pub`: a type that cannot be named outside seals these.
            if item.starts_with("pub ") && !of_suite {
                found.push((name.clone(), (*item).to_owned()));
            }
        }
    }
    let known =
        |(name, item): &(String, String)| HIDDEN.iter().any(|(file, start, _)| file == name && item.starts_with(start));
    let new: Vec<_> = found.iter().filter(|item| !known(item)).collect();
    assert!(new.is_empty(), "hidden items that programs can use: {new:?}");
    assert_eq!(found.len(), HIDDEN.len(), "of the table some are gone: {found:?}");
}
