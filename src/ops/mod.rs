//! What can be done with tiles, scalars and arrays: one file a family.
//!
//! Methods are documented on [`Tile`](crate::Tile), [`Scalar`](crate::Scalar), [`Array`](crate::Array) and
//! [`ArrayMut`](crate::ArrayMut); free functions are re-exported at the root. Every recording function is
//! `#[track_caller]`, checks its operands while tracing, and leaves a diagnostic and a poisoned value
//! where they do not fit. Knows `tile` and `ir`; no pass, no back end.

mod access;
mod arg_extreme;
mod arithmetic;
mod compare;
mod construct;
mod control;
mod convert;
mod dense;
mod fold;
mod grid;
mod integer;
mod map;
mod math;
mod memory;
mod mma;
mod mode;
mod narrow;
mod operand;
mod pieces;
mod rearrange;
mod reduce;
mod scan;
mod shape;
mod state;
mod tile_set;

pub use access::{IntoIndex, LoadOptions, StoreOptions, TileIndex};
pub use compare::select;
pub use construct::{arange, full, indices, ones, scalar, zeros};
pub use control::{Condition, LoopRange, StepRange, for_each, for_each_while, if_else, if_then, range, while_loop};
pub use dense::{Dense, astile, from_slice};
pub use grid::{bid, num_blocks};
pub use map::from_fn;
pub use mma::{MatrixRank, Rank, matmul, matvec, mma, mma_fast_acc, mma_scaled, vecmat};
pub use mode::FloatMode;
pub use narrow::Packed;
pub use operand::Operand;
pub use pieces::{Stack, cat, stack};
pub use reduce::{Axes, reduce};
pub use scan::{ScanOptions, scan, scan_with};
pub use state::{State, Values};
pub use tile_set::TileSet;
