//! Products of 8-bit floats with scales of blocks of 128 terms, as in DeepSeek-V3: 1 x 128 of the
//! left operand, and 128 x 128 or 128 x 1 of the right one. Groups of rows may have a right operand
//! each.
//!
//! Tensor cores add 128 terms to zero; a multiply-add with the scales of this block adds them to
//! the sums. The scales are copied with the operands. The two warp groups of a tile block multiply
//! alternately: one scales while the other multiplies.

use cutlet as ct;
use cutlet::element::{Element, MmaInput};
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use super::epilogue::{Argument, Epilogue, Extents, Place, Stage};
use super::matmul::{Left, Matmul, Right, Target, group_place, num_row_tiles};
use super::prologue::Same;
use crate::check::require;
use crate::choice::{Problem, bucket, choose};
use crate::launch::{Run, is_batch_invariant, num_multiprocessors, of_batch, target};

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
    /// The number of groups, or 0.
    groups: usize,
}

/// One tile of the result after another. Scales have the shapes (k / 128, m), and (k / 128, n
/// / 128) or (k / 128, n); the latter ones of all groups follow one another.
fn product<T: Float8, O: Element, B: Right<T>, E: Stage<f32>>(
    (a, b): (Array<T, 2>, B),
    (rows, columns): (Array<f32, 2>, Array<f32, 2>),
    (offsets, c): (Option<Array<i32, 1>>, ArrayMut<O, 2>),
    epilogue: E,
    Form { tile: [tm, tn], by_column, groups, .. }: Form,
) {
    // Columns that share a scale, and their number.
    let piece = if tn.is_multiple_of(BLOCK) { BLOCK } else { BLOCK / 2 };
    let (pieces, per) = (tn / piece, BLOCK / piece);
    let (blocks, extents) = (a.num_tiles(1, [tm, BLOCK]), [a.extent(0), b.extents()[1]]);
    let row_tiles = match offsets {
        Some(_) => num_row_tiles(extents[0], groups, tm),
        None => a.num_tiles(0, [tm, BLOCK]),
    };
    let tiles = [row_tiles, extents[1].ceil_div(tn as i32)];
    // The scales of a tile arrive in whole grains of 16 bytes, among which they begin anywhere.
    let of_blocks = columns.tiled([1, (GRAIN + tn.div_ceil(BLOCK)).next_power_of_two()]).step([1, GRAIN]);
    ct::fold(ct::range(ct::bid(0), tiles[0] * tiles[1]).step(ct::num_blocks(0)), (), |(), index| {
        let (at, steps) = match offsets {
            Some(offsets) => {
                let (at, has_rows) = group_place((offsets, groups), index, (tiles, extents[1]), [tm, tn, BLOCK]);
                (at, ct::select(has_rows, blocks, 0))
            }
            None => {
                let [row, column] = ct::swizzle_2d(index, tiles[0], tiles[1], 16);
                (Place { row, column, batch: ct::scalar(0), group: None, extents }, blocks)
            }
        };
        let j = at.column;
        let first = j * pieces / per as i32;
        // The first piece is the second half of its block.
        let is_late = (j * pieces % per as i32).ne(0);
        let sums = ct::fold(..steps, vec![ct::zeros([tm, piece]); pieces], |sums, k| {
            let (a, b) = (Left::load(&(Same, a), at, k, [tm, BLOCK]), b.load(at, k, [BLOCK, tn]));
            let rows = match at.group {
                Some([begin, _]) => rows.load((k, ct::at(begin + at.row * tm)), [1, tm]),
                None => rows.load((k, at.row), [1, tm]),
            };
            let rows = rows.reshape([tm, 1]);
            // Tensor cores keep the bits of so few terms.
            let product = ct::mma_fast_acc(a, b, ct::zeros::<f32, 2>([tm, tn]));
            let add = |scale: &dyn Fn(usize) -> Tile<f32, 2>| {
                let sum = |(p, sum): (usize, Tile<f32, 2>)| product.extract([0, p], [tm, piece]).fma(scale(p), sum);
                sums.iter().copied().enumerate().map(sum).collect::<Vec<_>>()
            };
            let k = if groups > 0 { at.batch * blocks + k } else { k };
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
            epilogue.apply(sums, Place { column, ..at }).cast::<O>()
        });
        Target::store(c, at, ct::cat(values.collect::<Vec<_>>(), 1));
    });
}

