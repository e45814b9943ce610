//! Schedules: warp-level programs between layout inference and instruction selection.
//!
//! A [`Schedule`] has a partition for each program of the warps, and a program is a sequence of
//! steps. A step names an op of the module and its method of execution (`ir/program`). `lower`
//! emits the instructions of each step.
//!
//! Folders, each of which uses only those above it (test `schedule_folders_are_layered`):
//! * `ir` — the schedule as data, its text, and the data of plans;
//! * `analysis` — analyses of a kernel;
//! * `requirements` — operands, exchanges and barriers that the lowering of an op needs;
//! * `strip_mine` — sequences of elementwise ops that are computed some registers at a time;
//! * `store` — TMA stores, privatized atomics;
//! * `warp_specialize` — loads of a producer, pipelines, ping-pong, data partitioning;
//! * `pipeline` — copies, MMAs and waits in flight over iterations;
//! * `sub_steps` — sub-steps of every step: conversions, shared-memory buffers, barriers;
//! * `verify` — the verifier. It has its own analyses of hazards, pipelines and waits. It takes the
//!   kind and order of the sub-steps of each step from a second run of `sub_steps`.
//!
//! `build` runs the passes in order; `layout_dump` prints layouts.
//!
//! The folder uses `ir`, `layout`, the analyses of `pass`, layouts and plans of the back end. It
//! does not use instructions or the builder of PTX.

mod analysis;
mod build;
mod copies;
mod ir;
mod layout_dump;
mod pipeline;
mod requirements;
mod store;
mod strip_mine;
mod sub_steps;
mod verify;
mod warp_specialize;

#[cfg(any(test, feature = "_suite"))]
pub use crate::backend::ptx::smem::allocation::Buffer;
#[cfg(any(test, feature = "_suite"))]
pub use analysis::deferred_values::is_computed_at_use;
pub use analysis::kernel_info::KernelInfo;
#[cfg(any(test, feature = "_suite"))]
pub use analysis::memory_effects::MemoryEffect;
pub use analysis::ragged_slices::RaggedSlice;
pub use analysis::register_budget::PRODUCER_REGISTERS;
pub use analysis::smem_budget::PRINTED_PART;
pub use analysis::step_uses::AccumulatorSource;
pub use analysis::tensor_maps::{box_order, whole_indices};
pub use build::FIRST_COMPLETE;
pub use ir::cp_async::{CpAsync, CpAsyncPlan};
pub use ir::header::without_deferred;
pub use ir::load_path::LoadPath;
#[cfg(any(test, feature = "_suite"))]
pub use ir::pipelines::Channel;
pub use ir::pipelines::{
    ClusterMulticast, LoopNesting, PINGPONG_GROUPS, PingPong, PipelineDesc, StagesPerIteration, TmaBox, TmaLoad,
    WarpSpecialization,
};
pub use ir::privatized_array::{BINS, PrivatizedArray, REPLICATED_BINS};
#[cfg(any(test, feature = "_suite"))]
pub use ir::program::CarriedMma;
pub use ir::program::{
    ConsumerWait, For, HoistedOperand, LayoutId, Loop, MmaGroup, MmaIssue, MmaWait, OrderBarrierKind, OrderPoint,
    Schedule, SeqId, Step, StripMine, StripRole, WarpRole,
};
pub use ir::rejected_loads::RejectedLoads;
pub use ir::sub_step::{ConversionPlan, ConvertLayout, SubStep, operand_reads};
pub use ir::tma_store::{StagingBuffer, StoreSplit, TmaStore};
pub use pipeline::mma_order::ORDERED_GROUPS;
pub use requirements::conversion_cache::ConversionCache;
pub use requirements::print::{PrintArg, PrintSegment};
pub use requirements::reduction_steps::{LayoutBases, ReductionStep};
pub use requirements::requirement::{COPY_PADDING_WORDS, ExchangeRows, Requirement};
pub use store::implied_mask::Comparison;
pub use store::privatize::array_and_offsets;
pub use warp_specialize::cluster_multicast::CLUSTER_SIZE;

#[cfg(test)]
pub use ir::sub_step::ConversionKind;
