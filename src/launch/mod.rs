//! Launch: from a kernel with its arguments to the execution of its code.
//!
//! This folder depends on all others. A launch has these steps:
//! 1. find the device of its arrays,
//! 2. write the specialization key (all inputs of the code) on the stack,
//! 3. look it up among the recently launched kernels of this thread, then among all
//!    ([`specialize`]); if there is none, trace and compile the kernel ([`mod@compile`]),
//! 4. write the parameter words on the stack, order the stream after other uses of the arrays, and
//!    queue the kernel ([`run`]).
//!
//! Step 3 identifies a kernel by its type if the type has size 0: a function item, or a closure
//! without captures. Other kernels (closures with captures, function pointers) are traced at every
//! launch and identified by their trace, so that captured values are never stale.

mod aot;
mod array_expr;
mod checks;
mod compile;
mod exact_mode;
mod file;
mod graph_launch;
mod grid;
mod inspect;
mod launch;
mod options;
mod overrides;
mod parallel;
mod prove;
mod raw_launch;
mod run;
mod specialize;
#[cfg(feature = "_suite")]
mod suite;
#[cfg(feature = "tune")]
mod tune;

#[cfg(feature = "bundle")]
pub use aot::bundle::{Bundle, BundledKernel, Bundler};
pub use aot::compile_all::{CompileSummary, Kernels, Progress, compile_all};
pub use aot::export::{ExportedKernel, ExportedParam, Format, export};
pub use aot::load_module::{LoadedKernel, load};
pub use aot::stored_proof::{StoredProof, proofs_in};
pub use array_expr::random::{Random, RandomElement};
pub use array_expr::{ArrayExpr, FusedExpr, Map, MapWith, Zip};
pub use exact_mode::with_exact_mode;
pub use grid::{Grid, IntoGrid};
pub use inspect::bench::{Measurement, bench};
pub use inspect::compiled_kernel::{CompiledKernel, compile};
pub use inspect::doctor::{CacheCheck, DoctorReport, GpuCheck, doctor};
pub use inspect::remarks::Remarks;
pub use inspect::spills::Spills;
pub use inspect::text::{Inspection, inspect};
pub use launch::{launch, launch_with_outputs};
pub use options::Launch;
#[cfg(feature = "test")]
pub(crate) use overrides::with_overrides;
pub use prove::for_all::prove_for_all;
pub use prove::{Proof, prove};
pub use raw_launch::RawLaunch;
#[cfg(feature = "tune")]
pub use tune::{
    Chosen, Origin, Outcome, Ranges, Record, Records, Trial, TuneKey, TuneStep, Tuner, TuningResult, space,
};
