//! The Tile IR back end: NVIDIA's bytecode, for the driver or for `tileiras`.
//!
//! * [`write()`] and `read`: bytecode 13.1 to 13.5 from and to a [`crate::ir::Module`];
//! * [`Version`]: which version a module needs;
//! * [`legalize()`] and [`order_memory`]: from our semantics to Tile IR's, on a copy of the module;
//! * [`compile()`]: all of it for a kernel; [`Assembler`]: `tileiras`, which makes machine code of it.
//!
//! Opcodes, counting rules, flags and attributes come from the op table ([`crate::ir::table`]); this
//! folder knows the container, the encodings of types, attributes and constants, and the places of
//! the user's source in the debug section. Facts from the public Tile IR documentation.

mod assemble;
mod attribute;
mod by_hand;
mod compile;
mod constant;
mod container;
mod debug;
mod grid;
mod legalize;
mod lowest;
mod no_wrap;
mod read;
mod requirement;
mod tables;
mod tokens;
mod types;
mod version;
mod wire;
mod write;

pub use assemble::Assembler;
pub(crate) use assemble::find_program;
pub use compile::{CompileOptions, Compiled, Param, compile, params};
pub use grid::MAX_GRID;
pub use legalize::{Bound, Guards, Limit, Probe, Promises, legalize};
pub use lowest::lowest_version;
pub use read::read;
pub use tokens::order_memory;
pub use version::Version;
pub use write::{WriteOptions, write};
