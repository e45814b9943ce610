//! Tiles of groups of rows that begin anywhere: each group has tiles of its own, which begin at its
//! first row.
//!
//! Group g has the row tiles from offset(g) / m + g on, for tiles of m rows. The next group begins
//! after its last tile, and at most one tile of a group has no rows. So a search in the offsets
//! finds the group of a tile, by scalars alone.

use cutlet as ct;
use cutlet::prelude::*;

use super::tile_order::order;
use crate::products::epilogue::Place;

/// Returns the number of row tiles of all groups.
pub fn num_row_tiles(rows: Scalar<i32>, groups: usize, tm: usize) -> Scalar<i32> {
    rows / tm as i32 + groups as i32
}

/// Returns the position of the tile with an index, and true if it has rows.
pub fn place(
    (offsets, groups): (Array<i32, 1>, usize),
    index: Scalar<i32>,
    (tiles, columns): ([Scalar<i32>; 2], Scalar<i32>),
    tile: [usize; 3],
) -> (Place, Scalar<bool>) {
    let tm = tile[0] as i32;
    let [row, column] = order(index, tiles, tile);
    let first = |group: Scalar<i32>| offsets.load_scalar(group) / tm + group;
    let (mut group, mut step) = (ct::scalar(0), groups.next_power_of_two() / 2);
    while step > 0 {
        let next = (group + step as i32).min(groups as i32 - 1);
        group = ct::select(first(next).le(row), next, group);
        step /= 2;
    }
    let [begin, end] = [0, 1].map(|next| offsets.load_scalar(group + next));
    let row = row - first(group);
    let extents = [end - begin, columns];
    (Place { row, column, batch: group, group: Some([begin, end]), extents }, (row * tm).lt(end - begin))
}
