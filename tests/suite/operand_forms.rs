//! Operands of matrix products that are not plain tiles of a matrix: boxes with several long axes
//! at any position, with reshapes and permutations before the product, on both sides. Rows listed
//! by a tile of indices, tiles put together from several loads. All numbers are small and whole, so
//! each sum is exact.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::expected::{Product, numbers};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    for form in BoxForm::ALL {
        for right in [false, true] {
            let side = if right { "right" } else { "left" };
            suite.test(format!("operand_forms/boxes/{side}/{form:?}").to_lowercase(), move |session| {
                boxes(session, form, right)
            });
        }
    }
    for form in RowForm::ALL {
        for right in [false, true] {
            let side = if right { "right" } else { "left" };
            suite.test(format!("operand_forms/rows/{side}/{form:?}").to_lowercase(), move |session| {
                rows(session, form, right)
            });
        }
    }
    for tile in [[2, 8, 8, 64], [1, 8, 16, 64], [1, 1, 64, 64], [1, 4, 4, 16]] {
        let name = tile.map(|extent| extent.to_string()).join("x");
        suite.test(format!("operand_forms/convolution/{name}"), move |session| convolution(session, tile));
    }
}

/// Source of the rows of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RowForm {
    /// A tile of indices that is loaded before the loop.
    Before,
    /// A tile of indices of each iteration.
    InLoop,
    /// Pages of 16 rows, whose numbers each iteration loads.
    Pages,
    /// The pages put together by `cat`.
    Joined,
    /// Every third row from a position on.
    Computed,
    /// Rows from a position on.
    Position,
    /// Columns from an even position on.
    Columns,
    /// Rows of a slice that the iteration makes, fewer than those of the tile.
    Slice,
}

impl RowForm {
    const ALL: [RowForm; 8] = [
        RowForm::Before,
        RowForm::InLoop,
        RowForm::Pages,
        RowForm::Joined,
        RowForm::Computed,
        RowForm::Position,
        RowForm::Columns,
        RowForm::Slice,
    ];

    /// Returns the row and the first column of a row of the operand in an iteration.
    fn place(self, list: &[i32], row: usize, step: usize) -> [i64; 2] {
        let at = |place: usize| i64::from(list[place]);
        match self {
            RowForm::Before => [at(row), step as i64 * 64],
            RowForm::InLoop => [at(step * 64 + row), 0],
            RowForm::Pages | RowForm::Joined => [at(step * 4 + row / 16) * 16 + row as i64 % 16, 0],
            RowForm::Computed => [(step * 5 + row * 3) as i64 - 9, 0],
            RowForm::Position => [row as i64 - 7, step as i64 * 64],
            RowForm::Columns => [row as i64, step as i64 * 64 - 6],
            RowForm::Slice if row < 30 + step => [(row + step * 9) as i64, 0],
            RowForm::Slice => [-1, 0],
        }
    }
}

/// A box of an array of rank 4, and its way to an operand of `[rows, 64]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum BoxForm {
    /// `[2, 8, 8, 64]`.
    Natural,
    /// `[1, 16, 8, 64]`.
    OneImage,
    /// `[8, 2, 8, 64]`, images exchanged with rows.
    Exchanged,
    /// `[1, 8, 8, 64]` and half as many rows.
    Half,
    /// `[8, 4, 4, 64]`: several boxes would be needed for swizzle atoms of their own.
    Small,
    /// `[2, 64, 1, 64]`, whose images are adjacent along the sums.
    Adjacent,
    /// `[1, 64, 2, 32]`: two columns are the sums.
    Columns,
    /// `[1, 64, 1, 128]`, the halves of its rows as further rows.
    Halves,
}

impl BoxForm {
    const ALL: [BoxForm; 8] = [
        BoxForm::Natural,
        BoxForm::OneImage,
        BoxForm::Exchanged,
        BoxForm::Half,
        BoxForm::Small,
        BoxForm::Adjacent,
        BoxForm::Columns,
        BoxForm::Halves,
    ];

