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
//!
//! Without the feature `tileir`, `absent` replaces the generator: options, conditions of launches
//! and `tileiras` are the same, and [`compile()`] returns an error.

mod grid;
mod interface;
mod launch_compare;
mod launch_conditions;
mod tileiras;
mod version;

#[cfg(not(feature = "tileir"))]
mod absent;
#[cfg(not(feature = "tileir"))]
mod absent_probe;
#[cfg(feature = "tileir")]
mod access_hints;
#[cfg(feature = "tileir")]
mod bytecode;
#[cfg(feature = "tileir")]
mod compile;
#[cfg(feature = "tileir")]
mod default_hints;
#[cfg(feature = "tileir")]
mod legalize;
#[cfg(feature = "tileir")]
mod memory_tokens;
#[cfg(feature = "tileir")]
mod no_wrap;
#[cfg(feature = "tileir")]
mod target_requirements;
#[cfg(feature = "tileir")]
mod unsupported_hints;

#[cfg(not(feature = "tileir"))]
pub use absent::compile;
#[cfg(not(feature = "tileir"))]
pub use absent_probe::Probe;
pub use grid::MAX_GRID;
pub use interface::{CompileOptions, Compiled, Param, params};
pub use launch_compare::{Bound, Limit};
pub use launch_conditions::{Guards, LaunchConditions};
pub use tileiras::Assembler;
pub(crate) use tileiras::find_program;
pub use version::Version;
#[cfg(feature = "tileir")]
pub use {
    bytecode::read::read,
    bytecode::required_version::required_version,
    bytecode::write::{WriteOptions, write},
    compile::compile,
    legalize::{Probe, legalize},
    memory_tokens::order_memory,
};
