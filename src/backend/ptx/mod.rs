//! The ptx back end: a native code generator, from a Tile IR module to PTX text.
//!
//! Input: a verified and optimized module of one entry, a target, options. Output: PTX text and the
//! facts that a launch needs. `compile` is the pipeline. Folders, in the order of the stages:
//! 1. `plan`: number of warps, plan search by the cost model (`cost`), rewriting of loops;
//! 2. `layout_inference`: a register layout for each value, and MMA plans (`mma`);
//! 3. `schedule`: warps, pipelines, barriers and steps, as data;
//! 4. `lower`: steps become instructions, by `scalar`, `mma` and the builder of `isa`, with buffers
//!    placed by `smem`;
//! 5. `workarounds`: rewrites of instructions that ptxas compiles to wrong code;
//! 6. `opt`: passes over instructions, and the register pressure;
//! 7. `isa`: text of the instructions.
//!
//! `optimizations` lists the optional transformations, each with a switch.
//!
//! The back end depends on `ir`, `pass` and `layout`, and never on the front end.

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
mod optimizations;
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
pub use optimizations::{Optimization, OptimizationSet};
pub use options::{CompileOptions, PlanSearch};
