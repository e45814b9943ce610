//! The Tile IR back end: NVIDIA's bytecode, for the driver or for `tileiras`.
//!
//! * [`write()`] and `read`: bytecode 13.1 to 13.5 from and to a [`crate::ir::Module`];
//! * [`Version`]: which version a module needs;
//! * [`legalize()`] and [`order_memory`]: from our semantics to Tile IR's, on a copy of the module;
//! * [`compile()`]: all of it for a kernel; [`Assembler`]: `tileiras`, which makes machine code of it.
//!
//! Opcodes, counting rules, flags and attributes come from the op table ([`crate::ir::op_table`]); this
//! folder knows the container, the encodings of types, attributes and constants, and the places of
//! the user's source in the debug section. Facts from the public Tile IR documentation.

mod bytecode;
mod compile;
mod grid;
mod legalize;
mod memory_tokens;
mod no_wrap;
mod target_requirements;
mod tileiras;
mod unsupported_hints;

pub use bytecode::read::read;
pub use bytecode::required_version::lowest_version;
pub use bytecode::version::Version;
pub use bytecode::write::{WriteOptions, write};
pub use compile::{CompileOptions, Compiled, Param, compile, params};
pub use grid::MAX_GRID;
pub use legalize::{Bound, Guards, Limit, Probe, Promises, legalize};
pub use memory_tokens::order_memory;
pub use tileiras::Assembler;
pub(crate) use tileiras::find_program;
