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

mod ahead;
mod bench;
mod bundle;
mod call;
mod choices;
mod code;
mod compile;
mod compiled;
mod doctor;
mod dump;
mod estimate;
mod executable;
mod export;
mod failure;
mod file;
mod global;
mod grid;
mod hints;
mod loaded;
mod parallel;
mod params;
mod profile;
mod promise;
mod ptx;
mod random;
mod raw;
mod recorded;
mod remarks;
mod report;
mod require;
mod roofline;
mod run;
mod settle;
mod source;
mod specialise;
#[cfg(feature = "_suite")]
mod suite;
mod tensor_map;
mod tileir;
mod tune;
mod ways;
mod whole;
mod work;

pub use ahead::{CompileSummary, Kernels, Progress, compile_all};
pub use bench::{Measurement, bench};
pub use bundle::{Bundle, BundledKernel, Bundler};
pub use call::{launch, launch_with_outputs};
pub use choices::Launch;
pub use code::{Inspection, inspect};
pub use compiled::{CompiledKernel, compile};
pub use doctor::{CacheCheck, DoctorReport, GpuCheck, doctor};
pub use export::{ExportedKernel, ExportedParam, Format, export};
pub use grid::Grid;
pub use loaded::{LoadedKernel, load};
pub use random::{Random, RandomElement};
pub use raw::RawLaunch;
pub use remarks::Remarks;
pub use tune::{
    Chosen, Origin, Outcome, Ranges, Record, Records, Trial, TuneKey, TuneStep, Tuner, TuningResult, space,
};
pub use whole::{ArrayExpr, FusedExpr, Map, MapWith, Zip};