/// Element types of operands with scales of blocks: e4m3, e5m2.
pub trait Float8: Element + MmaInput<Self, f32> {}
impl Float8 for f8e4m3fn {}
impl Float8 for f8e5m2 {}

impl<E: Epilogue<f32>> Matmul<'_, Same, E> {
    /// Queues the product of operands with scales: c of shape (m, n) from a of (m, k) and b of (k,
    /// n). `rows` has the scales of 128 elements of a row of a, in the shape (k / 128, m).
    /// `columns` has the scales of blocks of 128 x 128 of b, in the shape (k / 128, n / 128). With
    /// the shape (k / 128, n), it has those of 128 elements of a column. Quotients are rounded up.
    ///
    /// Operands contiguous along the terms are fastest: b is then the transpose of an array of (n,
    /// k).
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
        self,
        stream: &Stream,
        a: (DeviceView<T, 2>, DeviceView<f32, 2>),
        (b, columns): (DeviceView<T, 2>, DeviceView<f32, 2>),
        c: DeviceViewMut<O, 2>,
    ) -> ct::Result<()> {
        let ([_, k], [terms, n]) = (a.0.shape(), b.shape());
        require(k == terms, || format!("operands of shapes {:?} and {:?}", a.0.shape(), b.shape()))?;
        let expected = [k.div_ceil(BLOCK), n.div_ceil(BLOCK)];
        let by_column = columns.shape() == [expected[0], n] && n > 1;
        require(by_column || columns.shape() == expected, || {
            format!("scales of shape {:?}, not {expected:?} or {:?}", columns.shape(), [expected[0], n])
        })?;
        self.queue_scaled(stream, a, (b, n, columns, by_column), (None, 0), c)
    }

    /// Queues products of groups of rows with a matrix for each group, and with scales as in
    /// [`Matmul::launch_scaled`]: b of shape (groups, k, n) and its scales of (groups, k / 128, n
    /// / 128) or (groups, k / 128, n). `offsets` and groups are those of
    /// [`Matmul::launch_grouped`].
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// let device = ct::Device::cpu();
    /// let (a, b) = (device.full([3, 128], f8e4m3fn::from_f32(1.0))?, device.full([2, 4, 128], f8e4m3fn::from_f32(2.0))?);
    /// let (rows, columns) = (device.full([1, 3], 0.5f32)?, device.array(&[0.25f32, 1.0], [2, 1, 1])?);
    /// let (offsets, mut c) = (device.array(&[0, 1, 3], [3])?, device.zeros::<f32, 2>([3, 4])?);
    /// let (a, b) = ((a.view(), rows.view()), (b.view().permute([0, 2, 1])?, columns.view()));
    /// let stream = device.default_stream();
    /// cutlet_kernels::matmul().launch_scaled_grouped(&stream, a, b, offsets.view(), c.view_mut())?;
    /// assert_eq!(c.to_vec()?, [32.0, 32.0, 32.0, 32.0, 128.0, 128.0, 128.0, 128.0, 128.0, 128.0, 128.0, 128.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
    #[track_caller]
    pub fn launch_scaled_grouped<T: Float8, O: Element>(
        self,
        stream: &Stream,
        a: (DeviceView<T, 2>, DeviceView<f32, 2>),
        (b, columns): (DeviceView<T, 3>, DeviceView<f32, 3>),
        offsets: DeviceView<i32, 1>,
        c: DeviceViewMut<O, 2>,
    ) -> ct::Result<()> {
        let ([_, k], [groups, terms, n]) = (a.0.shape(), b.shape());
        require(k == terms && offsets.shape() == [groups + 1], || {
            let count = offsets.shape()[0];
            format!("operands of shapes {:?} and {:?}, {count} offsets", a.0.shape(), b.shape())
        })?;
        let expected = [groups, k.div_ceil(BLOCK), n.div_ceil(BLOCK)];
        let by_column = columns.shape() == [groups, expected[1], n] && n > 1;
        require(by_column || columns.shape() == expected, || {
            format!("scales of shape {:?}, not {expected:?} or {:?}", columns.shape(), [groups, expected[1], n])
        })?;
        if groups == 0 {
            return Ok(());
        }
        let columns = columns.reshape([groups * expected[1], columns.shape()[2]])?;
        self.queue_scaled(stream, a, (b, n, columns, by_column), (Some(offsets), groups), c)
    }

    /// Chooses the configuration, and queues the kernel.
    #[track_caller]
    fn queue_scaled<T: Float8, O: Element, B: Argument<Kernel: Right<T>>>(
        mut self,
        stream: &Stream,
        (a, rows): (DeviceView<T, 2>, DeviceView<f32, 2>),
        (mut b, n, columns, by_column): (B, usize, DeviceView<f32, 2>, bool),
        (offsets, groups): (Option<DeviceView<i32, 1>>, usize),
        mut c: DeviceViewMut<O, 2>,
    ) -> ct::Result<()> {
        let ([m, k], is_grouped) = (a.shape(), groups > 0);
        let expected = [k.div_ceil(BLOCK), m];
        require(rows.shape() == expected, || format!("scales of shape {:?}, not {expected:?}", rows.shape()))?;
        let values = self.epilogue.check(Extents { batches: groups.max(1), rows: m, columns: n, is_grouped })?;
        let expected = [m, values.columns];
        require(c.shape() == expected, || format!("a result of shape {:?}, not {expected:?}", c.shape()))?;
        if c.is_empty() {
            return Ok(());
        }
        let (width, multiprocessors) = (self.epilogue.width(), num_multiprocessors(stream));
        let each = of_batch(m.div_ceil(groups.max(1)), 128);
        let problem = Problem {
            kernel: if is_grouped { "scaled_grouped_matmul" } else { "scaled_matmul" },
            types: &[T::NAME, O::NAME, if by_column { "columns" } else { "blocks" }],
            extents: if is_grouped { &[groups, bucket(m), n, k, width] } else { &[bucket(m), n, k, width] },
            is_estimated: each > 64,
        };
        let is_fast = target(stream).is_some_and(|target| target.arch >= 90);
        let space = || {
            let form = |tile, cluster| Form { tile, cluster, by_column, groups };
            let all = match (is_fast, each) {
                (false, _) => vec![form([32, 128], 1)],
                (true, _) if is_grouped && each > 64 => vec![form([128, 192], 1), form([128, 128], 1)],
                (true, 0..=64) => vec![form([64, 128], 1), form([64, 64], 1)],
                (true, _) => vec![form([128, 192], 2), form([128, 192], 1), form([128, 128], 1)],
            };
            // A strip of the epilogue is a block, or a half of a block.
            all.into_iter().filter(|one| width <= 64 || one.tile[1].is_multiple_of(BLOCK)).collect::<Vec<_>>()
        };
        let mut run = |one: &Form| {
            let tiles = (m.div_ceil(one.tile[0]) + groups) * n.div_ceil(one.tile[1]);
            let grid = match one.cluster {
                1 => tiles.min(multiprocessors),
                cluster => tiles.next_multiple_of(cluster as usize).min(multiprocessors / 2 * 2),
            };
            let hints = if one.cluster > 1 { Hints::new().num_ctas(one.cluster) } else { Hints::new() };
            let args = ((a, b.arg()), (rows, columns), (offsets, &mut c), self.epilogue.arg(), ct::Constant(*one));
            ct::Launch::new(grid).hints(hints).stream(stream).run(product::<T, O, B::Kernel, E::Kernel>, args)
        };
        let given = if is_batch_invariant() { space().first().copied() } else { None };
        let chosen = choose(stream, problem, given, space, &mut run)?;
        run(&chosen)
    }
}
