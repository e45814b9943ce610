//! The grids that Tile IR runs, and what follows of a kernel from them.

use crate::ir::{self, Entry, Module};
use crate::pass::IntRanges;

/// Most tile blocks along each axis: Tile IR counts them in 24 bits.
pub const MAX_GRID: [u32; 3] = [(1 << 24) - 1, ir::MAX_GRID[1], ir::MAX_GRID[2]];

/// Facts about an entry in any such grid.
pub(super) fn facts(module: &Module, entry: &Entry) -> IntRanges {
    IntRanges::analyze_for_grid(module, entry, MAX_GRID)
}
