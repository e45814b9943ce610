//! Tiling of whole arrays, which depends on shapes and strides only.

use crate::runtime::Device;
use crate::util::collect::CollectVec as _;

/// Elements of a tile.
const TILE: usize = 1024;
/// Tile blocks that fill a GPU several times.
const BLOCKS: usize = 2048;
/// Limit of the tiles along an axis that one tile block reduces alone.
const TILES_ALONE: usize = 32;
/// Minimum of the tiles of a tile block, if several share an axis.
const TILES_EACH: usize = 4;
/// Elements of a tile for long lines with contiguous elements of up to 4 bytes; then of other long
/// lines.
const LONG_TILE: usize = 16384;
const LONG_TILE_STRIDED: usize = 4096;
/// Limit of the lines of such a tile. It suffices for wide accesses if the lines are adjacent.
const LONG_LINES: usize = 32;
/// Minimum of the tile blocks for long lines, if their tiles have at least 2 × [`TILE`] elements.
const LONG_BLOCKS: usize = 512;

/// Devices, shapes and strides of the arrays of an expression.
#[derive(Debug)]
pub struct Survey<const R: usize> {
    arrays: Vec<(Device, [usize; R], [usize; R])>,
}

impl<const R: usize> Default for Survey<R> {
    fn default() -> Self {
        Survey { arrays: Vec::new() }
    }
}

impl<const R: usize> Survey<R> {
    /// Adds an array by shape and strides.
    pub fn array(&mut self, device: Device, shape: [usize; R], strides: [usize; R]) {
        self.arrays.push((device, shape, strides));
    }

    /// Returns the device of the first array.
    pub fn device(&self) -> Device {
        self.arrays[0].0
    }

    /// Returns the shape of the first array.
    pub fn shape(&self) -> [usize; R] {
        self.arrays[0].1
    }

    /// Returns a shape that differs from that of the first array.
    pub fn other_shape(&self) -> Option<[usize; R]> {
        self.arrays.iter().map(|array| array.1).find(|&shape| shape != self.shape())
    }

    /// Returns true if all arrays are row-major and without gaps, so that they are a single line.
    pub fn is_line(&self) -> bool {
        self.arrays.iter().all(|(_, shape, strides)| {
            let mut expected = 1;
            (0..R).rev().all(|d| {
                let fits = shape[d] <= 1 || strides[d] == expected;
                expected *= shape[d];
                fits
            })
        })
    }

    /// Returns a tile for arrays of this shape. The contiguous axes have an extent for wide
    /// accesses; the remaining elements extend the last axes.
    pub fn tile(&self, shape: [usize; R]) -> [usize; R] {
        let room = |d: usize| shape[d].next_power_of_two();
        let contiguous: Vec<usize> = (0..R)
            .rev()
            .filter(|&d| self.arrays.iter().any(|(_, _, strides)| strides[d] == 1 && room(d) > 1))
            .collect_vec();
        let share = if contiguous.len() > 1 { 32 } else { TILE };
        let mut tile = [1; R];
        let mut left = TILE;
        for d in contiguous {
            tile[d] = room(d).min(share).min(left);
            left /= tile[d];
        }
        for d in (0..R).rev() {
            let more = (room(d) / tile[d]).min(left);
            tile[d] *= more;
            left /= more;
        }
        tile
    }

    /// Returns a tile for a small number of long lines along an axis, with elements of `bytes`
    /// bytes. The tile is large, because each tile has a fixed cost, and small enough for a
    /// sufficient number of tile blocks.
    pub fn long_tile(&self, axis: usize, bytes: usize) -> [usize; R] {
        let shape = self.shape();
        let mut tile = self.tile(shape);
        let mut left = LONG_LINES;
        for d in (0..R).rev().filter(|&d| d != axis) {
            tile[d] = tile[d].min(left);
            left /= tile[d];
        }
        let others = (0..R).filter(|&d| d != axis).map(|d| shape[d].div_ceil(tile[d])).product::<usize>();
        let lines = LONG_LINES / left;
        let contiguous = self.arrays.iter().all(|(_, _, strides)| strides[axis] == 1);
        let most = if contiguous { LONG_TILE * 4 / bytes.max(4) } else { LONG_TILE_STRIDED };
        let mut extent = most / lines;
        while extent > 2 * TILE / lines && others * shape[axis].div_ceil(extent) < LONG_BLOCKS {
            extent /= 2;
        }
        tile[axis] = extent.min(shape[axis].next_power_of_two());
        tile
    }
}

/// Returns the number of tiles along each axis.
pub fn counts<const R: usize>(shape: [usize; R], tile: [usize; R]) -> [usize; R] {
    std::array::from_fn(|d| shape[d].div_ceil(tile[d]))
}

/// Divides `lines` lines of `tiles` tiles into parts. Returns the tiles of each part, and the
/// number of parts of a line.
pub fn parts(tiles: usize, lines: usize) -> (usize, usize) {
    let most = if tiles <= TILES_ALONE { 1 } else { tiles.div_ceil(TILES_EACH) };
    let each = tiles.div_ceil((BLOCKS / lines.max(1)).clamp(1, most)).max(1);
    (each, tiles.div_ceil(each).max(1))
}

/// Returns the shape of one line of all elements.
pub fn line<const R: usize>(shape: [usize; R]) -> [usize; R] {
    let count = shape.iter().product();
    std::array::from_fn(|d| if d + 1 == R { count } else { 1 })
}
