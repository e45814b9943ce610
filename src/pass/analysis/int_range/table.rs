//! The facts themselves, by value.

use rustc_hash::FxHashMap;

use super::lattice::{Known, Range};
use crate::ir::Value;

/// The extent of an array along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Constant(i64),
    Dynamic(Value),
}

/// A view of tiles.
#[derive(Clone, Debug)]
pub(super) struct ViewFacts {
    /// Extent of the array along each tile dimension.
    pub extents: Vec<Extent>,
    pub tile: Vec<i64>,
    /// Distance of neighbouring tiles in elements.
    pub steps: Vec<i64>,
    /// Does no tile stick out along this dimension?
    pub covers: Vec<bool>,
}

/// Facts about every value of an entry that hold whenever the value is computed.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub(super) known: Vec<Option<Known>>,
    pub(super) integer: Vec<bool>,
    pub(super) views: FxHashMap<Value, ViewFacts>,
}

impl Facts {
    /// Bounds of the signed reading of every element of an integer value; `None` for other values.
    pub fn range(&self, value: Value) -> Option<Range> {
        let known = self.integer(value)?;
        Some(Range { lo: known.lo, hi: known.hi })
    }

    /// Largest known power of two that divides every element (pointers and tensor views: the address
    /// in bytes). At most 2^62; 1 if nothing is known.
    pub fn divisor(&self, value: Value) -> u64 {
        self.get(value).map_or(1, |known| known.div)
    }

    /// The one value that every element has (signed reading, so a true i1 is -1), if it is known.
    pub fn constant(&self, value: Value) -> Option<i64> {
        self.integer(value)?.constant()
    }

    pub(super) fn get(&self, value: Value) -> Option<Known> {
        self.known.get(value.index()).copied().flatten()
    }

    fn integer(&self, value: Value) -> Option<Known> {
        self.integer.get(value.index()).is_some_and(|&i| i).then(|| self.get(value)).flatten()
    }
}