    /// Returns the box, and the extents of the operand.
    fn extents(self) -> ([usize; 4], [usize; 2]) {
        match self {
            BoxForm::Natural => ([2, 8, 8, 64], [128, 64]),
            BoxForm::OneImage => ([1, 16, 8, 64], [128, 64]),
            BoxForm::Exchanged => ([8, 2, 8, 64], [128, 64]),
            BoxForm::Half => ([1, 8, 8, 64], [64, 64]),
            BoxForm::Small => ([8, 4, 4, 64], [128, 64]),
            BoxForm::Adjacent => ([2, 64, 1, 64], [64, 128]),
            BoxForm::Columns => ([1, 64, 2, 32], [64, 64]),
            BoxForm::Halves => ([1, 64, 1, 128], [128, 64]),
        }
    }

    /// Returns the operand made from a box.
    fn operand(self, tile: Tile<f16, 4>) -> Tile<f16, 2> {
        let (_, operand) = self.extents();
        match self {
            BoxForm::Exchanged => tile.permute([1, 0, 2, 3]).reshape(operand),
            BoxForm::Adjacent => tile.reshape([2, 64, 64]).permute([1, 0, 2]).reshape(operand),
            BoxForm::Halves => tile.reshape([64, 2, 64]).permute([1, 0, 2]).reshape(operand),
            _ => tile.reshape(operand),
        }
    }

    /// Returns the position in the box of an element of the operand.
    fn place(self, row: usize, k: usize) -> [usize; 4] {
        match self {
            BoxForm::Natural => [row / 64, row / 8 % 8, row % 8, k],
            BoxForm::OneImage => [0, row / 8, row % 8, k],
            BoxForm::Exchanged => [row / 8 % 8, row / 64, row % 8, k],
            BoxForm::Half => [0, row / 8, row % 8, k],
            BoxForm::Small => [row / 16, row / 4 % 4, row % 4, k],
            BoxForm::Adjacent => [k / 64, row, 0, k % 64],
            BoxForm::Columns => [0, row, k / 32, k % 32],
            BoxForm::Halves => [0, row % 64, 0, row / 64 * 64 + k],
        }
    }
}

/// Extents of the array of boxes: no box divides them.
const ARRAY: [usize; 4] = [3, 11, 13, 72];
const STEPS: usize = 5;

/// Returns the first element of the box of a step: partly before the array, inside of it, after
/// it.
fn first(step: i64) -> [i64; 4] {
    [step % 3 - 1, step * 3 - 4, 5 - step * 2, (step % 2) * 8]
}

/// Returns an element of the array, zero outside.
fn element(x: &[f64], at: [i64; 4]) -> f64 {
    let inside = (0..4).all(|axis| (0..ARRAY[axis] as i64).contains(&at[axis]));
    if !inside {
        return 0.0;
    }
    x[(0..4).fold(0, |place, axis| place * ARRAY[axis] + at[axis] as usize)]
}

