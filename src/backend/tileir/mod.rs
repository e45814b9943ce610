//! The Tile IR back end: NVIDIA's bytecode, for the driver or for `tileiras`.
//!
//! * [`write()`] and [`read`]: bytecode 13.1 to 13.5 from and to a [`crate::ir::Module`];
//! * [`version`](Version): which version a module needs.
//!
//! Opcodes, counting rules, flags and attributes come from the op table ([`crate::ir::table`]); this
//! folder knows the container, the encodings of types, attributes and constants, and the places of
//! the user's source in the debug section. Facts from the public Tile IR documentation.

mod attribute;
mod constant;
mod debug;
mod legalize;
mod read;
mod tokens;
mod types;
mod version;
mod wire;
mod write;

pub use legalize::{Bound, Limit, legalize};
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
