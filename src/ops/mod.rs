//! Operations on tiles, scalars and arrays: one file for each family.
//!
//! Methods are documented on [`Tile`](crate::Tile), [`Scalar`](crate::Scalar),
//! [`Array`](crate::Array) and [`ArrayMut`](crate::ArrayMut); free functions are re-exported at the
//! root. Every recording function is `#[track_caller]`, checks its operands while tracing, and
//! leaves a diagnostic and a poisoned value where they do not fit. It depends on `tile` and `ir`,
//! and on no pass or back end.

mod atomic;
mod cluster;
mod complex;
pub(crate) mod control;
mod create;
mod debug;
mod elementwise;
mod linalg;
mod memory;
mod mma;
mod packed;
pub mod pointer;
mod random;
mod reduce;
mod shape;
mod special;
mod support;

pub use atomic::atomic_rmw::{AtomicAdd, AtomicBits, AtomicMinMax, AtomicOptions, AtomicXchg};
pub use atomic::spin_lock::Lock;
pub use cluster::{Cluster, ClusterReduce, ClusterTile, cluster};
pub use complex::{ComplexArray, ComplexArrayMut, FftElement, fft, ifft};
pub use control::early_exit::{LoopControl, fold_with_control, loop_with_control, return_if};
pub use control::grid::{bid, num_blocks, swizzle_2d};
pub use control::loop_range::{Count, Ends, HostCount, HostIndex, LoopRange, LoopStep, ScalarRange, StepRange, range};
pub use control::loop_state::LoopState;
#[doc(hidden)]
pub use control::loop_state::Values;
pub use control::loops::{fold, fold_while, for_each, if_else, if_then, while_loop};
pub use control::machine::{clock, global_timer, multiprocessor};
pub use control::programmatic_launch::{grid_dependency_control_launch_dependents, grid_dependency_control_wait};
pub use create::construct::{TileRange, arange, arange_from, full, indices, ones, scalar, zeros};
pub use create::from_host::{Dense, astile, from_slice};
pub use debug::inline_ptx::{PtxOperands, ptx_elementwise};
pub use debug::print::{AssertCondition, assert, print};
pub use debug::require::require;
pub use debug::rowwise::{Rowwise, require_rowwise};
pub use elementwise::compare::{Choice, Comparand, ComparedByOperator, ComparisonOperator, select};
pub use elementwise::fast_divisor::{Divides, Divisor};
pub use elementwise::map::from_fn;
pub use elementwise::pack_bytes::Packed;
pub use linalg::blocks::MatrixFloat;
pub use linalg::triangular::TriangularOptions;
pub use memory::access_options::{Cache, LoadOptions, StoreOptions};
pub use memory::block_scratch::scratch;
pub use memory::element::{Entry, EntryMut};
pub use memory::element_index::{AxisIndex, GatherIndex, Span, span};
pub use memory::fence::alias_fence;
pub use memory::gather_scatter::{GatherOptions, ScatterOptions};
pub use memory::global::Global;
pub use memory::load_store::StoreValue;
pub use memory::memory_order::Scope;
pub use memory::subarray::ElementRange;
pub use memory::tiled_view::{Indices, TiledView};
pub use mma::{MatrixRank, Precision, Rank, matmul, matvec, mma, mma_fast_acc, mma_scaled, mma_with, vecmat};
pub(crate) use packed::PackedFacts;
pub use packed::{NarrowTile, PackedArray, PackedArrayMut};
pub use random::philox::{Philox, RandomFloat};
pub use random::stochastic_rounding::StochasticFloat;
pub use reduce::reduce::{Axes, reduce};
pub use reduce::scan::{ScanOptions, scan, scan_with};
pub use reduce::sort::{Sorted, sort_by_key};
pub use shape::cat_split::{Stack, cat, stack};
pub use shape::reshape::ReshapeExtent;
pub use shape::with_layout::TileLayout;
pub use support::axis::Axis;
pub(crate) use support::bit_words::{from_words, to_words};
pub use support::float_mode::{FloatMode, with_mode};
pub use support::misuse::{IndexOfArray, IndexOfTile, OperandOfArray, OtherNameOfCast};
pub use support::operand::{BroadcastOperand, Operand};
pub use support::promote::{Promote, promote};
pub use support::region_builder::Condition;
pub use support::tile_index::{At, IntoIndex, Position, TileIndex, at};
pub use support::tile_set::TileSet;
pub use support::tile_shape::TileShape;