/// Products with boxes as the left operand, or transposed as the right one.
fn boxes(session: Session, form: BoxForm, right: bool) -> Result<()> {
    fn kernel(x: Array<f16, 4>, w: Array<f16, 2>, y: ArrayMut<f32, 2>, (form, right): (BoxForm, bool)) {
        let (tile, [m, k]) = form.extents();
        let shape = if right { [64, m] } else { [m, 64] };
        let acc = ct::fold(0..STEPS as i32, ct::zeros::<f32, 2>(shape), |acc, step| {
            let at = (step % 3 - 1, step * 3 - 4, 5 - step * 2, (step % 2) * 8);
            let boxed = x.load((ct::at(at.0), ct::at(at.1), ct::at(at.2), ct::at(at.3)), tile);
            let (operand, other) = (form.operand(boxed), w.load((0, step), [64, k]));
            match right {
                false => ct::mma(operand, other.transpose(), acc),
                true => ct::mma(other, operand.transpose(), acc),
            }
        });
        y.store((0, 0), acc);
    }
    let (_, [m, k]) = form.extents();
    let x = random::<f16>(1, ARRAY.iter().product(), Spread::Whole(2));
    let w = random::<f16>(2, 64 * STEPS * k, Spread::Whole(2));
    let (x_array, w_array) = (session.array(&x, ARRAY)?, session.array(&w, [64, STEPS * k])?);
    let mut y = session.unwritten::<f32, 2>(if right { [64, m] } else { [m, 64] })?;
    session.launch(kernel, [1], (&x_array, &w_array, &mut y, Constant((form, right))))?;
    let (x, w) = (numbers(&x), numbers(&w));
    let boxed = |row: usize, l: usize| {
        let (place, start) = (form.place(row, l % k), first((l / k) as i64));
        element(&x, std::array::from_fn(|axis| start[axis] + place[axis] as i64))
    };
    let product = Product::new(session, [m, 64, STEPS * k], boxed, |l, column| w[column * STEPS * k + l]);
    session.check("product of boxes", &y, &|[i, j]| Want::nearest(product.at(if right { [j, i] } else { [i, j] })))
}

/// A convolution of 3 by 3 as a product of boxes.
fn convolution(session: Session, tile: [usize; 4]) -> Result<()> {
    const CHANNELS: [usize; 2] = [72, 24];
    fn kernel(x: Array<f16, 4>, w: Array<f16, 3>, y: ArrayMut<f32, 4>, tile: [usize; 4]) {
        let [images, high, wide, k] = tile;
        let (rows, outputs) = (images * high * wide, 32);
        let (i, j) = (ct::bid(0), ct::bid(2));
        let columns = y.num_tiles(2, [images, high, wide, outputs]);
        let (r, c) = (ct::bid(1) / columns, ct::bid(1) % columns);
        let steps = x.num_tiles(3, tile);
        let acc = ct::fold(..steps * 9, ct::zeros::<f32, 2>([rows, outputs]), |acc, step| {
            let (tap, part) = (step / steps, step % steps);
            let (down, across) = (tap / 3 - 1, tap % 3 - 1);
            let at = (i, ct::at(r * high + down), ct::at(c * wide + across), part);
            let left = x.load(at, tile).reshape([rows, k]);
            let right = w.load((tap, part, j), [1, k, outputs]).reshape([k, outputs]);
            ct::mma(left, right, acc)
        });
        y.store((i, r, c, j), acc.reshape([images, high, wide, outputs]));
    }
    let [images, high, wide] = [ARRAY[0], ARRAY[1], ARRAY[2]];
    let x = random::<f16>(3, ARRAY.iter().product(), Spread::Whole(2));
    let w = random::<f16>(4, 9 * CHANNELS[0] * CHANNELS[1], Spread::Whole(2));
    let (x_array, w_array) = (session.array(&x, ARRAY)?, session.array(&w, [9, CHANNELS[0], CHANNELS[1]])?);
    let mut y = session.unwritten::<f32, 4>([images, high, wide, CHANNELS[1]])?;
    let grid = [images.div_ceil(tile[0]), high.div_ceil(tile[1]) * wide.div_ceil(tile[2]), CHANNELS[1].div_ceil(32)];
    session.launch(kernel, grid, (&x_array, &w_array, &mut y, Constant(tile)))?;
    let (x, w) = (numbers(&x), numbers(&w));
    let near = |pixel: usize, l: usize| {
        let (n, r, c) = (pixel / (high * wide), pixel / wide % high, pixel % wide);
        let (tap, channel) = (l / CHANNELS[0], l % CHANNELS[0]);
        element(&x, [n as i64, (r + tap / 3) as i64 - 1, (c + tap % 3) as i64 - 1, channel as i64])
    };
    let sides = [images * high * wide, CHANNELS[1], 9 * CHANNELS[0]];
    let product = Product::new(session, sides, near, |l, o| w[l * CHANNELS[1] + o]);
    session.check("convolution", &y, &|[n, r, c, o]| Want::nearest(product.at([(n * high + r) * wide + c, o])))
}

