//! Tiles of groups of rows that begin anywhere: each group has tiles of its own, which begin at its first row.

use cutlet as ct;
use cutlet::prelude::*;

use crate::products::epilogue::Place;

/// First rows, ends, and numbers of tiles of all groups.
pub struct Groups {
    offsets: Array<i32, 1>,
    /// The number of row tiles up to each group, this one included.
    until: Tile<i32, 1>,
    /// The number of row tiles of each group.
    tiles: Tile<i32, 1>,
}

impl Groups {
    /// Returns the groups between adjacent offsets, in tiles of `tm` rows.
    pub fn new(offsets: Array<i32, 1>, count: usize, tm: usize) -> Groups {
        let padded = count.next_power_of_two();
        let (begin, end) = (offsets.load(0, [padded]), offsets.load(ct::at(1), [padded]));
        let is_group = ct::arange(0..padded).lt(count as i32);
        let rows = ct::select(is_group, (end - begin).max(0), 0);
        let tiles = rows.ceil_div(tm as i32);
        Groups { offsets, until: tiles.cumsum(0), tiles }
    }

    /// Returns the number of row tiles of all groups.
    pub fn tiles(&self) -> Scalar<i32> {
        self.tiles.sum(0).item()
    }

    /// Returns the position of the tile with an index. Row tiles of a group are adjacent: they share the right operand.
    pub fn place(&self, index: Scalar<i32>, [column_tiles, columns]: [Scalar<i32>; 2]) -> Place {
        let is_before = (self.until * column_tiles).le(index);
        let group = is_before.cast::<i32>().sum(0).item();
        let before = ct::select(is_before, self.tiles, 0).sum(0).item();
        let [begin, end] = [0, 1].map(|next| self.offsets.load_scalar(group + next));
        let rows = (self.tiles * ct::arange(0..self.tiles.shape()[0]).eq(group).cast::<i32>()).sum(0).item().max(1);
        let index = index - before * column_tiles;
        let extents = [end - begin, columns];
        Place { row: index % rows, column: index / rows, batch: group, group: Some([begin, end]), extents }
    }
}
