//! Common parts of kernels over rows: a tile block for each row of an array of four axes.

/// The most elements of a row in registers at a time.
pub const LONGEST_TILE: usize = 16384;
/// The tile of longer rows.
pub const TILE: usize = 8192;

/// Returns the grid with a block for each row: the innermost axis comes first.
pub fn grid(shape: [usize; 4]) -> [usize; 3] {
    [shape[2], shape[1], shape[0]]
}

/// Returns the tile of a whole row, if registers have room for it.
pub fn whole(shape: [usize; 4]) -> Option<usize> {
    Some(shape[3].next_power_of_two()).filter(|&tile| tile <= LONGEST_TILE)
}
