//! Tile IR: a trace as data.
//!
//! A [`Module`] holds entries (kernels). An entry is a block of ops on whole tiles. The ops, their
//! semantics and types are those of NVIDIA's CUDA Tile IR (13.1 to 13.5). [`op_table`] has a row
//! for each op.
//!
//! * **Containers.** Values, ops and blocks are in arenas of the module and are identified by
//!   handles ([`Value`], [`OpId`], [`BlockId`]). Types and locations are interned. Handles remain
//!   valid: a pass removes an op from the list of its block, but not from the arena.
//! * **Evaluation order.** The ops of a block execute in list order, once each. A region is one
//!   block. The op that owns it defines the number of its executions.
//! * **Scope.** A value may be used after its definition, in its own block and in nested blocks.
//!   Each block ends with a terminator (`return`, `yield`, `continue`, `break`). Only the else
//!   region of an `if` without results may be an empty block.
//! * **Scalars** are tiles of rank 0. Integers have no sign; ops have a signedness. Extents are
//!   sums of at most three powers of two. Back ends split those that are no power of two.
//! * **Memory.** Memory ops take effect in program order, with or without tokens. Token operands
//!   are used only by the bytecode, for which a later stage adds them.
//! * **Entry parameters** are tiles of rank 0. An array of rank R is passed as its base pointer, R
//!   extents and R strides (in elements). Extents and strides are i32 or i64. Properties known at
//!   the launch are stated by `assume` ops.
//!
//! Some cases are defined here and undefined in Tile IR:
//! * A view access at a tile index outside of the index space, negative indices included, reads
//!   padding and writes nothing.
//! * A shift by at least the width shifts all bits out.
//! * An integer divided by zero is 0, and the remainder is the dividend.
//! * A float that is out of the range of an integer type is converted to the nearest integer.

mod attr;
mod builder;
mod handle;
mod memory_effects;
mod module;
mod name;
mod op_shape;
pub mod op_table;
mod overflow;
mod parse;
mod print;
pub(crate) mod recording;
mod region_tree;
mod rewrite;
mod types;
mod uses;
mod verify;

pub use attr::*;
pub use builder::Builder;
pub use handle::*;
pub use module::*;
pub use op_table::Opcode;
pub(crate) use overflow::{fits, violates_assumption};
pub use print::PrintOptions;
pub(crate) use print::TypeText;
pub use region_tree::RegionTree;
pub use rewrite::Substitution;
pub use types::*;
pub use uses::Uses;
pub use verify::verify;
