//! Schedules: warp-level programs between layout inference and instruction selection.
//!
//! What the threads of a tile block do, in which order and where, is decided here and written down; `lower` turns it into
//! instructions, step by step. A [`Schedule`] has an agent for each program that warps run, and a program is a list of
//! steps, each of which names an op of the module (`ir/program`). Tile IR says what an op means; a step says how it is done.
//!
//! * `analysis/kernel_info` — what is known of a kernel, and questions about it; `analysis/memory_effects`, `analysis/region_tree`, `analysis/hints`, `analysis/early_exit`, `analysis/smem_budget`: more of
//!   them;
//! * `ir/pipelines`, `warp_specialize/plan`, `warp_specialize/aux_loads`, `warp_specialize/stage_count`, `warp_specialize/producer_slice`, `warp_specialize/cluster_multicast`, `analysis/cta_uniformity`, `analysis/tensor_maps`, `analysis/tile_adjacency` — loads that a producer streams (sm_90a), for pairs of blocks, too;
//! * `warp_specialize/pingpong`, `pipeline/mma_order`, `warp_specialize/data_partition` — iterations of persistent loops, dealt to two groups of warps; groups that multiply in turn; groups with rows of their own;
//! * `store/tma_store`, `ir/tma_store` — stores by the copy engine, and where their boxes stand; `store/privatize`, `ir/privatized_array`, `store/implied_mask` — atomics that the block
//!   combines, and what of their masks is known at once;
//! * `pipeline/cp_async` — copies that run ahead of a loop; `pipeline/unroll` — rounds of one that are written out;
//! * `strip_mine/eligibility`, `strip_mine/find`, `strip_mine/pressure` — elementwise work that goes piece by piece;
//! * `pipeline/mma_groups`, `pipeline/mma_carry`, `pipeline/hoist_conversions` — products that are issued together; what runs on over a back edge; what is converted ahead of a loop;
//! * `pipeline/mma_waits`, `analysis/step_uses` — when products and streamed tiles are waited for, and what steps ask of them; `pipeline/mma_overlap` — work before a wait;
//!   `pipeline/try_wait` — stages that are asked for ahead;
//! * `membar/walk`, `membar/state`, `ir/sub_step`, `membar/global_hazards` — what steps do within: tiles brought to other layouts, places in shared memory, meetings of
//!   threads; `membar/requirements`, `membar/scratch`, `membar/reduction_steps`, `membar/printf_steps`, `store/split`, `analysis/deferred_values` — what ops ask for there;
//! * `analysis/register_budget` — registers and warps; `pipeline/unmet_hints` — what loops wish for and do not get;
//! * `build` — all of that as steps; `ir/print`, `ir/parse` — as text; `verify/program`, `verify/async_order`, `verify/privatized`, `verify/pingpong`, `verify/steps`, `verify/barriers`,
//!   `verify/tma_store`, `verify/stage_layout` — what has to hold of any schedule.
//!
//! Knows `ir`, `layout`, the facts of `pass`, layouts and plans of the back end; no instruction and no builder.

mod analysis;
mod build;
mod ir;
mod layout_dump;
mod membar;
mod pipeline;
mod store;
mod strip_mine;
mod verify;
mod warp_specialize;

pub use analysis::kernel_info::Context;
#[cfg(any(test, feature = "_suite"))]
pub use analysis::memory_effects::Touch;
pub use analysis::register_budget::PRODUCER_REGISTERS;
pub use analysis::smem_budget::{PRINT_BYTES, PRINTED_PART};
pub use analysis::tensor_maps::{box_order, whole_indices};
#[cfg(any(test, feature = "_suite"))]
pub use ir::pipelines::Channel;
pub use ir::pipelines::{Box, Deal, RingPlan, Roles, Streamed, TEAMS, Takes};
pub use ir::privatized_array::{NEAR, Private, WORDS};
#[cfg(test)]
pub use ir::program::InTurn;
pub use ir::program::{
    Acts, Await, BodyId, For, Issue, Land, LayoutId, Loop, Multiply, Orbit, Part, Schedule, Step, Strip, Turn,
};
pub use ir::sub_step::{Bring, Change, Within};
pub use ir::tma_store::{Outbox, Send};
pub use membar::printf_steps::{SMALL, pieces};
pub use membar::reduction_steps::{Fold, Images};
pub use membar::requirements::leaders;
pub use membar::scratch::APART;
pub use pipeline::cp_async::{Ahead, Copy};
pub use pipeline::mma_order::GROUPS;
pub use store::implied_mask::Comparison;
pub use store::privatize::array_and_offsets;
pub use store::split::Parts;
#[cfg(any(test, feature = "_suite"))]
pub use verify::steps::is_computed_where_used;
pub use warp_specialize::cluster_multicast::{BLOCKS, Pairs};

#[cfg(test)]
pub use crate::backend::ptx::shared::Buffer;
