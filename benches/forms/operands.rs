//! Forms of products whose operands are not plain tiles: a convolution by boxes, and attention of
//! one query with keys and values in pages.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

use super::family::{AnyFamily, Case, Family, Size, some};

/// Assignment of the tiles of a convolution to tile blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Grid {
    /// Images, positions and output channels on one grid axis each.
    Axes,
    /// Every n-th tile, where n is the number of tile blocks. Output channels change first.
    Persistent,
}

/// Form of the loop over taps and input channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Taps {
    /// One loop; taps by quotient.
    Division,
    /// One loop; channels by quotient.
    ChannelsFirst,
    /// A loop over channels in a loop over taps.
    Nested,
}

/// A form of the convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ConvForm {
    /// Images, rows and columns of a box.
    boxed: [usize; 3],
    /// Output channels of a tile.
    outputs: usize,
    grid: Grid,
    taps: Taps,
}

/// Input channels of a box.
const CHANNELS: usize = 64;

type ConvArrays = (Array<f16, 4>, Array<f16, 3>);

/// A convolution of 3 by 3, with zeros around the images.
fn convolution(arrays: ConvArrays, y: ArrayMut<f16, 4>, form: ConvForm) {
    let [images, high, wide] = form.boxed;
    let tile = [images, high, wide, form.outputs];
    let [all, rows, columns, outputs] = [0, 1, 2, 3].map(|axis| y.num_tiles(axis, tile));
    match form.grid {
        Grid::Axes => {
            let place = ct::bid(1);
            conv_tile(arrays, y, [ct::bid(2), place / columns, place % columns, ct::bid(0)], form);
        }
        Grid::Persistent => {
            let tiles = ct::range(ct::bid(0), all * rows * columns * outputs).step(ct::num_blocks(0));
            ct::fold(tiles, (), |(), at| {
                let (j, place) = (at % outputs, at / outputs);
                let (c, place) = (place % columns, place / columns);
                conv_tile(arrays, y, [place / rows, place % rows, c, j], form);
            });
        }
    }
}

fn conv_tile((x, w): ConvArrays, y: ArrayMut<f16, 4>, [n, r, c, j]: [Scalar<i32>; 4], form: ConvForm) {
    let [images, high, wide] = form.boxed;
    let (m, outputs) = (images * high * wide, form.outputs);
    let parts = x.num_tiles(3, [images, high, wide, CHANNELS]);
    let step = |acc: Tile<f32, 2>, tap: Scalar<i32>, part: Scalar<i32>| {
        let at = (n, ct::at(r * high + tap / 3 - 1), ct::at(c * wide + tap % 3 - 1), part);
        let left = x.load(at, [images, high, wide, CHANNELS]).reshape([m, CHANNELS]);
        let right = w.load((tap, part, j), [1, CHANNELS, outputs]).reshape([CHANNELS, outputs]);
        ct::mma(left, right, acc)
    };
    let start = ct::zeros::<f32, 2>([m, outputs]);
    let acc = match form.taps {
        Taps::Division => ct::fold(..parts * 9, start, |acc, at| step(acc, at / parts, at % parts)),
        Taps::ChannelsFirst => ct::fold(..parts * 9, start, |acc, at| step(acc, at % 9, at / 9)),
        Taps::Nested => {
            ct::fold(..ct::scalar(9), start, |acc, tap| ct::fold(..parts, acc, |acc, part| step(acc, tap, part)))
        }
    };
    y.store((n, r, c, j), acc.cast::<f16>().reshape([images, high, wide, outputs]));
}

/// Forms of the boxes, the grid and the loop.
fn convolutions() -> Vec<(&'static str, ConvForm)> {
    let b = ConvForm { boxed: [2, 8, 8], outputs: 256, grid: Grid::Axes, taps: Taps::Division };
    vec![
        ("boxes 2x8x8", b),
        ("boxes 1x8x16", ConvForm { boxed: [1, 8, 16], ..b }),
        ("boxes 1x16x8", ConvForm { boxed: [1, 16, 8], ..b }),
        ("boxes 16x1x8", ConvForm { boxed: [16, 1, 8], ..b }),
        ("boxes 1x1x64", ConvForm { boxed: [1, 1, 64], ..b }),
        ("boxes 1x2x64", ConvForm { boxed: [1, 2, 64], ..b }),
        ("boxes 2x1x64", ConvForm { boxed: [2, 1, 64], ..b }),
        ("boxes 2x8x8, 128 outputs", ConvForm { outputs: 128, ..b }),
        ("boxes 4x8x8, 128 outputs", ConvForm { boxed: [4, 8, 8], outputs: 128, ..b }),
        ("channels first", ConvForm { taps: Taps::ChannelsFirst, ..b }),
        ("nested loops", ConvForm { taps: Taps::Nested, ..b }),
        ("persistent", ConvForm { grid: Grid::Persistent, ..b }),
        ("persistent, 16x1x8", ConvForm { boxed: [16, 1, 8], grid: Grid::Persistent, ..b }),
        ("persistent, 2x8x8, 128 outputs", ConvForm { outputs: 128, grid: Grid::Persistent, ..b }),
    ]
}

