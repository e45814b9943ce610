//! The Tile IR: the trace as data.
//!
//! A [`Module`] holds entries (kernels); an entry is a block of ops on whole tiles. The ops, their
//! semantics and types are those of NVIDIA's CUDA Tile IR (13.1 to 13.5); [`op_table`] has a row for each.
//!
//! * **Containers.** Values, ops and blocks live in arenas of the module and are named by handles
//!   ([`Value`], [`OpId`], [`BlockId`]); types and locations are interned. Handles stay valid: a pass
//!   that removes an op takes it out of its block's list and leaves the arena alone.
//! * **Evaluation order.** Ops of a block run in list order, once each. A region is one block; the
//!   op that owns it says how often it runs.
//! * **Scope.** A value may be used after its definition in its own block and in blocks nested in it.
//!   Every block ends with a terminator (`return`, `yield`, `continue`, `break`); only the else
//!   region of an `if` without results may be an empty block.
//! * **Scalars** are tiles of rank 0. Integers carry no sign, ops do. Extents are sums of at most
//!   three powers of two; back ends cut those that are not one.
//! * **Memory.** Memory ops take effect in program order, whether or not they carry tokens; token
//!   operands matter only to bytecode, where a later stage adds them.
//! * **Entry parameters** are rank-0 tiles. An array of rank R is passed as its base pointer, R
//!   extents and R strides (in elements), the latter two i32 or i64; what the launch knows about
//!   them stands in `assume` ops.
//!
//! Beyond Tile IR, some things are defined that are undefined there. A view access whose tile index lies
//! outside of the index space (negative indices included) reads padding and writes nothing. A shift by the width or
//! more shifts everything out. An integer divided by zero gives 0, and the remainder is the dividend. A float that does
//! not fit an integer becomes the nearest one.

mod attr;
mod builder;
mod memory_effects;
mod module;
mod name;
mod op_shape;
pub mod op_table;
mod overflow;
mod parse;
mod print;
mod rewrite;
mod types;
mod uses;
mod verify;

pub use attr::*;
pub use builder::Builder;
pub use module::*;
pub use op_table::Opcode;
pub(crate) use overflow::{breaks_promise, fits};
pub use print::PrintOptions;
pub(crate) use print::TypeText;
pub use rewrite::Substitution;
pub use types::*;
pub use uses::Uses;
pub use verify::verify;
