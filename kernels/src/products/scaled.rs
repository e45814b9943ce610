//! Products of 8-bit floats with scales of blocks of 128 terms, as in DeepSeek-V3: 1 x 128 of the left operand, and 128 x 128
//! or 128 x 1 of the right one.
//!
//! Tensor cores add 128 terms to zero; a multiply-add with the scales of this block adds them to the sums. The scales are
//! copied with the operands. The two warp groups of a tile block multiply in turn: one scales while the other multiplies.

use cutlet as ct;
use cutlet::element::{Element, MmaInput};
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use super::epilogue::{Epilogue, Extents, Place, Stage};
use super::matmul::Matmul;
use super::prologue::Same;
use crate::check::require;
use crate::choice::{Problem, bucket, choose};
use crate::launch::{Run, num_multiprocessors, target};

/// Terms of the sums, and columns of the right operand, that share a scale.
const BLOCK: usize = 128;
/// Scales in 16 bytes: a copy by TMA begins at a multiple of them.
const GRAIN: usize = 4;

/// A configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Rows and columns of a tile; columns are a multiple of 64.
    tile: [usize; 2],
    /// Tile blocks of a cluster.
    cluster: u32,
    /// Each column of the right operand has a scale of its own.
    by_column: bool,
}

/// One tile of the result after another. Scales have the shapes (k / 128, m), and (k / 128, n / 128) or (k / 128, n).
fn product<T: Float8, O: Element, E: Stage<f32>>(
    (a, b): (Array<T, 2>, Array<T, 2>),
    (rows, columns): (Array<f32, 2>, Array<f32, 2>),
    c: ArrayMut<O, 2>,
    epilogue: E,
    Form { tile: [tm, tn], by_column, .. }: Form,
) {
    // Columns that share a scale, and their number.
    let piece = if tn.is_multiple_of(BLOCK) { BLOCK } else { BLOCK / 2 };
    let (pieces, per) = (tn / piece, BLOCK / piece);
    let tiles = [a.num_tiles(0, [tm, BLOCK]), b.num_tiles(1, [BLOCK, tn])];
    let extents = [a.extent(0), b.extent(1)];
    // The scales of a tile arrive in whole grains of 16 bytes, among which they begin anywhere.
    let of_blocks = columns.tiled([1, (GRAIN + tn.div_ceil(BLOCK)).next_power_of_two()]).step([1, GRAIN]);
    ct::fold(ct::range(ct::bid(0), tiles[0] * tiles[1]).step(ct::num_blocks(0)), (), |(), index| {
        let [i, j] = ct::swizzle_2d(index, tiles[0], tiles[1], 16);
        let first = j * pieces / per as i32;
        // The first piece is the second half of its block.
        let is_late = (j * pieces % per as i32).ne(0);
        let sums = ct::fold(..a.num_tiles(1, [tm, BLOCK]), vec![ct::zeros([tm, piece]); pieces], |sums, k| {
            let (a, b) = (a.load((i, k), [tm, BLOCK]), b.load((k, j), [BLOCK, tn]));
            let rows = rows.load((k, i), [1, tm]).reshape([tm, 1]);
            // Tensor cores keep the bits of so few terms.
            let product = ct::mma_fast_acc(a, b, ct::zeros::<f32, 2>([tm, tn]));
            let add = |scale: &dyn Fn(usize) -> Tile<f32, 2>| {
                let sum = |(p, sum): (usize, Tile<f32, 2>)| product.extract([0, p], [tm, piece]).fma(scale(p), sum);
                sums.iter().copied().enumerate().map(sum).collect::<Vec<_>>()
            };
            if by_column {
                let columns = columns.load((k, j), [1, tn]);
                return add(&|p| rows * columns.extract((0, p), [1, piece]));
            }
            let columns = of_blocks.load((k, first / GRAIN as i32));
            let column = |block: usize| columns.extract((0, first % GRAIN as i32 + block as i32), [1, 1]);
            add(&|p| match [p / per, (p + 1) / per] {
                [early, later] if early < later && per > 1 => rows * ct::select(is_late, column(later), column(early)),
                [block, _] => rows * column(block),
            })
        });
        let values = sums.into_iter().enumerate().map(|(p, sums)| {
            let column = j * pieces + p as i32;
            let at = Place { row: i, column, batch: ct::scalar(0), group: None, extents };
            epilogue.apply(sums, at).cast::<O>()
        });
        c.store((i, j), ct::cat(values.collect::<Vec<_>>(), 1));
    });
}

