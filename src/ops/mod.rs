//! What can be done with tiles, scalars and arrays: one file a family.
//!
//! Methods are documented on [`Tile`](crate::Tile), [`Scalar`](crate::Scalar), [`Array`](crate::Array) and
//! [`ArrayMut`](crate::ArrayMut); free functions are re-exported at the root. Every recording function is
//! `#[track_caller]`, checks its operands while tracing, and leaves a diagnostic and a poisoned value
//! where they do not fit. Knows `tile` and `ir`; no pass, no back end.

mod access;
mod arg_extreme;
mod arithmetic;
mod assume;
mod atomic;
mod body;
mod compare;
mod construct;
mod control;
mod convert;
mod counter;
mod dense;
mod dependent;
mod entry;
mod flow;
mod fold;
mod gather;
mod global;
mod grid;
mod index;
mod integer;
mod map;
mod math;
mod memory;
mod message;
mod mma;
mod mode;
mod narrow;
mod operand;
mod order;
mod part;
mod pieces;
mod places;
pub mod pointer;
mod print;
mod range;
mod rearrange;
mod reduce;
mod scan;
mod scratch;
mod shape;
mod state;
mod table;
mod tile_set;
mod tiles;
mod visit;

pub use access::{LoadOptions, StoreOptions};
pub use atomic::{AtomicAdd, AtomicBits, AtomicMinMax, AtomicOptions, AtomicXchg};
pub use body::Condition;
pub use compare::select;
pub use construct::{arange, full, indices, ones, scalar, zeros};
pub use control::{for_each, for_each_while, if_else, if_then, while_loop};
pub use dense::{Dense, astile, from_slice};
pub use dependent::{grid_dependency_control_launch_dependents, grid_dependency_control_wait};
pub use entry::{Entry, EntryMut};
pub use flow::{Flow, for_each_flow, loop_flow, return_if};
pub use gather::{GatherOptions, ScatterOptions};
pub use global::Global;
pub use grid::{bid, num_blocks};
pub use index::{At, IntoIndex, Position, TileIndex, at};
pub use map::from_fn;
pub use memory::Stores;
pub use mma::{MatrixRank, Rank, matmul, matvec, mma, mma_fast_acc, mma_scaled, vecmat};
pub use mode::FloatMode;
pub use narrow::Packed;
pub use operand::Operand;
pub use order::Scope;
pub use part::ElementRange;
pub use pieces::{Stack, cat, stack};
pub use places::{AxisIndex, GatherIndex, Span, span};
pub use print::{AssertCondition, assert, print};
pub use range::{Count, Ends, HostCount, HostIndex, KnownWhileTracing, LoopRange, LoopStep, StepRange, range};
pub use reduce::{Axes, reduce};
pub use scan::{ScanOptions, scan, scan_with};
pub use scratch::scratch;
pub use state::{State, Values};
pub use tile_set::TileSet;
pub use tiles::{Indices, Tiles};
