//! Grids of Tile IR, and integer ranges that follow from them.

use crate::ir::{self, Entry, Module};
use crate::pass::IntRanges;

/// Maximal number of tile blocks along each axis: Tile IR counts them in 24 bits.
pub const MAX_GRID: [u32; 3] = [(1 << 24) - 1, ir::MAX_GRID[1], ir::MAX_GRID[2]];

/// Returns the integer ranges of an entry in any grid of Tile IR.
pub(super) fn facts(module: &Module, entry: &Entry) -> IntRanges {
    IntRanges::analyze_for_grid(module, entry, MAX_GRID)
}
