//! Comparisons of numbers that a launch can compute.

/// A number that a launch can compute before the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// Number of tile blocks along an axis of the grid.
    Grid(u8),
    /// An entry parameter, by position, as a signed number.
    Param(u32),
    /// Number of tiles of `tile` elements of an extent that is an entry parameter.
    Tiles {
        /// Position of the extent among the entry parameters.
        param: u32,
        /// Extent of a tile.
        tile: u32,
    },
    /// A constant.
    Constant(i64),
}

/// Condition of a launch: `index <= count`, so that tile indices below `index` are inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    /// Exclusive upper bound of the indices of the kernel.
    pub index: Bound,
    /// Number of tiles along that dimension of the array.
    pub count: Bound,
}

impl Limit {
    /// Returns false if both sides are constants that contradict the condition.
    pub(super) fn can_hold(&self) -> bool {
        match (self.index, self.count) {
            (Bound::Constant(index), Bound::Constant(count)) => index <= count,
            _ => true,
        }
    }
}

impl Bound {
    /// Returns the number for a launch with this grid and these parameter words (extents
    /// sign-extended).
    pub fn value(self, grid: [u32; 3], param: impl Fn(u32) -> i64) -> i64 {
        match self {
            Bound::Grid(axis) => grid[usize::from(axis)].into(),
            Bound::Param(index) => param(index),
            Bound::Tiles { param: index, tile } => {
                let (extent, tile) = (param(index), i64::from(tile));
                extent / tile + i64::from(extent % tile != 0)
            }
            Bound::Constant(value) => value,
        }
    }
}
