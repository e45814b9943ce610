//! Product of 8-bit floats with scales for blocks of them: `cargo run --example scaled_matmul`.

use cutlet as ct;
use cutlet::prelude::*;

/// Terms of the sums, and columns of the second matrix, that share a scale. Each row of the first
/// matrix has its own.
pub const BLOCK: usize = 128;
/// Scales in 16 bytes, the alignment of a TMA box.
const GRAIN: usize = 4;
/// Rows and columns of a tile of the result; the columns are a multiple of 64.
pub type Extents = [usize; 2];

/// Arrays of m x k and k x n, with scales of k / 128 x m and k / 128 x n / 128. Blocks compute one
/// tile of the result after another.
pub fn scaled_matmul(
    (a, b): (Array<f8e4m3fn, 2>, Array<f8e4m3fn, 2>),
    (rows, columns): (Array<f32, 2>, Array<f32, 2>),
    c: ArrayMut<bf16, 2>,
    [tm, tn]: Extents,
) {
    // Columns of a piece with one scale, and the number of pieces of a tile.
    let piece = if tn.is_multiple_of(BLOCK) { BLOCK } else { BLOCK / 2 };
    let pieces = tn / piece;
    let tiles = [c.num_tiles(0, [tm, tn]), c.num_tiles(1, [tm, tn])];
    let blocks = a.num_tiles(1, [tm, BLOCK]);
    // A tile of the result overlaps few blocks of columns. Their scales are loaded in grains of 16
    // bytes, and begin at any position of a grain.
    let columns = columns.tiled([1, (GRAIN + tn.div_ceil(BLOCK)).next_power_of_two()]).step([1, GRAIN]);
    ct::fold(ct::range(ct::bid(0), tiles[0] * tiles[1]).step(ct::num_blocks(0)), (), |(), index| {
        let [i, j] = ct::swizzle_2d(index, tiles[0], tiles[1], 16);
        // Scales of one block of terms: rows have their own, pieces have those of their blocks of
        // columns.
        let per = BLOCK / piece;
        let first = j * pieces / per;
        // True if the first piece is the second half of its block.
        let late = (j * pieces % per).ne(0);
        let sums = ct::fold(..blocks, vec![ct::zeros([tm, piece]); pieces], |sums, k| {
            let (a, b) = (a.load((i, k), [tm, BLOCK]), b.load((k, j), [BLOCK, tn]));
            let (rows, columns) = (rows.load((k, i), [1, tm]).reshape([tm, 1]), columns.load((k, first / GRAIN)));
            let column = |block: usize| columns.extract((0, first % GRAIN + block), [1, 1]);
            // The sums of a block of terms, which tensor cores accumulate themselves.
            let product = ct::mma_fast_acc(a, b, ct::zeros::<f32, 2>([tm, tn]));
            let add = |(p, sum): (usize, Tile<f32, 2>)| {
                let column = match [p / per, (p + 1) / per] {
                    [early, later] if early < later && per > 1 => ct::select(late, column(later), column(early)),
                    [block, _] => column(block),
                };
                product.extract([0, p], [tm, piece]).fma(rows * column, sum)
            };
            sums.into_iter().enumerate().map(add).collect::<Vec<_>>()
        });
        c.store((i, j), ct::cat(sums, 1).cast::<bf16>());
    });
}

fn main() -> ct::Result<()> {
    let (m, n, k, extents) = (200usize, 300usize, 400usize, [64, 192]);
    let blocks = k.div_ceil(BLOCK);
    let (x, y) = (|at: usize| (at as f32 * 0.37).sin(), |at: usize| (at as f32 * 0.11).cos());
    let (x, y) = (|i, l| f8e4m3fn::from_f32(x(i * k + l)), |l, j| f8e4m3fn::from_f32(y(l * n + j)));
    let scale = |at: usize| 0.5 + (at % 7) as f32 / 4.0;
    let device = ct::Device::first()?;
    // Both are contiguous along the sums, the order of 8-bit floats for tensor cores.
    let (a, b) = (device.from_fn([m, k], |[i, l]| x(i, l))?, device.from_fn([n, k], |[j, l]| y(l, j))?);
    let rows = device.from_fn([blocks, m], |[l, i]| scale(l * m + i))?;
    let columns = device.from_fn([blocks, n.div_ceil(BLOCK)], |[l, j]| scale(3 * l + j))?;
    let mut c = device.zeros([m, n])?;
    let tiles = m.div_ceil(extents[0]) * n.div_ceil(extents[1]);
    let grid = tiles.min(device.num_multiprocessors());
    ct::launch(scaled_matmul, grid, ((&a, b.transpose()?), (&rows, &columns), &mut c, Constant(extents)))?;

    let c = c.to_vec()?;
    // Errors are relative to the magnitude of the terms.
    let error = |at: usize| {
        let (i, j) = (at / n, at % n);
        let scale = |l: usize| f64::from(scale(l / BLOCK * m + i)) * f64::from(scale(3 * (l / BLOCK) + j / BLOCK));
        let terms = || (0..k).map(|l| x(i, l).to_f64() * y(l, j).to_f64() * scale(l));
        (c[at].to_f64() - terms().sum::<f64>()).abs() / terms().map(f64::abs).sum::<f64>()
    };
    let error = (0..m * n).map(error).max_by(f64::total_cmp).unwrap_or(0.0);
    println!("scaled_matmul: e4m3 {m} x {n} x {k}, {grid} blocks, {}, largest error {error:.1e}", device.name());
    assert!(error <= 5e-3, "wrong results");
    Ok(())
}
