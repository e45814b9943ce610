//! Forms of the cross-entropy of a linear layer whose logits are never stored.

use std::f32::consts::LOG2_E;

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

use crate::family::{AnyFamily, Case, Family, Size, some};

/// Assignment of tiles of logits to tile blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Grid {
    Grouped,
    Persistent,
}

/// Form of the work after the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sums {
    /// `exp` of the whole tile of logits.
    Whole,
    /// Half of the columns at a time, by `split`.
    Halves,
}

/// A form of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    tile: [usize; 3],
    grid: Grid,
    sums: Sums,
}

/// Maximum, sum and target logit of each row of a tile of logits, by tile along the vocabulary.
type Partials = (ArrayMut<f32, 2>, ArrayMut<f32, 2>, ArrayMut<f32, 2>);

fn logits((x, w): (Array<bf16, 2>, Array<bf16, 2>), targets: Array<i32, 1>, partials: Partials, form: Form) {
    let [tm, tn, _] = form.tile;
    let [rows, columns] = [x.num_tiles(0, [tm, 1]), w.num_tiles(0, [tn, 1])];
    let one = |index| one_tile((x, w), targets, partials, ct::swizzle_2d(index, rows, columns, 8), form);
    match form.grid {
        Grid::Grouped => one(ct::bid(0)),
        Grid::Persistent => {
            let all = ct::range(ct::bid(0), rows * columns).step(ct::num_blocks(0));
            ct::fold(all, (), |(), index| one(index));
        }
    }
}

fn one_tile(
    (x, w): (Array<bf16, 2>, Array<bf16, 2>),
    targets: Array<i32, 1>,
    (maxima, sums, hits): Partials,
    [i, j]: [Scalar<i32>; 2],
    form: Form,
) {
    let [tm, tn, tk] = form.tile;
    let acc = ct::fold(..x.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
        ct::mma(x.load([i, k], [tm, tk]), w.load([j, k], [tn, tk]).transpose(), acc)
    });
    let max = acc.reduce_max(1);
    let target = targets.load(i, [tm]).unsqueeze(1) - j * tn as i32;
    let of_part = |acc: Tile<f32, 2>, first: usize| {
        let columns = (first as i32 + ct::arange(0..acc.shape()[1])).unsqueeze(0);
        let sum = (acc * LOG2_E - max * LOG2_E).exp2().sum(1);
        (sum, columns.eq(target).select(acc, 0.0).sum(1))
    };
    let (sum, hit) = match form.sums {
        Sums::Whole => of_part(acc, 0),
        Sums::Halves => {
            let [left, right] = acc.split(1);
            let ((left, of_left), (right, of_right)) = (of_part(left, 0), of_part(right, tn / 2));
            (left + right, of_left + of_right)
        }
    };
    for (array, tile) in [(maxima, max), (sums, sum), (hits, hit)] {
        array.store((j, i), tile.reshape([1, tm]));
    }
}

/// Adds the parts of the vocabulary.
fn losses(
    (maxima, sums, hits): (Array<f32, 2>, Array<f32, 2>, Array<f32, 2>),
    losses: ArrayMut<f32, 1>,
    [parts, rows]: [usize; 2],
) {
    let load = |array: Array<f32, 2>, outside: Padding| {
        array.load_with((0, ct::bid(0)), [parts, rows], ct::LoadOptions::new().padding(outside))
    };
    let maxima = load(maxima, Padding::NegInf);
    let max = maxima.reduce_max(0);
    let sum = (load(sums, Padding::Zero) * (maxima - max).exp()).sum(0);
    losses.store(ct::bid(0), (max + sum.ln() - load(hits, Padding::Zero).sum(0)).reshape([rows]));
}

struct Arrays {
    x: DeviceArray<bf16, 2>,
    w: DeviceArray<bf16, 2>,
    targets: DeviceArray<i32, 1>,
    partials: [DeviceArray<f32, 1>; 3],
    losses: DeviceArray<f32, 1>,
}

