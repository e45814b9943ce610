//! The Tile IR back end: NVIDIA's bytecode, for the driver or for `tileiras`.
//!
//! * [`write()`] and [`read`]: bytecode 13.1 to 13.5 from and to a [`crate::ir::Module`];
//! * [`Version`]: which version a module needs;
//! * [`legalize()`] and [`order_memory`]: from our semantics to Tile IR's, on a copy of the module;
//! * [`compile()`]: all of it for a kernel; [`Assembler`]: `tileiras`, which makes machine code of it.
//!
//! Opcodes, counting rules, flags and attributes come from the op table ([`crate::ir::table`]); this
//! folder knows the container, the encodings of types, attributes and constants, and the places of
//! the user's source in the debug section. Facts from the public Tile IR documentation.

mod assemble;
mod attribute;
mod compile;
mod constant;
mod debug;
mod grid;
mod legalize;
mod no_wrap;
mod read;
mod requirement;
mod tokens;
mod types;
mod version;
mod wire;
mod write;

pub use assemble::Assembler;
pub use compile::{CompileOptions, Compiled, Param, compile, params};
pub use grid::MAX_GRID;
pub use legalize::{Bound, Guards, Limit, Probe, Promises, legalize};
pub use read::read;
pub use tokens::order_memory;
pub use version::{Version, lowest_version};
pub use write::write;

use crate::target::Target;

/// How a module is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The version; `None` is the lowest that holds the module and that the target's tools know.
    pub version: Option<Version>,
    /// Which GPU the file is for; decides only the version.
    pub target: Option<Target>,
    /// Write the user's places?
    pub debug: bool,
}

impl Default for WriteOptions {
    /// Lowest version for any target, with places.
    fn default() -> Self {
        WriteOptions { version: None, target: None, debug: true }
    }
}
