//! The ptx back end: our own code generator, from a Tile IR module to PTX text.
//!
//! Stages, each a room of its own:
//! 1. `choose` — which of several plans, by what their schedules cost (`cost`); `plan` — how many warps a tile block has;
//! 2. `infer` — a register layout for every tile value, the layouts of memory accesses, the plans of
//!    matrix products;
//! 3. `lower` — ops to instructions, one family a file, on the typed builder;
//! 4. `pressure` — how many blocks the registers allow;
//! 5. `workarounds` — rewrites of instructions that ptxas compiles to wrong code;
//! 6. `emit` — instructions to text.
//!
//! Relies on a verified, optimised module. Knows `ir`, `pass`, `layout`; never the front end.

mod apart;
#[cfg(test)]
mod assemble;
mod assertion;
mod boxed;
#[allow(dead_code)]
mod builder;
mod choose;
#[allow(dead_code)]
mod cost;
#[allow(dead_code)]
mod emit;
mod form;
mod infer;
#[allow(dead_code)]
mod inst;
mod lower;
#[allow(dead_code)]
mod mma;
mod options;
mod plan;
mod pressure;
mod reload;
pub mod remarks;
#[allow(dead_code)]
mod scalar;
pub(crate) mod schedule;
mod shared;
mod source;
mod spelling;
pub mod tensor_map;
#[cfg(test)]
pub(crate) mod tests;
mod whole_product;
mod workarounds;

pub use assertion::{Assertion, NoteField, note_words};
pub(crate) use cost::{Launched, Subject, weights};
pub use emit::global_symbol;
#[cfg(any(test, feature = "_suite"))]
pub(crate) use infer::{ViewShape, contiguous_axis};
#[cfg(any(test, feature = "_suite"))]
pub(crate) use mma::{OperandPlan, Panels};
pub use options::{Choice, CompileOptions};
#[cfg(any(test, feature = "_suite"))]
pub(crate) use plan::GROUP_WARPS;

use crate::error::{Diagnostic, Error, Result};
use crate::ir::{Entry, Module};
use crate::pass;
use crate::target::Target;
use form::{build_with, in_the_end};
use remarks::CodeRemarks;
use tensor_map::TensorMap;

/// Where the bytes of one kernel parameter come from at launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Entry parameter `index`, `bytes` wide.
    Word {
        /// Position among the entry's parameters.
        index: u32,
        /// Width in bytes: 1, 2, 4 or 8.
        bytes: u32,
    },
    /// The address of the note of a failed assertion (see [`Assertion`]): 8 bytes.
    Failure,
    /// A tensor map, made at each launch: 128 bytes, aligned to 64.
    TensorMap(TensorMap),
}

/// A kernel as PTX text, and what a launch has to know about it.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// PTX of one entry.
    pub text: String,
    /// Name of the entry in the text.
    pub entry: String,
    /// Threads of a tile block.
    pub threads: u32,
    /// Tile blocks for which the assembler is to save registers, so that they fit on a multiprocessor.
    pub min_blocks: u32,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Tile blocks of a cluster (1: none).
    pub cluster: u32,
    /// Kernel parameters in order.
    pub params: Vec<ParamKind>,
    /// Its assertions, by their numbers in a note.
    pub assertions: Vec<Assertion>,
    /// The register layouts, as text for people.
    pub layout: String,
    /// What the threads do, step by step, as text for people, if it was wanted.
    pub schedule: String,
    /// What became of the kernel, for people.
    pub remarks: CodeRemarks,
}

/// Compiles the only entry of a verified and optimised module.
///
/// # Errors
/// [`Error::Unsupported`] names each op that cannot be lowered for this target, at the user's place.
pub fn compile(module: &Module, target: Target, options: &CompileOptions) -> Result<Compiled> {
    let [entry] = &module.entries[..] else {
        let count = module.entries.len();
        return Err(Error::Unsupported(vec![Diagnostic::new(
            format!("a module of one entry is needed, not of {count}"),
            None,
        )]));
    };
    let bare = pass::strip_inline_ptx_semantics(module);
    let (module, entry) = bare.as_ref().map_or((module, entry), |module| (module, &module.entries[0]));
    let turned = pass::expand_bit_reverse(module);
    let (module, entry) = turned.as_ref().map_or((module, entry), |module| (module, &module.entries[0]));
    let made = in_the_end(module, entry, (target, options), |module, entry| {
        build(module, entry, target, options).or_else(|problems| {
            // Bands are of warps with roles.
            if !options.tma || pass::data_partition::count(module, entry.body) > 1 {
                return Err(Error::Unsupported(problems));
            }
            // What the copy engine and warps with roles cannot do, threads that all do the same perhaps can.
            let plain = CompileOptions { tma: false, ..*options };
            let mut compiled = build(module, entry, target, &plain).map_err(Error::Unsupported)?;
            compiled.remarks.plain = problems.first().map(ToString::to_string);
            Ok(compiled)
        })
    });
    made.map(|(mut compiled, why)| {
        compiled.remarks.whole = why;
        compiled
    })
}

