//! The ptx back end: a native code generator, from a Tile IR module to PTX text.
//!
//! Input: a verified and optimized module of one entry, a target, options. Output: PTX text and the
//! properties that a launch needs. `compile` is the pipeline. Folders, in the order of the stages:
//! 1. `plan`: number of warps, plan search by the cost model (`cost`), rewriting of loops;
//! 2. `layout_inference`: a register layout for each value, and MMA plans (`mma`);
//! 3. `schedule`: warps, pipelines, barriers and steps, as data;
//! 4. `lower`: steps become instructions, by `scalar`, `mma` and the builder of `isa`, with buffers
//!    placed by `smem`;
//! 5. `workarounds`: rewrites of instructions that ptxas compiles to wrong code;
//! 6. `register_pressure`: the number of registers of a thread, and of CTAs on an SM;
//! 7. `isa`: text of the instructions.
//!
//! `optimizations` lists the optional transformations, each with a switch.
//!
//! The back end depends on `ir`, `pass` and `layout`, and never on the front end.
//!
//! # Index
//!
//! | subject | decision | emission | verification |
//! |---|---|---|---|
//! | `wgmma.wait_group`, MMAs in flight | `schedule/pipeline/mma_waits.rs`, `schedule/pipeline/mma_carry.rs` | `lower/state/mma_queue.rs`; redundant waits are removed by `schedule/sub_steps/walk.rs` | `schedule/verify/async_order.rs` |
//! | `bar.sync` (`barrier.cta.sync`) | `schedule/sub_steps/membar.rs`, `schedule/sub_steps/fulfil.rs`, `schedule/sub_steps/global_hazards.rs` | `lower/state/sub_steps.rs` | `schedule/verify/barriers.rs` |
//! | warp specialization | `schedule/warp_specialize/plan.rs`; rejected loads: `schedule/ir/rejected_loads.rs` | `lower/partitions.rs` | `schedule/verify/program.rs` |
//! | stages of a TMA pipeline, mbarriers | `schedule/warp_specialize/stage_count.rs` | `lower/async_ops/tma_pipeline.rs`, `lower/state/pipeline.rs` | `schedule/verify/stage_layout.rs` |
//! | tensor maps, `cp.async.bulk.tensor` | `schedule/analysis/tensor_maps.rs` | `lower/async_ops/tma_coords.rs` | `schedule/verify/stage_layout.rs` |
//! | `cp.async`, multistage copies | `schedule/pipeline/cp_async.rs` | `lower/async_ops/cp_async.rs` | `schedule/verify/steps.rs` |
//! | ping-pong | `schedule/warp_specialize/pingpong.rs`, `schedule/build.rs` | `lower/async_ops/pingpong.rs`, `lower/state/order_barrier.rs` | `schedule/verify/pingpong.rs` |
//! | order of MMAs and exponentials of groups | `schedule/pipeline/mma_order.rs`, `schedule/pipeline/exp_order.rs` | `lower/state/order_barrier.rs` | `schedule/verify/order_barriers.rs` |
//! | clusters, multicast | `schedule/warp_specialize/cluster_multicast.rs` | `lower/async_ops/cluster_multicast.rs` | `schedule/analysis/cta_uniformity.rs` |
//! | `setmaxnreg` | `schedule/analysis/register_budget.rs` | `lower/partitions.rs` | |
//! | `.minnctapersm`, register pressure, spills | `register_pressure.rs`, `schedule/strip_mine/pressure.rs`, `plan/rematerialize.rs` | `lower/driver.rs` | |
//! | instruction of an MMA | `mma/request.rs`, `mma/wgmma.rs` | `mma/wgmma.rs` | `schedule/verify/mma_partition.rs` |
//! | MMA operand in registers or shared memory | `schedule/analysis/smem_budget.rs`, `plan/register_operands.rs` | `lower/compute/mma.rs` | |
//! | swizzle, matrix descriptor | `mma/smem_descriptor.rs`, `smem/tma_box.rs`, `layout/shared_layout.rs` | `mma/smem_descriptor.rs` | |
//! | layout conversion | `layout/convert/mod.rs` | `lower/state/convert_layout.rs` | |
//! | coalescing, vector width | `layout_inference/analysis/view_shape.rs`, `layout_inference/analysis/axis_info.rs` | `lower/state/vector_access.rs` | |
//! | bounds, masks | `lower/memory/tile_bounds.rs` | `lower/memory/view_access.rs` | |
//! | padding | `lower/memory/view_access.rs`; by TMA: `schedule/analysis/tensor_maps.rs` | `lower/memory/view_load_store.rs`, `lower/state/vector_access.rs` | |
//! | atomics, privatization | `schedule/store/privatize.rs` | `lower/memory/atomic.rs`, `lower/memory/privatized_atomic.rs` | `schedule/verify/privatized.rs` |
//! | TMA stores, staging buffers | `schedule/store/tma_store.rs`, `schedule/store/split.rs` | `lower/async_ops/tma_store.rs` | `schedule/verify/tma_store.rs` |
//! | reductions, scans | `schedule/requirements/reduction_steps.rs` | `lower/compute/reduce.rs`, `lower/compute/scan.rs` | |
//! | unrolling, strip mining | `schedule/pipeline/unroll.rs`, `schedule/strip_mine/find.rs` | `lower/unroll.rs`, `lower/strip_mine.rs` | `schedule/verify/steps.rs` |
//! | shared-memory allocation | `smem/allocation.rs`, `schedule/sub_steps/fulfil.rs` | | `schedule/verify/barriers.rs` |
//! | number of warps, plan search | `plan/num_warps.rs`, `plan/plan_search.rs` with `cost/mod.rs` | | |
//! | rewriting of loops with MMAs | `compile.rs`, `plan/overlap_mmas.rs` | | |
//! | optimizations and their switches | `optimizations.rs` | | |
//!
//! Outside of this folder:
//! * Key of a compiled kernel: `launch/specialize.rs`, and the methods `key` of arguments.
//! * Key of machine code on the disk, compilation after spills: `launch/compile/ptx.rs`.
//! * Encoding of tensor maps: `launch/compile` and `runtime/code`.
//! * A new elementwise op: a row in `ir/op_table.rs`, a method in `ops/elementwise`, and arms in
//!   `scalar`, `lower/dispatch.rs`, `cost/op_cost.rs` and `backend/cpu/interp`.

