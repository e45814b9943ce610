//! The ptx back end: our own code generator, from a Tile IR module to PTX text.
//!
//! Stages, each a room of its own:
//! 1. `plan` — the form of the module, the number of warps, which of several plans by what their
//!    schedules cost (`cost`);
//! 2. `layout_inference` — a register layout for every tile value, the layouts of memory accesses,
//!    the plans of matrix products;
//! 3. `lower` — ops to instructions, one family a file, on the typed builder of `isa`;
//! 4. `opt` — passes over instructions, and how many blocks the registers allow;
//! 5. `workarounds` — rewrites of instructions that ptxas compiles to wrong code;
//! 6. `isa` — instructions to text.
//!
//! Relies on a verified, optimised module. Knows `ir`, `pass`, `layout`; never the front end.

mod compile;
mod compiled;
mod cost;
mod device_assert;
mod hardware;
mod isa;
mod layout_inference;
mod lower;
mod mma;
mod opt;
mod options;
mod plan;
#[cfg(test)]
mod ptxas_test;
pub mod remarks;
mod scalar;
pub(crate) mod schedule;
mod smem;
pub mod tensor_map;
#[cfg(test)]
pub(crate) mod tests;
mod workarounds;

pub use compile::compile;
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub use compile::rewritten;
pub(crate) use compile::with_plan;
#[cfg(any(test, feature = "_suite"))]
pub(crate) use compile::{Scheduled, with_schedule};
pub use compiled::{Compiled, ParamKind};
pub(crate) use cost::{CostInput, LaunchInfo, weights};
pub use device_assert::{Assertion, NoteField, note_words};
#[cfg(any(test, feature = "_suite"))]
pub(crate) use hardware::WARP_GROUP_WARPS;
pub use isa::emit::global_symbol;
#[cfg(any(test, feature = "_suite"))]
pub(crate) use layout_inference::{ViewShape, contiguous_axis};
#[cfg(any(test, feature = "_suite"))]
pub(crate) use mma::{OperandPlan, Panels};
pub use options::{CompileOptions, PlanSearch};