/// Products with listed rows as the left operand, or transposed as the right one.
fn rows(session: Session, form: RowForm, right: bool) -> Result<()> {
    const SHAPE: [usize; 2] = [100, 136];
    const ROWS: usize = 64;
    fn kernel(
        (x, list): (Array<f16, 2>, Array<i32, 1>),
        w: Array<f16, 2>,
        y: ArrayMut<f32, 2>,
        at: Scalar<i32>,
        (form, right): (RowForm, bool),
    ) {
        let before = list.load(0, [ROWS]);
        let tile = [ROWS, 64];
        let acc = ct::fold(0..STEPS as i32, ct::zeros::<f32, 2>([64, 64]), |acc, step| {
            let operand = match form {
                RowForm::Before => x.load((ct::at(before), step), tile),
                RowForm::InLoop => x.load((ct::at(list.load(step, [ROWS])), 0), tile),
                RowForm::Pages => {
                    let pages = list.load(step, [4]).unsqueeze(1);
                    let rows = pages * 16 + ct::arange(0..16usize).unsqueeze(0);
                    x.load((ct::at(rows.reshape([ROWS])), 0), tile)
                }
                RowForm::Joined => {
                    let page = |part: i32| list.load_scalar(step * 4 + part);
                    ct::cat((0..4).map(|part| x.load((page(part), 0), [16, 64])), 0)
                }
                RowForm::Computed => {
                    let rows = ct::arange(0..ROWS) * 3 + (step * 5 - 9);
                    x.load((ct::at(rows), 0), tile)
                }
                RowForm::Position => x.load((ct::at(at - 7), step), tile),
                RowForm::Columns => x.load((0, ct::at(step * 64 - 6)), tile),
                RowForm::Slice => x.slice(0, step * 9..step * 10 + at + 30).load((0, 0), tile),
            };
            let other = w.load((0, step), [64, 64]);
            match right {
                false => ct::mma(operand, other.transpose(), acc),
                true => ct::mma(other, operand.transpose(), acc),
            }
        });
        y.store((0, 0), acc);
    }
    let x = random::<f16>(5, SHAPE[0] * SHAPE[1], Spread::Whole(2));
    let w = random::<f16>(6, 64 * STEPS * 64, Spread::Whole(2));
    // Rows before the array, inside of it, and after it.
    let count = STEPS * ROWS;
    let list: Vec<i32> = (0..count as i32)
        .map(|place| match form {
            RowForm::Pages | RowForm::Joined => place * 5 % 9 - 1,
            _ => place * 37 % 120 - 10,
        })
        .collect();
    let arrays = (session.array(&x, SHAPE)?, session.array(&list, [count])?, session.array(&w, [64, STEPS * 64])?);
    let mut y = session.unwritten::<f32, 2>([64, 64])?;
    let arguments = ((&arrays.0, &arrays.1), &arrays.2, &mut y, 0, Constant((form, right)));
    session.launch(kernel, [1], arguments)?;
    let (x, w) = (numbers(&x), numbers(&w));
    let listed = |row: usize, l: usize| {
        let [place, first] = form.place(&list, row, l / 64);
        let at = [place, first + (l % 64) as i64];
        let inside = (0..2).all(|axis| (0..SHAPE[axis] as i64).contains(&at[axis]));
        if inside { x[at[0] as usize * SHAPE[1] + at[1] as usize] } else { 0.0 }
    };
    let product = Product::new(session, [ROWS, 64, STEPS * 64], listed, |l, column| w[column * STEPS * 64 + l]);
    session.check("product of rows", &y, &|[i, j]| Want::nearest(product.at(if right { [j, i] } else { [i, j] })))
}