mod compile;
mod compiled;
mod cost;
mod device_assert;
mod hardware;
mod isa;
mod layout_inference;
mod lower;
mod measured;
mod mma;
mod mul_wide;
mod optimizations;
mod options;
mod plan;
#[cfg(test)]
pub(crate) mod ptxas_test;
mod register_pressure;
pub mod remarks;
mod scalar;
pub(crate) mod schedule;
mod smem;
pub mod tensor_map;
#[cfg(test)]
pub(crate) mod tests;
mod workarounds;

pub use compile::compile;
pub(crate) use compile::with_plan;
#[cfg(any(test, feature = "_suite"))]
pub(crate) use compile::{Scheduled, with_schedule};
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub use compile::{rewritten, rewritten_persistent, run_passes, run_selection_passes};
pub use compiled::{Compiled, ParamKind};
pub(crate) use cost::{CostInput, LaunchInfo, weights};
pub use device_assert::{
    Assertion, FailureSites, HangField, NoteField, RECORDS, RecordField, WARP_RECORDS, WaitObject, WaitSite,
};
#[cfg(any(test, feature = "_suite"))]
pub(crate) use hardware::{WARP_GROUP_WARPS, WARP_SIZE};
pub use isa::emit::global_symbol;
#[cfg(any(test, feature = "_suite"))]
pub(crate) use layout_inference::{ViewShape, contiguous_axis};
pub(crate) use measured::modelled_events;
pub use measured::{KernelStamps, MeasuredEvent, MeasuredTrace, StepComparison, TraceComparison};
#[cfg(any(test, feature = "_suite"))]
pub(crate) use mma::{OperandPlan, Panels};
pub use optimizations::{Optimization, OptimizationSet};
pub use options::{CompileOptions, PlanSearch, StampedSteps};

#[cfg(test)]
pub(crate) use isa::builder::dropped::Dropped;

/// Runs `body` with code generation that omits one arrival on an mbarrier. Returns its result, and
/// the numbers of arrivals and of barriers of all warps.
#[cfg(test)]
pub(crate) fn with_dropped<X>(arrival: Option<Dropped>, body: impl FnOnce() -> X) -> (X, [u32; 2]) {
    use isa::builder::dropped::{COUNTS, DROPPED};
    COUNTS.set([0; 2]);
    DROPPED.set(arrival);
    let result = body();
    DROPPED.set(None);
    (result, COUNTS.get())
}
