//! The kernels: products of matrices with what follows them, and numbers to multiply.

use cutlet as ct;
use cutlet::prelude::*;

/// Extents in which matrices are filled and cut.
pub const GRAIN: usize = 64;

/// Configuration of a matrix multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Extents of a tile: rows, columns, and how much of the sums is taken at a time.
    pub tile: [usize; 3],
    /// Applies GELU to the sums.
    pub gelu: bool,
}

/// Row and column of the tile of the result that comes `index`-th: 16 columns of tiles row by row, so that tiles that are
/// made at the same time share what they read.
fn place(index: Scalar<i32>, [rows, columns]: [Scalar<i32>; 2]) -> [Scalar<i32>; 2] {
    let in_group = rows * 16;
    let first = index / in_group * 16;
    let width = (columns - first).min(16);
    [index % in_group / width, first + index % in_group % width]
}

/// `y = x w`, or GELU of that; each block makes one tile after another.
pub fn product(x: Array<f16, 2>, w: Array<f16, 2>, y: ArrayMut<f16, 2>, form: Form) {
    let [tm, tn, tk] = form.tile;
    let tiles = [0, 1].map(|axis| y.num_tiles(axis, [tm, tn]));
    ct::fold(ct::range(ct::bid(0), tiles[0] * tiles[1]).step(ct::num_blocks(0)), (), |(), index| {
        let [i, j] = place(index, tiles);
        let sums = ct::fold(..x.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |sums, k| {
            ct::mma(x.load([i, k], [tm, tk]), w.load([k, j], [tk, tn]), sums)
        });
        let sums = if form.gelu { sums.gelu() } else { sums };
        y.store([i, j], sums.cast::<f16>());
    });
}

/// Part of a matrix of random numbers from -`scale` to `scale`: the part that begins at these tiles of the whole.
pub fn random(y: ArrayMut<f16, 2>, (seed, scale): (Scalar<u64>, Scalar<f32>), first: [Scalar<i32>; 2]) {
    let [i, j] = [0, 1].map(ct::bid);
    let numbers = ct::random::Philox::new(seed, 0).uniform::<f32, 2>([first[0] + i, first[1] + j], [GRAIN, GRAIN]);
    y.store([i, j], ((numbers * 2.0 - 1.0) * scale).cast::<f16>());
}