struct ConvState {
    x: DeviceArray<f16, 4>,
    w: DeviceArray<f16, 3>,
    y: DeviceArray<f16, 4>,
}

fn convolution_family(size: Size) -> Family<ConvState> {
    let [n, r, c, k, outputs]: [usize; 5] = match size {
        Size::Full => [32, 56, 56, 256, 256],
        Size::Small => [3, 5, 9, 72, 264],
    };
    let cases = convolutions().into_iter().map(|(name, form)| {
        Case::new(name, 0, move |call, state: &mut ConvState| {
            let [images, high, wide] = form.boxed;
            let tiles = [n.div_ceil(images), r.div_ceil(high), c.div_ceil(wide), outputs.div_ceil(form.outputs)];
            let grid = match form.grid {
                Grid::Axes => [tiles[3], tiles[1] * tiles[2], tiles[0]],
                Grid::Persistent => [call.num_multiprocessors().min(tiles.iter().product()), 1, 1],
            };
            call.run(grid, convolution, ((&state.x, &state.w), &mut state.y, Constant(form)))
        })
    });
    let places = n * r * c;
    Family {
        name: format!("convolution 3x3 f16 {n}x{r}x{c}x{k} to {outputs}"),
        flops: 2.0 * (places * 9 * k * outputs) as f64,
        bytes: 2.0 * (places * (k + outputs) + 9 * k * outputs) as f64,
        tolerance: 0.25,
        arrays: Box::new(move |source| {
            Ok(ConvState {
                x: source.normal([n, r, c, k], 1, 1.0)?,
                w: source.normal([9, k, outputs], 2, 0.05)?,
                y: source.zeros([n, r, c, outputs])?,
            })
        }),
        result: |state| some(&state.y),
        cases: cases.collect(),
    }
}

/// Source of a tile of keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pages {
    /// One page of 64 rows.
    Whole,
    /// Four pages of 16 rows, which `cat` puts together.
    Joined,
    /// Rows listed by a tile of indices, pages of 16 rows.
    Listed,
    /// As `Listed`, pages of 64 rows.
    ListedWhole,
}

/// Rows of a tile of keys, of a small page, queries that share keys, and elements of a row.
const KEYS: usize = 64;
const PAGE: usize = 16;
const QUERIES: usize = 16;
const DIM: usize = 128;

/// Keys and values as rows, and as pages of 64 and of 16 rows.
type Cache = (Array<f16, 3>, Array<f16, 4>, Array<f16, 4>);

