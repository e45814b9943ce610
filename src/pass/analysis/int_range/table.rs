//! Results of the integer range analysis, by value.

use rustc_hash::FxHashMap;

use super::lattice::{IntRange, RangeState};
use crate::ir::Value;

/// Extent of an array along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Constant(i64),
    Dynamic(Value),
}

/// Properties of a view of tiles.
#[derive(Clone, Debug)]
pub(super) struct ViewInfo {
    /// Extent of the array along each tile dimension.
    pub extents: Vec<Extent>,
    pub tile: Vec<i64>,
    /// Distance between adjacent tiles, in elements.
    pub steps: Vec<i64>,
    /// By tile dimension: no tile exceeds the array.
    pub covers: Vec<bool>,
}

/// Ranges and divisors of all values of an entry. They hold at each execution of the op that
/// computes the value.
#[derive(Clone, Debug, Default)]
pub struct IntRanges {
    pub(super) state: Vec<Option<RangeState>>,
    pub(super) integer: Vec<bool>,
    pub(super) views: FxHashMap<Value, ViewInfo>,
}

impl IntRanges {
    /// Returns the bounds of the signed interpretation of all elements of an integer, `None` for
    /// other values.
    pub fn range(&self, value: Value) -> Option<IntRange> {
        let state = self.integer(value)?;
        Some(IntRange { lo: state.lo, hi: state.hi })
    }

    /// Returns the largest known power of two that divides all elements; of pointers and tensor
    /// views, that divides the address in bytes. At most 2^62, 1 if nothing is known.
    pub fn divisor(&self, value: Value) -> u64 {
        self.get(value).map_or(1, |state| state.div)
    }

    /// Returns the value of all elements if it is known and unique. The interpretation is signed,
    /// so a true i1 is -1.
    pub fn constant(&self, value: Value) -> Option<i64> {
        self.integer(value)?.constant()
    }

    pub(super) fn get(&self, value: Value) -> Option<RangeState> {
        self.state.get(value.index()).copied().flatten()
    }

    fn integer(&self, value: Value) -> Option<RangeState> {
        self.integer.get(value.index()).is_some_and(|&i| i).then(|| self.get(value)).flatten()
    }
}
