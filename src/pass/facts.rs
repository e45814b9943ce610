//! What is known about integer values and addresses of a kernel.

use crate::ir::{Entry, Module, Value};

/// Inclusive bounds of the signed reading of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Smallest value.
    pub lo: i64,
    /// Largest value.
    pub hi: i64,
}

/// Facts about every value of an entry that hold whenever the value is computed.
///
/// Of a tile, they hold for every element.
#[derive(Clone, Debug)]
pub struct Facts {}

impl Facts {
    /// Derives the facts of one entry of a verified module.
    pub fn analyze(_module: &Module, _entry: &Entry) -> Facts {
        Facts {}
    }

    /// Bounds of the signed reading of every element of an integer value; `None` for other values.
    pub fn range(&self, _value: Value) -> Option<Range> {
        None
    }

    /// Largest known power of two that divides every element (pointers and tensor views: the address in bytes).
    ///
    /// At most 2^62; 1 if nothing is known.
    pub fn divisor(&self, _value: Value) -> u64 {
        1
    }

    /// The one value that every element has (signed reading), if it is known.
    pub fn constant(&self, _value: Value) -> Option<i64> {
        None
    }

    /// Does every tile of this view, at an index inside the index space, lie inside of the array
    /// along tile dimension `dim`? True when the array's extent is known to be a multiple of the
    /// tile's: then no element of an access needs a check along `dim`.
    pub fn covers(&self, _view: Value, _dim: usize) -> bool {
        false
    }
}
