//! Order of the tiles of a result: groups of adjacent rows or columns of tiles.

use cutlet::prelude::*;

/// Returns row and column of the tile with an index. A group of rows (or columns) of tiles is
/// traversed column by column, so that tiles of concurrent blocks share their operands. Adjacent
/// tiles share the longer side, which clusters load once.
pub fn order(index: Scalar<i32>, [rows, columns]: [Scalar<i32>; 2], [tm, tn, _]: [usize; 3]) -> [Scalar<i32>; 2] {
    let (along, across) = if tm > tn { (columns, rows) } else { (rows, columns) };
    let group = if tm > tn || tn >= 2 * tm { 16 } else { 8 };
    let in_group = across * group;
    let first = index / in_group * group;
    let height = (along - first).min(group);
    let (near, far) = (first + index % in_group % height, index % in_group / height);
    if tm > tn { [far, near] } else { [near, far] }
}
