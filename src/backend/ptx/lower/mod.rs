//! Lowering: ops on whole tiles become instructions of one thread.
//!
//! [`Lowering`] walks the schedule of the entry (`step`). A tile value is a list of operands, one for each
//! register slot of its layout (`value`); ops are lowered family by family:
//!
//! * `planned` — the schedule, and what it is made into;
//! * `value` — materialising a value in the layout a user asks for;
//! * `elementwise` — one scalar instruction sequence a slot;
//! * `view`, `place`, `listed`, `access`, `memory`, `shifted`, `vector` — array descriptions, where tiles lie, addresses, masks, wide
//!   accesses;
//! * `within` — barriers, buffers and changes of layouts within a step, as the schedule says;
//! * `pointer`, `atomic`, `atomic_half`, `private`, `certain` — accesses by pointers; atomics; atomics combined in shared
//!   memory; masks that hold for all elements of a thread;
//! * `order` — accesses that other tile blocks see in order;
//! * `strip` — long elementwise runs piece by piece;
//! * `convert` — layout changes through registers, shuffles or shared memory;
//! * `own`, `global` — memory of the tile block's own; global arrays;
//! * `pieces`, `repack` — tiles put together and taken apart; elements packed into bytes;
//! * `lookup` — elements by their positions; counts of numbers;
//! * `partials`, `extreme`, `reduce`, `reduce_warps`, `scan`, `scan_warps` — within a thread, across lanes, across warps;
//! * `product`, `flight` — matrix products; those that run on their own until a wait for them;
//! * `tensor_map`, `box_store` — views that the bulk copy engine can move; stores and additions that it does;
//! * `limit` — how much code, and how many registers, are too much;
//! * `control`, `rounds`, `pipeline` — loops and branches; rounds in a row; copies that run ahead of a loop;
//! * `ring` — warps that only load, for warps that only compute (sm_90a);
//! * `teams`, `turns`, `bands` — groups of such warps that take iterations in turn, or multiply in turn; those with rows of their own;
//! * `cluster` — pairs of tile blocks that share such loads.
//!
//! Scalars (rank 0) are computed by every thread and are the same in all of them, so branches on them
//! are uniform and barriers inside loops are safe.

mod async_ops;
mod code_size;
mod compute;
mod control_flow;
mod dispatch;
mod driver;
mod loop_counter;
mod memory;
mod named_barriers;
mod state;
mod strip_mine;
mod unroll;

pub use driver::{lower, lowered, planned};
pub use state::core::{Lowered, Lowering};
use state::values::Tile;
