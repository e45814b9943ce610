//! Tiles of whole matrices.

use cutlet as ct;
use cutlet::Hints;
use cutlet::ops::MatrixFloat;
use cutlet::prelude::*;

use crate::check::require;
use crate::launch::of_batch;

/// The most rows of a matrix in a tile.
pub const LARGEST: usize = 128;
/// The most rows of a matrix that the operations of tiles factor.
pub const OPERATION: usize = 32;
/// Bytes of the matrices of a warp: the fastest batches in the registers of a warp.
const BYTES_OF_WARP: usize = 16 << 10;

/// Tiles of square matrices, and of right-hand sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Matrices of a tile.
    pub batch: usize,
    /// Rows of a matrix of the tile: a power of two.
    pub n: usize,
    /// Columns of the right-hand sides of the tile.
    pub k: usize,
    /// The matrices have fewer rows than the tile.
    pub is_padded: bool,
}

impl Form {
    /// Returns the tiles of `count` matrices of `n` rows, with `sides` columns of right-hand sides.
    pub fn new<T>(count: usize, n: usize, sides: usize) -> Form {
        let rows = n.next_power_of_two();
        let k = sides.next_power_of_two().min(rows.max(8));
        // Both operands of a system are in registers.
        let columns = if sides > 1 { rows + k } else { rows };
        let room = BYTES_OF_WARP / (rows * columns * size_of::<T>());
        let batch = 1 << room.max(1).min(of_batch(count, usize::MAX / 2).next_power_of_two()).ilog2();
        Form { batch, n: rows, k, is_padded: rows != n }
    }

    /// The number of tiles of a batch of `count` matrices.
    pub fn blocks(self, count: usize) -> usize {
        count.div_ceil(self.batch)
    }

    /// Returns hints with a warp for 16 KiB of matrices: reductions of a column cross few warps.
    pub fn hints<T>(self) -> Hints {
        let bytes = self.batch * self.n * self.n * size_of::<T>();
        let own = if self.n > OPERATION { BYTES_OF_WARP / 2 } else { BYTES_OF_WARP };
        Hints::new().num_warps((bytes / own).clamp(1, 16) as u32)
    }

    /// Loads the matrices of a tile block. Rows and columns outside are those of the identity.
    pub fn load<T: MatrixFloat>(self, a: Array<T, 3>) -> Tile<T, 3> {
        let shape = [self.batch, self.n, self.n];
        let tile = a.load((ct::bid(0), 0, 0), shape);
        if !self.is_padded {
            return tile;
        }
        let [rows, columns] = [1, 2].map(|axis| ct::indices(shape, axis));
        let is_one = rows.ge(a.extent(1)) & rows.eq(columns);
        is_one.select(T::from_f64(1.0), tile)
    }

    /// Loads the right-hand sides of a tile block, with zeros outside.
    pub fn load_sides<T: MatrixFloat>(self, b: Array<T, 3>) -> Tile<T, 3> {
        b.load((ct::bid(0), 0, ct::bid(1)), [self.batch, self.n, self.k])
    }

    /// Stores solutions at the place of their right-hand sides.
    pub fn store_sides<T: MatrixFloat>(self, x: ArrayMut<T, 3>, tile: Tile<T, 3>) {
        x.store((ct::bid(0), 0, ct::bid(1)), tile);
    }
}

/// Bytes of a panel of a large matrix: a quarter of the registers of a multiprocessor. Twice as
/// many spill.
const PANEL_BYTES: usize = 64 << 10;
/// The most columns of a panel.
const WIDEST: usize = 32;

/// Returns the number of columns of the panels of matrices of `n` rows.
#[track_caller]
pub fn panel_width<T>(name: &str, n: usize) -> ct::Result<usize> {
    let most = PANEL_BYTES / size_of::<T>();
    require(n <= most, || format!("{name}: matrices of {n} rows, and {most} is the largest number"))?;
    Ok((most / n.next_power_of_two()).min(WIDEST))
}

/// Returns hints with a warp for 4 KiB of a panel.
pub fn panel_hints<T>(height: usize, width: usize) -> Hints {
    Hints::new().num_warps((height * width * size_of::<T>() / (4 << 10)).clamp(1, 16) as u32)
}

/// Checks that arrays hold square matrices.
#[track_caller]
pub fn require_square(name: &str, [_, rows, columns]: [usize; 3]) -> ct::Result<()> {
    require(rows == columns, || format!("{name}: matrices of {rows} rows and {columns} columns are not square"))
}

/// Checks that a matrix fits a tile.
#[track_caller]
pub fn require_small(name: &str, rows: usize) -> ct::Result<()> {
    require(rows <= LARGEST, || format!("{name}: matrices of {rows} rows, and {LARGEST} is the largest number"))
}

/// Checks that two arrays have one shape.
#[track_caller]
pub fn require_same<const R: usize>(name: &str, what: &str, shape: [usize; R], wanted: [usize; R]) -> ct::Result<()> {
    require(shape == wanted, || format!("{name}: {what} is of shape {shape:?}, not {wanted:?}"))
}
