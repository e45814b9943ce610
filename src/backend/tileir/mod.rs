//! Tile IR back end: NVIDIA's bytecode, for the driver or for `tileiras`.
//!
//! * [`write()`] and `read`: output and input of bytecode 13.1 to 13.5, from and to a
//!   [`crate::ir::Module`].
//! * [`Version`]: the version that a module needs.
//! * [`legalize()`] and [`order_memory`]: conversion from the semantics of this crate to those of
//!   Tile IR, on a copy of the module.
//! * [`compile()`]: all stages for a kernel. [`Assembler`]: `tileiras`, which generates machine
//!   code.
//!
//! The op table ([`crate::ir::op_table`]) defines opcodes, counting rules, flags and attributes.
//! This folder defines the container, the encodings of types, attributes and constants, and the
//! debug section. Source: the public Tile IR documentation.

mod access_hints;
mod bytecode;
mod compile;
mod default_hints;
mod grid;
mod legalize;
mod memory_tokens;
mod no_wrap;
mod target_requirements;
mod tileiras;
mod unsupported_hints;

pub use bytecode::read::read;
pub use bytecode::required_version::required_version;
pub use bytecode::version::Version;
pub use bytecode::write::{WriteOptions, write};
pub use compile::{CompileOptions, Compiled, Param, compile, params};
pub use grid::MAX_GRID;
pub use legalize::{Bound, Guards, LaunchConditions, Limit, Probe, legalize};
pub use memory_tokens::order_memory;
pub use tileiras::Assembler;
pub(crate) use tileiras::find_program;
