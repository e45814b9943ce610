//! Bytecode of Tile IR: the writer, the reader and their common tables.
//!
//! Input: a module in memory, or the bytes of a file. Output: the bytes, or the module. No file of
//! this folder modifies a module.

pub(super) mod attribute;
pub(super) mod constant;
pub(super) mod container;
pub(super) mod debug;
pub(super) mod read;
pub(super) mod required_version;
pub(super) mod tables;
pub(super) mod types;
pub(super) mod wire;
pub(super) mod write;
