//! The ptx back end: a native code generator, from a Tile IR module to PTX text.
//!
//! Input: a verified and optimized module of one entry, a target, options. Output: PTX text and the
//! properties that a launch needs. `compile` is the pipeline. Folders, in the order of the stages:
//! 1. `plan`: number of warps, plan search by the cost model (`cost`), rewriting of loops;
//! 2. `layout_inference`: a register layout for each value, and MMA plans (`mma`);
//! 3. `schedule`: warps, pipelines, barriers and steps, as data;
//! 4. `lower`: steps become instructions, by `scalar`, `mma` and the builder of `isa`, with buffers
//!    allocated by `smem`;
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
//! One row for each subject, with all files that decide it. *Fixed*: decided at lowering, and so
//! no step of the schedule. Verifiers run in builds with `debug_assertions`, and that of data
//! partitions in all builds (`plan/planned_kernel.rs`). `tests/architecture/index.rs` checks that
//! files and functions exist, and that each file with a matching call is in its row. The head of
//! `compile.rs` lists all passes in order.
//!
//! | synchronization | decision | emission | verification | data, cost, remarks |
//! |---|---|---|---|---|
//! | `wgmma.wait_group` | `schedule/pipeline/mma_waits.rs` (`WaitInserter`, `mma_wait`); before an operand is overwritten: `schedule/sub_steps/membar.rs` (`wait_for_mma_reads`); moved: `schedule/pipeline/mma_overlap.rs`; redundant ones are removed: `schedule/sub_steps/walk.rs` (`insert_sub_steps`); fixed: `mma/wgmma.rs` (within one MMA), `lower/async_ops/cp_async.rs` and `lower/control_flow.rs` (multistage loops) | `lower/state/mma_queue.rs` (`wait_mmas_here`), queued by `lower/async_ops/mma_in_flight.rs` (`mma_wait`); instruction: `mma/mod.rs` (`MmaPlan::wait`), `isa/builder/hopper.rs` (`wgmma_wait_group`) | `schedule/verify/async_order.rs` | `schedule/ir/program.rs` (`MmaWait`), `schedule/ir/sub_step.rs` (`SubStep::MmaReadWait`); cost: `cost/warp_walk.rs` (`wait_mmas`) |
//! | MMAs in flight over a back edge | `schedule/pipeline/mma_carry.rs` (`carried_mmas_of`) | `lower/async_ops/mma_in_flight.rs` (`start_carried`) | `schedule/verify/steps.rs` (`verify_carried_mma`), `schedule/verify/async_order.rs` | `schedule/ir/program.rs` (`CarriedMma`) |
//! | `bar.sync` (`barrier.cta.sync`) | `schedule/sub_steps/membar.rs` (`barrier`); hazards: `smem/allocation.rs` (`SharedMemory::record_write`, `SharedMemory::record_read`), `schedule/sub_steps/global_hazards.rs` (`may_race`); without a hazard: `schedule/requirements/op.rs`, `schedule/requirements/memory.rs` and `schedule/requirements/print.rs` (`Requirement::Barrier`), `schedule/sub_steps/fulfil.rs`, `schedule/sub_steps/hoisted_operands.rs`; fixed: `lower/async_ops/cp_async.rs` (`advance_cp_async`), `lower/memory/privatized_atomic.rs`, `lower/async_ops/tma_pipeline.rs` (`init_barriers`) | `lower/state/sub_steps.rs` (`emit_bar_sync`), `lower/named_barriers.rs` (`sync_at`), `lower/state/order_barrier.rs` | `schedule/verify/barriers.rs` (`verify_barriers`) | `schedule/ir/sub_step.rs` (`SubStep::Barrier`); cost: `cost/events.rs` |
//! | full and empty mbarriers, parity | `schedule/warp_specialize/plan.rs` (`plan_channels`); waits: `schedule/pipeline/mma_waits.rs` (`consumer_waits`), `schedule/pipeline/try_wait.rs` (`insert_try_waits`) | `lower/async_ops/tma_pipeline.rs` (`init_barriers`); `lower/state/pipeline.rs` (`producer_acquire`, `consumer_wait`; parity: `advance`); release: `lower/state/mma_queue.rs` (`release_stages`), `lower/async_ops/consumer_release.rs`; waits with a limit: `lower/state/instrument/wait_limit.rs`, `lower/named_barriers.rs` (`init_limited_barriers`); ping-pong: `lower/state/order_barrier.rs` (`order_mbarrier`) | `schedule/verify/program.rs`, `schedule/verify/try_wait.rs` | `lower/state/sync_state.rs` (`PipelineState`); offsets: `plan/planned_kernel.rs` (`allocate_pipelines`); cost: `cost/resources.rs` |
//! | order of MMAs and exponentials of groups | `schedule/pipeline/mma_order.rs` (`order_mmas`), `schedule/pipeline/exp_order.rs` (`order_exponentials`) | `lower/state/order_barrier.rs` (`order_wait`, `order_arrive`), `lower/named_barriers.rs` (`arrive_at`) | `schedule/verify/order_barriers.rs` | `schedule/ir/program.rs` (`OrderPoint`); cost: `cost/warp_walk.rs` (`order_wait`) |
//!
//! | loads, stores | decision | emission | verification | data, cost, remarks |
//! |---|---|---|---|---|
//! | warp specialization | `schedule/warp_specialize/plan.rs` (`plan_warp_specialization`; refusal for all loads: `can_specialize`; for one load: `producer_load`); without TMA: `compile.rs` (`Strategy::in_order`), `plan/plan_search.rs` (`candidates`), `launch/compile/ptx.rs` (`TensorMapUse::for_module`), `launch/compile/mod.rs` (`within_limits`) | `lower/partitions.rs` (`lower_partitions`) | `schedule/verify/program.rs` | `schedule/ir/pipelines.rs` (`WarpSpecialization`); reasons: `schedule/ir/rejected_loads.rs` (`ProducerRejection`); remarks: `schedule/pipeline/loop_remarks.rs`, `compile.rs` (`why_no_tma`), text: `remarks.rs`, for users: `launch/inspect/compiled_kernel.rs` (`remarks`) |
//! | stages of a TMA pipeline | `schedule/warp_specialize/stage_count.rs` (`assign_stage_counts`), `schedule/warp_specialize/pipeline_assignment.rs`; hints: `schedule/analysis/hints.rs`; capacity: `schedule/analysis/kernel_info.rs` (`smem_for_stages`), `schedule/analysis/smem_budget.rs` | `lower/async_ops/tma_pipeline.rs` | `schedule/verify/stage_layout.rs` | `schedule/ir/pipelines.rs` (`PipelineDesc`, `Channel`) |
//! | ping-pong | `schedule/warp_specialize/pingpong.rs` (`plan_pingpong`), `schedule/warp_specialize/plan.rs` (`with_pingpong`); order steps: `schedule/build.rs` (`insert_order_barriers`) | `lower/partitions.rs` (`lower_consumer_groups`), `lower/async_ops/pingpong.rs`, `lower/state/order_barrier.rs` | `schedule/verify/pingpong.rs`, `schedule/verify/order_barriers.rs` | `schedule/ir/pipelines.rs` (`PingPong`), `schedule/ir/program.rs` (`OrderPoint`); cost: `cost/warp_walk.rs` (`section`); remarks: `schedule/pipeline/loop_remarks.rs` (`pingpong_rejection`) |
//! | clusters, multicast | exchanges of the kernel: `pass/analysis/cluster_exchanges.rs`, emitted by `lower/async_ops/cluster_exchange.rs`; two CTAs, by `Hints::num_ctas`: `schedule/warp_specialize/plan.rs` (`plan_with_cluster`, `plan_clustered`), `schedule/warp_specialize/cluster_multicast.rs` (`plan_multicast`) by `schedule/analysis/cta_uniformity.rs` | `lower/async_ops/issue_multicast.rs` (`issue_multicast`), `lower/async_ops/tma_pipeline.rs` (`init_barriers`), `lower/state/mma_queue.rs` (`release_stages`) | `schedule/verify/cluster_multicast.rs` | `schedule/ir/pipelines.rs` (`ClusterMulticast`) |
//! | data partitions | `plan/num_warps.rs` (`requested_data_partitions`), `compile.rs` (`partition_data`), `pass/data_partition` | `lower/async_ops/data_partition.rs` | `schedule/verify/data_partition.rs` | `compile.rs` (`why_not_partitioned`) |
//! | prefetches to L2 | by the producer, of loads of the consumers: `schedule/warp_specialize/prefetch.rs` (`add_prefetches`, `prefetch_map`); of pipelines with one stage, fixed: `lower/async_ops/tma_pipeline.rs` (`prefetch_boxes`) | `lower/async_ops/tma_pipeline.rs` (`prefetch_tile`, `prefetch_loads`) | `schedule/verify/program.rs` (`step`) | `schedule/ir/pipelines.rs` (`WarpSpecialization`) |
//! | tensor maps, `cp.async.bulk.tensor` | with refusals: `schedule/analysis/tensor_maps.rs` (`tma_map`, `map_of`, `tma_store_map`), `schedule/analysis/ragged_slices.rs`; boxes: `schedule/warp_specialize/plan.rs` (`tma_boxes`), `schedule/warp_specialize/aux_loads.rs` (`aux_box`), `schedule/warp_specialize/prefetch.rs` (`prefetch_map`), `schedule/store/tma_store.rs` (`store_map`) | `lower/async_ops/tma_coords.rs` (`tensor_map_address`, `tma_coords`), `lower/async_ops/issue_multicast.rs` (`issue_loads`); instruction: `isa/builder/hopper.rs` (`tma_load`) | `schedule/verify/stage_layout.rs`, `schedule/verify/tma_store.rs` | symbolic: `tensor_map.rs` (`TensorMap`); encoded for a launch: `tensor_map.rs` (`resolve`), `launch/compile/tensor_map_cache.rs` (`encoded`); handed to the driver: `launch/compile/params.rs` (`param_pointers`); form without maps: `launch/compile/executable.rs` (`for_launch`) |
//! | `cp.async`, multistage copies, early exits | `schedule/pipeline/cp_async.rs` (`plan_cp_async`), `schedule/copies/thread_private.rs`, `schedule/copies/copy_addresses.rs` | `lower/async_ops/cp_async.rs` | `schedule/verify/steps.rs` (`verify_cp_async`) | `schedule/ir/cp_async.rs` (`CpAsyncPlan`); remarks: `schedule/pipeline/load_remarks.rs`; loops with `continue` or early exits have no copies: `ir/region_tree.rs` (`has_multiple_latches`) |
//! | early exits of a producer | `schedule/analysis/early_exit.rs`, `schedule/warp_specialize/producer_slice.rs` (`early_exits`) | `lower/control_flow.rs` (`terminator`) | `schedule/verify/program.rs` | |
//! | TMA stores, staging buffers | `schedule/store/tma_store.rs` (`select_tma_stores`, `allocate_staging_buffers`), `schedule/store/split.rs`, `schedule/warp_specialize/epilogue_smem_reuse.rs` | `lower/async_ops/tma_store.rs` | `schedule/verify/tma_store.rs` | `schedule/ir/tma_store.rs`; remarks: `schedule/store/tma_store.rs` (`missed_stores`) |
//! | bounds, masks | `lower/memory/tile_bounds.rs` (`tile_bounds`, `bounds_check`) | `lower/memory/view_access.rs` (`mask`) | | front end: `ops/memory/tile_access.rs` |
//! | padding | default: `ops/memory/access_options.rs`; `ops/memory/tile_access.rs` (`view_by`), in the type: `ir/types.rs` (`Padding`); TMA pads with zero alone: `schedule/analysis/tensor_maps.rs` (`tma_map`) | bits: `lower/memory/view_access.rs` (`access`); registers: `lower/memory/view_load_store.rs` (`load_vectors`), `lower/memory/unaligned_load.rs`, `lower/state/vector_access.rs` (`load`); `lower/memory/tensor_view.rs`; gathers: `lower/memory/pointer_access.rs` (`pad`); `cp.async`: `lower/async_ops/cp_async.rs` (`copy_tile`); TMA: `lower/async_ops/tma_coords.rs`, `runtime/code/encode_tensor_map.rs` | | |
//! | atomics, privatization | `schedule/store/privatize.rs` (`select_privatized_atomics`) | `lower/memory/atomic.rs`, `lower/memory/atomic_16bit.rs`, `lower/memory/privatized_atomic.rs` | `schedule/verify/privatized.rs` | `schedule/ir/privatized_array.rs` |
//!
//! | registers, layouts | decision | emission | verification | data, cost, remarks |
//! |---|---|---|---|---|
//! | layout of a value: coalesced access, elementwise chain, store | rules: `layout_inference/mod.rs`; lengths of runs decide, there is no cost: `layout_inference/ops/view_access.rs` (`set_coalesced_layouts`, `load`, `store`), `layout_inference/ops/elementwise.rs` (`elementwise`), `layout_inference/state/anchors.rs` (`elementwise_layout`), `layout_inference/requests.rs` | | | `layout_inference/state/core.rs` (`Layouts`, `Inference`) |
//! | vector width | `layout_inference/analysis/view_shape.rs` (`ViewShape`), `layout_inference/analysis/axis_info.rs` | `lower/state/vector_access.rs` (`load`, `store`) | | |
//! | layout conversion | `layout/convert/mod.rs`; hoisted: `schedule/pipeline/hoist_conversions.rs` | `lower/state/convert_layout.rs` (`convert`) | `schedule/verify/barriers.rs` | `schedule/sub_steps/layout_conversion.rs` |
//! | instruction of an MMA | `mma/mod.rs` (`MmaPlan::new`), `mma/wgmma.rs` (`plan`, `attempt`), `mma/mma_sync.rs` (`plan`), `mma/fma.rs` (`plan`); called by `layout_inference/ops/mma.rs` (`plan_mma`) | `mma/wgmma.rs`, `mma/mma_steps.rs`, `mma/fma.rs` by `lower/compute/mma.rs` (`mma_group`) | `schedule/verify/steps.rs` (`verify_mma_partition`) | `mma/request.rs` (`MmaRequest`); cost: `cost/op_cost.rs` (`product`) |
//! | MMA operand in registers or shared memory | `mma/wgmma.rs` (`attempt`), `plan/register_operands.rs` (`place_operands_in_registers`), `plan/mma_loops.rs`; hoisted: `schedule/pipeline/hoist_operands.rs` | `lower/compute/mma.rs` (`mma_operand`, `hoist_operands`) | `schedule/verify/barriers.rs` | `mma/request.rs` (`OperandPlan`) |
//! | swizzle of MMA operands, matrix descriptor | XOR of all MMA operands: `layout/shared_layout.rs` (`swizzled`); its arguments: `mma/smem_descriptor.rs` (`SmemMatrix::new`) for `wgmma`, `mma/fragment.rs` for `mma.sync`, `mma/fma.rs`; TMA boxes: `schedule/warp_specialize/plan.rs` (`tma_boxes`) | `mma/smem_descriptor.rs` (`matrix_descriptor`), `mma/smem_operand.rs`; address: `lower/state/convert_layout.rs` (`address_from`) | `schedule/verify/stage_layout.rs` | `layout/shared_layout.rs` (`SharedLayout`), `tensor_map.rs` (`Swizzle`) |
//! | swizzle of TMA stores | `smem/tma_box.rs` (`TmaBoxLayout`) | `lower/async_ops/tma_store.rs` | `schedule/verify/tma_store.rs` | |
//! | swizzle of layout conversions | swizzled or affine: `schedule/sub_steps/layout_conversion.rs`; `layout/convert/shared.rs` (`SharedPlan::new`), `layout/convert/affine.rs` (`AffinePlan::new`) | address: `lower/state/convert_layout.rs` (`address_from`) | | |
//! | reductions, scans | `schedule/requirements/reduction_steps.rs` (`reduction_steps`); bytes of shared memory: `schedule/requirements/exchange.rs`; allocation and reuse: `smem/allocation.rs` (`allocate`) by `schedule/sub_steps/fulfil.rs`; barriers: `schedule/sub_steps/membar.rs` (`smem_write`, `smem_read`) | `lower/compute/reduce.rs`; shuffles: `lower/compute/reduce_lanes.rs`; between warps: `lower/compute/reduce_warps.rs` (`reduce_warps`); `lower/compute/scan.rs`, `lower/compute/scan_lanes.rs`, `lower/compute/scan_warps.rs` | `schedule/verify/barriers.rs` | `schedule/requirements/requirement.rs` (`Requirement::SmemExchange`) |
//! | shared-memory allocation | `smem/allocation.rs` (`SharedMemory::allocate`), `schedule/sub_steps/fulfil.rs` (`fulfil`), `schedule/sub_steps/double_buffers.rs`; for the whole kernel: `plan/planned_kernel.rs` | `lower/state/sub_steps.rs` (`next_write_buffer`, `begin_read`) | `schedule/verify/barriers.rs`, `schedule/verify/steps.rs` (`verify_smem_capacity`) | `schedule/ir/sub_step.rs` (`SubStep::SmemWrite`) |
//! | `setmaxnreg` | `schedule/analysis/register_budget.rs` (`registers_per_thread`) | `lower/partitions.rs` (`emit_setmaxnreg`) | | |
//! | `.minnctapersm`, occupancy | before the schedule: `schedule/analysis/register_budget.rs` (`possible_occupancy`, `warp_specialized_occupancy`), `schedule/warp_specialize/plan.rs` (`plan_warp_specialization`); from the instructions: `lower/driver.rs` (`emit`), `register_pressure.rs` (`fitting_ctas`) | `lower/partitions.rs`, `lower/driver.rs` | | `remarks.rs` |
//! | register pressure, spills | `schedule/strip_mine/pressure.rs`, `plan/rematerialize.rs`, `register_pressure.rs` (`live_registers`); compiled again after spills: `launch/compile/ptx.rs` (`compile_form`) | | | `remarks.rs` (`spill_warning`), `launch/inspect/spills.rs`, `launch/tune/prune.rs` |
//! | unrolling, strip mining | `schedule/pipeline/unroll.rs` (`unroll_factor`), `schedule/strip_mine/find.rs`, `schedule/strip_mine/eligibility.rs` | `lower/unroll.rs`, `lower/strip_mine.rs` | `schedule/verify/steps.rs` (`verify_unroll`, `verify_strip_mine`) | `schedule/ir/program.rs` (`StripMine`) |
//!
//! | plan, code | decision | elsewhere |
//! |---|---|---|
//! | number of warps | `plan/num_warps.rs` (`num_warps`), `plan/plan_search.rs` | |
//! | cost model, candidates of the plan search | `plan/plan_search.rs` (`search`, `candidates`, `cheapest`); fallbacks: `compile.rs` (`Strategy::in_order`) | one op: `cost/op_cost.rs` (`op`, `pricing`); rates: `cost/machine_model.rs`; overlap and time of a loop: `cost/discrete_event.rs` (`EventReplay`, `extrapolated`), producer: `cost/warp_walk.rs` (`produce`), `cost/async_queue.rs`; sum: `cost/mod.rs` (`cost`) |
//! | rewriting of loops with MMAs | `compile.rs` (`simplify_mma_loops`), `plan/mma_loops.rs` (`rewrite_mma_loops`), `schedule/pipeline/mma_overlap.rs` | |
//! | optimizations and their switches | `optimizations.rs` | `benches/kernels/ablation.tsv` |
//! | key of a compiled kernel in memory | words of the request: `launch/specialize.rs` (`specialization_key`) with those of the arguments; and type and constants of the kernel, or its trace: `cache/kernel_cache.rs` (`Identity`) | `kernel/launch_arg.rs` (`LaunchArg`), `runtime/args/array_arg.rs` (`specialization_word`) |
//! | key of machine code on the disk | `launch/compile/ptx.rs` (`cubin_key`), `launch/compile/tileir.rs` | `cache/disk.rs` |
//! | a new elementwise op, a new pass | `CONTRIBUTING.md` | |

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
pub(crate) use cost::{CostInput, LaunchInfo, MachineModel, machine};
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
