//! Container of bytecode: magic number, sections, flags of functions.

/// First bytes of a file.
pub(super) const MAGIC: [u8; 8] = *b"\x7FTileIR\0";

/// Section numbers.
pub(super) mod section {
    pub const STRING: u8 = 1;
    pub const FUNC: u8 = 2;
    pub const DEBUG: u8 = 3;
    pub const CONSTANT: u8 = 4;
    pub const TYPE: u8 = 5;
    pub const GLOBAL: u8 = 6;
    pub const PRODUCER: u8 = 7;
}

/// Flag bits of a function.
pub(super) mod function {
    pub const ENTRY: u8 = 2;
    pub const HINTS: u8 = 4;
}
