//! Comparisons of numbers that a launch knows.

/// A number that a launch knows before the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// Tile blocks along an axis of the grid.
    Grid(u8),
    /// An entry parameter, by position, read as signed.
    Param(u32),
    /// How many tiles of `tile` elements cover an extent that is an entry parameter.
    Tiles {
        /// Position of the extent among the entry parameters.
        param: u32,
        /// Extent of a tile.
        tile: u32,
    },
    /// A constant.
    Constant(i64),
}

/// What must hold at a launch: `index <= count`, so that tile indices below `index` are inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    /// Upper end (exclusive) of the indices that the kernel uses.
    pub index: Bound,
    /// Tiles along that dimension of the array.
    pub count: Bound,
}

impl Limit {
    /// Do constants leave it open, or true?
    pub(super) fn can_hold(&self) -> bool {
        match (self.index, self.count) {
            (Bound::Constant(index), Bound::Constant(count)) => index <= count,
            _ => true,
        }
    }
}

impl Bound {
    /// The number at a launch with this grid and these parameter words (extents sign-extended).
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
