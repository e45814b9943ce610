//! Launching: from a kernel with its arguments to running code, by the shortest way that is valid.
//!
//! The only room that sees all others. A launch
//! 1. finds the device of its arrays,
//! 2. writes the specialisation key (what the code depends on) on the stack,
//! 3. looks it up among the kernels that this thread launched lately, then among all ([`specialise`]);
//!    only when there is none is the kernel traced and compiled ([`mod@compile`]),
//! 4. writes the parameter words on the stack, orders the stream behind other uses of the arrays, and
//!    queues the kernel ([`run`]).
//!
//! Step 3 knows a kernel by its type, if the type has size 0: a function item, a closure that captures
//! nothing. Other kernels (closures with captures, function pointers) are traced at every launch and
//! known by their trace, so that captured values are never stale.

mod aot;
mod array_expr;
mod compile;
mod file;
mod graph_launch;
mod grid;
mod inspect;
mod launch;
mod options;
mod parallel;
mod raw_launch;
mod run;
mod specialize;
#[cfg(feature = "_suite")]
mod suite;
mod tune;

pub use aot::bundle::{Bundle, BundledKernel, Bundler};
pub use aot::compile_all::{CompileSummary, Kernels, Progress, compile_all};
pub use aot::export::{ExportedKernel, ExportedParam, Format, export};
pub use aot::load_module::{LoadedKernel, load};
pub use array_expr::random::{Random, RandomElement};
pub use array_expr::{ArrayExpr, FusedExpr, Map, MapWith, Zip};
pub use grid::Grid;
pub use inspect::bench::{Measurement, bench};
pub use inspect::compiled_kernel::{CompiledKernel, compile};
pub use inspect::doctor::{CacheCheck, DoctorReport, GpuCheck, doctor};
pub use inspect::remarks::Remarks;
pub use inspect::text::{Inspection, inspect};
pub use launch::{launch, launch_with_outputs};
pub use options::Launch;
pub use raw_launch::RawLaunch;
pub use tune::{
    Chosen, Origin, Outcome, Ranges, Record, Records, Trial, TuneKey, TuneStep, Tuner, TuningResult, space,
};