/// Shows `look` the plan that [`compile`] generates code from, with what is known of a launch, to be costed; no code is made.
///
/// # Errors
/// As [`compile`], of what is found when a kernel is planned.
pub(crate) fn with_plan<T>(
    module: &Module,
    target: Target,
    options: &CompileOptions,
    launched: Launched<'_>,
    look: &mut dyn FnMut(&Subject<'_, '_>) -> T,
) -> Result<T> {
    let bare = pass::strip_inline_ptx_semantics(module);
    let turned = pass::expand_bit_reverse(bare.as_ref().unwrap_or(module));
    let module = turned.as_ref().or(bare.as_ref()).unwrap_or(module);
    let Some(entry) = module.entries.first() else { return Err(Error::Unsupported(Vec::new())) };
    let mut plan = |module: &Module, entry: &Entry, options: &CompileOptions| {
        let options = &choose::choose(module, entry, target, options).options;
        build_with(module, entry, target, options, &mut |module, entry, inference| {
            let lowering = lower::planned(module, entry, inference, options);
            if !lowering.problems().is_empty() {
                return Err(lowering.problems().to_vec());
            }
            let (context, schedule, blocks) = (lowering.context(), lowering.schedule(), lowering.blocks(entry.body));
            Ok(look(&Subject { context, body: entry.body, schedule, blocks, launched }))
        })
    };
    let planned = in_the_end(module, entry, (target, options), |module, entry| {
        let plain = CompileOptions { tma: false, ..*options };
        let planned = match plan(module, entry, options) {
            Err(_) if options.tma && pass::data_partition::count(module, entry.body) == 1 => {
                plan(module, entry, &plain)
            }
            planned => planned,
        };
        planned.map_err(Error::Unsupported)
    });
    planned.map(|(planned, _)| planned)
}

/// A schedule, and what it is of.
#[cfg(any(test, feature = "_suite"))]
pub(crate) struct Scheduled<'a> {
    /// The kernel as it is lowered.
    pub context: &'a schedule::KernelInfo<'a>,
    /// Its entry.
    pub body: crate::ir::BlockId,
    pub schedule: &'a schedule::Schedule,
    /// The maps that it takes.
    pub maps: Vec<TensorMap>,
}

/// Shows `look` the schedule that [`compile`] generates code from; but lines of PTX keep their meanings, and none are put in place of
/// other ops: what the steps do is in the module.
///
/// # Errors
/// As [`compile`].
#[cfg(any(test, feature = "_suite"))]
pub(crate) fn with_schedule<T>(
    module: &Module,
    target: Target,
    options: &CompileOptions,
    look: &mut dyn FnMut(&Scheduled<'_>) -> T,
) -> Result<T> {
    let mut plan = |module: &Module, entry: &Entry, options: &CompileOptions| {
        let options = &choose::choose(module, entry, target, options).options;
        build_with(module, entry, target, options, &mut |module, entry, inference| {
            let lowering = lower::lowered(module, entry, inference, "kernel", options);
            if !lowering.problems().is_empty() {
                return Err(lowering.problems().to_vec());
            }
            let (context, maps) = (lowering.context(), lowering.maps());
            Ok(look(&Scheduled { context, body: entry.body, schedule: lowering.schedule(), maps }))
        })
    };
    let Some(entry) = module.entries.first() else { return Err(Error::Unsupported(Vec::new())) };
    let planned = in_the_end(module, entry, (target, options), |module, entry| {
        let plain = CompileOptions { tma: false, ..*options };
        let planned = match plan(module, entry, options) {
            Err(_) if options.tma && pass::data_partition::count(module, entry.body) == 1 => {
                plan(module, entry, &plain)
            }
            planned => planned,
        };
        planned.map_err(Error::Unsupported)
    });
    planned.map(|(planned, _)| planned)
}

/// What an optimised module may become before instructions are chosen for it: every rewriting that there is, wherever it
/// can be done. Means the same; for tests.
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub fn rewritten(module: &Module) -> Module {
    let mut module = pass::expand_scaled_mma(module, false).unwrap_or_else(|| module.clone());
    if let Ok(Some(cut)) = pass::split_extents(&module, true) {
        module = cut;
    }
    if let Some(reloaded) = reload::reloaded(&module, module.entries[0].body, 1) {
        module = reloaded;
    }
    pass::pipeline_dependent_mma(&mut module, &|_| true);
    pass::optimize(&mut module);
    module
}

fn build(
    module: &Module,
    entry: &Entry,
    target: Target,
    options: &CompileOptions,
) -> std::result::Result<Compiled, Vec<Diagnostic>> {
    let name = symbol(&entry.name);
    let build = |options: &CompileOptions| {
        build_with(module, entry, target, options, &mut |module, entry, inference| {
            lower::lower(module, entry, inference, &name, options)
        })
    };
    let choice = choose::choose(module, entry, target, options);
    let mut built = build(&choice.options);
    let mut by_threads = options.tma && !choice.options.tma;
    if built.is_err() && choice.options != *options {
        built = build(options);
        by_threads = false;
    }
    built.map(|mut compiled| {
        if by_threads {
            compiled.remarks.plain = Some("by the cost model copies by threads take less time".to_owned());
        }
        compiled.remarks.considered = choice.considered;
        compiled
    })
}

/// A PTX identifier made from a kernel's name.
fn symbol(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if plain.starts_with(|c: char| c.is_ascii_alphabetic()) { plain } else { format!("kernel_{plain}") }
}