fn family([tokens, width, vocabulary]: [usize; 3], forms: Vec<(&'static str, Form)>) -> Family<Arrays> {
    const ROWS: usize = 16;
    let most = forms.iter().map(|(_, form)| vocabulary.div_ceil(form.tile[1])).max().unwrap_or(0);
    let case = |(name, form): (&'static str, Form)| {
        Case::new(name, 0, move |call, Arrays { x, w, targets, partials, losses: result }: &mut Arrays| {
            let (rows, columns) = (tokens.div_ceil(form.tile[0]), vocabulary.div_ceil(form.tile[1]));
            let grid = match form.grid {
                Grid::Grouped => rows * columns,
                Grid::Persistent => call.num_multiprocessors().min(rows * columns),
            };
            let (shape, part) = ([columns, tokens], ..columns * tokens);
            {
                let [maxima, sums, hits] = &mut *partials;
                let mut maxima = maxima.slice_mut(0, part)?.reshape(shape)?;
                let mut sums = sums.slice_mut(0, part)?.reshape(shape)?;
                let mut hits = hits.slice_mut(0, part)?.reshape(shape)?;
                let partials = (&mut maxima, &mut sums, &mut hits);
                call.run([grid, 1, 1], logits, ((&*x, &*w), &*targets, partials, Constant(form)))?;
            }
            let [maxima, sums, hits] = &*partials;
            let maxima = maxima.slice(0, part)?.reshape(shape)?;
            let sums = sums.slice(0, part)?.reshape(shape)?;
            let hits = hits.slice(0, part)?.reshape(shape)?;
            let inputs = (&maxima, &sums, &hits);
            let extents = Constant([columns.next_power_of_two(), ROWS]);
            call.run([tokens.div_ceil(ROWS), 1, 1], losses, (inputs, result, extents))
        })
    };
    Family {
        name: format!("linear cross-entropy bf16 {tokens}x{width}x{vocabulary}"),
        flops: 2.0 * (tokens * width * vocabulary) as f64,
        bytes: 2.0 * (width * (tokens + vocabulary)) as f64,
        tolerance: 0.02,
        arrays: Box::new(move |source| {
            let deviation = (width as f32).sqrt().recip();
            let target = |at: usize| (at * 7919 % vocabulary) as f64;
            Ok(Arrays {
                x: source.normal([tokens, width], 1, 1.0)?,
                w: source.normal([vocabulary, width], 2, deviation)?,
                targets: source.numbers([tokens], target)?,
                partials: [
                    source.zeros([most * tokens])?,
                    source.zeros([most * tokens])?,
                    source.zeros([most * tokens])?,
                ],
                losses: source.zeros([tokens])?,
            })
        }),
        result: |arrays| some(&arrays.losses),
        cases: forms.into_iter().map(case).collect(),
    }
}

/// The families of the cross-entropy of a linear layer.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let scaled = |tile: [usize; 3]| if size == Size::Full { tile } else { tile.map(|extent| extent / 8) };
    let form = |tile| Form { tile: scaled(tile), grid: Grid::Grouped, sums: Sums::Whole };
    let forms = vec![
        ("128x256", form([128, 256, 64])),
        ("128x256, halves", Form { sums: Sums::Halves, ..form([128, 256, 64]) }),
        ("128x256, persistent", Form { grid: Grid::Persistent, ..form([128, 256, 64]) }),
        ("256x128", form([256, 128, 64])),
        ("128x192", form([128, 192, 64])),
        ("128x128", form([128, 128, 64])),
        ("128x128, persistent", Form { grid: Grid::Persistent, ..form([128, 128, 64]) }),
    ];
    let extents = if size == Size::Full { [4096, 4096, 128256] } else { [32, 48, 192] };
    vec![Box::new(family(extents, forms))]
}