/// Element types of operands with scales of blocks: e4m3, e5m2.
pub trait Float8: Element + MmaInput<Self, f32> {}
impl Float8 for f8e4m3fn {}
impl Float8 for f8e5m2 {}

impl<E: Epilogue<f32>> Matmul<'_, Same, E> {
    /// Queues the product of operands with scales: c of shape (m, n) from a of (m, k) and b of (k, n). `rows` has the scales of
    /// 128 elements of a row of a, in the shape (k / 128, m). `columns` has the scales of blocks of 128 x 128 of b, in the shape
    /// (k / 128, n / 128), or those of 128 elements of a column, in the shape (k / 128, n). Quotients are rounded up.
    ///
    /// Operands contiguous along the terms are fastest: b is then the transpose of an array of (n, k).
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// let device = ct::Device::cpu();
    /// let (a, b) = (device.full([3, 256], f8e4m3fn::from_f32(1.0))?, device.full([4, 256], f8e4m3fn::from_f32(2.0))?);
    /// let (rows, columns) = (device.full([2, 3], 0.5f32)?, device.full([2, 1], 0.25f32)?);
    /// let mut c = device.zeros::<f32, 2>([3, 4])?;
    /// let (stream, b) = (device.default_stream(), b.view().transpose()?);
    /// cutlet_kernels::matmul().launch_scaled(&stream, (a.view(), rows.view()), (b, columns.view()), c.view_mut())?;
    /// assert_eq!(c.to_vec()?, [64.0; 12]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
    #[track_caller]
    pub fn launch_scaled<T: Float8, O: Element>(
        mut self,
        stream: &Stream,
        (a, rows): (DeviceView<T, 2>, DeviceView<f32, 2>),
        (b, columns): (DeviceView<T, 2>, DeviceView<f32, 2>),
        mut c: DeviceViewMut<O, 2>,
    ) -> ct::Result<()> {
        let ([m, k], [terms, n]) = (a.shape(), b.shape());
        require(k == terms, || format!("operands of shapes {:?} and {:?}", a.shape(), b.shape()))?;
        let blocks = k.div_ceil(BLOCK);
        require(rows.shape() == [blocks, m], || format!("scales of shape {:?}, not {:?}", rows.shape(), [blocks, m]))?;
        let by_column = columns.shape() == [blocks, n] && n > 1;
        let expected = [blocks, n.div_ceil(BLOCK)];
        let fits = by_column || columns.shape() == expected;
        require(fits, || format!("scales of shape {:?}, not {expected:?} or {:?}", columns.shape(), [blocks, n]))?;
        let values = self.epilogue.check(Extents { batches: 1, rows: m, columns: n, is_grouped: false })?;
        let expected = [m, values.columns];
        require(c.shape() == expected, || format!("a result of shape {:?}, not {expected:?}", c.shape()))?;
        if c.is_empty() {
            return Ok(());
        }
        let (width, multiprocessors) = (self.epilogue.width(), num_multiprocessors(stream));
        let problem = Problem {
            kernel: "scaled_matmul",
            types: &[T::NAME, O::NAME, if by_column { "columns" } else { "blocks" }],
            extents: &[bucket(m), n, k, width],
            is_estimated: m > 64,
        };
        let is_fast = target(stream).is_some_and(|target| target.arch >= 90);
        let space = || {
            let form = |tile, cluster| Form { tile, cluster, by_column };
            let all = match (is_fast, m) {
                (false, _) => vec![form([32, 128], 1)],
                (true, 0..=64) => vec![form([64, 128], 1), form([64, 64], 1)],
                (true, _) => vec![form([128, 192], 2), form([128, 192], 1), form([128, 128], 1)],
            };
            // A strip of the epilogue is a block, or a half of a block.
            all.into_iter().filter(|one| width <= 64 || one.tile[1].is_multiple_of(BLOCK)).collect()
        };
        let mut run = |one: &Form| {
            let tiles = m.div_ceil(one.tile[0]) * n.div_ceil(one.tile[1]);
            let grid = match one.cluster {
                1 => tiles.min(multiprocessors),
                cluster => tiles.next_multiple_of(cluster as usize).min(multiprocessors / 2 * 2),
            };
            let hints = if one.cluster > 1 { Hints::new().num_ctas(one.cluster) } else { Hints::new() };
            let args = ((a, b), (rows, columns), &mut c, self.epilogue.arg(), ct::Constant(*one));
            ct::Launch::new(grid).hints(hints).stream(stream).run(product::<T, O, E::Kernel>, args)
        };
        let chosen = choose(stream, problem, None, space, &mut run)?;
        run(&chosen)
    }
}