/// Attention of the queries of one step. `tables`: the numbers of pages of 64 and of 16 rows.
fn paged(
    q: Array<f16, 4>,
    (keys, values): (Cache, Cache),
    tables: (Array<i32, 2>, Array<i32, 2>),
    out: ArrayMut<f16, 4>,
    pages: Pages,
) {
    let (head, sequence) = (ct::bid(0), ct::bid(1));
    let q = q.load((sequence, head, 0, 0), [1, 1, QUERIES, DIM]).reshape([QUERIES, DIM]);
    let tile = |(rows, whole, small): Cache, j: Scalar<i32>| match pages {
        Pages::Whole => {
            let page = tables.0.load_scalar((sequence, j));
            whole.load((page, 0, head, 0), [1, KEYS, 1, DIM]).reshape([KEYS, DIM])
        }
        Pages::Joined => ct::cat(
            (0..(KEYS / PAGE) as i32).map(|part| {
                let page = tables.1.load_scalar((sequence, j * (KEYS / PAGE) as i32 + part));
                small.load((page, 0, head, 0), [1, PAGE, 1, DIM]).reshape([PAGE, DIM])
            }),
            0,
        ),
        Pages::Listed => {
            let pages = tables.1.load((sequence, j), [1, KEYS / PAGE]).reshape([KEYS / PAGE, 1]);
            let listed = pages * PAGE as i32 + ct::arange(0..PAGE).unsqueeze(0);
            rows.load((ct::at(listed.reshape([KEYS])), head, 0), [KEYS, 1, DIM]).reshape([KEYS, DIM])
        }
        Pages::ListedWhole => {
            let listed = tables.0.load_scalar((sequence, j)) * KEYS as i32 + ct::arange(0..KEYS);
            rows.load((ct::at(listed), head, 0), [KEYS, 1, DIM]).reshape([KEYS, DIM])
        }
    };
    let start = (ct::zeros([QUERIES, DIM]), ct::full([QUERIES, 1], f32::NEG_INFINITY), ct::zeros([QUERIES, 1]));
    let scale = std::f32::consts::LOG2_E / (DIM as f32).sqrt();
    let (acc, _, sum) = ct::fold(..tables.0.extent(1), start, |(acc, max, sum), j| {
        let scores = ct::mma(q, tile(keys, j).transpose(), ct::zeros([QUERIES, KEYS])) * scale;
        let above = max.max(scores.reduce_max(1));
        let (weights, fade) = ((scores - above).exp2(), (max - above).exp2());
        let acc = ct::mma(weights.cast::<f16>(), tile(values, j), acc * fade);
        (acc, above, sum * fade + weights.sum(1))
    });
    out.store((sequence, head, 0, 0), (acc / sum).cast::<f16>().reshape([1, 1, QUERIES, DIM]));
}

struct PagedState {
    q: DeviceArray<f16, 4>,
    keys: DeviceArray<f16, 3>,
    values: DeviceArray<f16, 3>,
    tables: [DeviceArray<i32, 2>; 2],
    out: DeviceArray<f16, 4>,
}

fn paged_family(size: Size) -> Family<PagedState> {
    let [sequences, heads, length]: [usize; 3] = match size {
        Size::Full => [64, 8, 4096],
        Size::Small => [2, 3, 192],
    };
    let (rows, tiles) = (sequences * length, length / KEYS);
    let forms = [
        ("pages of 64", Pages::Whole),
        ("pages of 16, cat", Pages::Joined),
        ("pages of 16, listed rows", Pages::Listed),
        ("pages of 64, listed rows", Pages::ListedWhole),
    ];
    let cases = forms.map(|(name, form)| {
        Case::new(name, 0, move |call, state: &mut PagedState| {
            let [keys, values] = [&state.keys, &state.values].map(|rows_of| -> ct::Result<_> {
                let whole = rows_of.view().reshape([rows / KEYS, KEYS, heads, DIM])?;
                Ok((rows_of.view(), whole, rows_of.view().reshape([rows / PAGE, PAGE, heads, DIM])?))
            });
            let [whole, small] = &state.tables;
            let arguments = (&state.q, (keys?, values?), (whole, small), &mut state.out, Constant(form));
            call.run([heads, sequences, 1], paged, arguments)
        })
    });
    // Pages in an order that is no run: 7 and the number of pages have no common divisor but 1.
    let number = move |page: usize| page * 7 % (sequences * tiles);
    Family {
        name: format!("paged decode f16 {sequences}x{heads}x{length}x{DIM}"),
        flops: 0.0,
        bytes: (4 * rows * heads * DIM) as f64,
        tolerance: 0.01,
        arrays: Box::new(move |source| {
            let small = move |page: usize| number(page / (KEYS / PAGE)) * (KEYS / PAGE) + page % (KEYS / PAGE);
            Ok(PagedState {
                q: source.normal([sequences, heads, QUERIES, DIM], 1, 1.0)?,
                keys: source.normal([rows, heads, DIM], 2, 1.0)?,
                values: source.normal([rows, heads, DIM], 3, 1.0)?,
                tables: [
                    source.numbers([sequences, tiles], move |page| number(page) as f64)?,
                    source.numbers([sequences, length / PAGE], move |page| small(page) as f64)?,
                ],
                out: source.zeros([sequences, heads, QUERIES, DIM])?,
            })
        }),
        result: |state| some(&state.out),
        cases: cases.into(),
    }
}

/// Returns the families of this file.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    vec![Box::new(convolution_family(size)), Box::new(paged_family(size))]
}
