//! Group normalization of images, assignment of points to the nearest centre, and the largest
//! elements of rows.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, Hints};

use crate::family::{AnyFamily, Case, Family, Size, some};

const EPSILON: f32 = 1e-5;
const GROUPS: usize = 32;

/// Sums of a group of channels, by loops over parts of the pixels.
fn group_norm_parts(
    x: Array<f16, 3>,
    [weight, bias]: [Array<f32, 1>; 2],
    y: ArrayMut<f16, 3>,
    [channels, part]: [usize; 2],
) {
    let (group, image) = (ct::bid(0), ct::bid(1));
    let shape = [1, channels, part];
    let load = |j: Scalar<i32>| x.load((image, group, j), shape).cast::<f32>();
    let zeros = || ct::zeros::<f32, 3>(shape);
    let (sum, squares) = ct::fold(..x.num_tiles(2, shape), (zeros(), zeros()), |(sum, squares), j| {
        let x = load(j);
        (sum + x, squares + x * x)
    });
    let count = 1.0 / (x.extent(2).cast::<f32>() * channels as f32);
    let mean = sum.sum(..) * count;
    let deviation = (squares.sum(..) * count - mean * mean + EPSILON).rsqrt();
    let [weight, bias] = [weight, bias].map(|of| of.load(group, [channels]).reshape([1, channels, 1]));
    let (scale, shift) = (deviation * weight, bias - mean * deviation * weight);
    ct::fold(..x.num_tiles(2, shape), (), |(), j| {
        y.store((image, group, j), (load(j) * scale + shift).cast::<f16>());
    });
}

/// A group of channels in one tile.
fn group_norm_whole(
    x: Array<f16, 3>,
    [weight, bias]: [Array<f32, 1>; 2],
    y: ArrayMut<f16, 3>,
    [channels, pixels]: [usize; 2],
) {
    let at = (ct::bid(1), ct::bid(0), 0);
    let x = x.load(at, [1, channels, pixels]).cast::<f32>();
    let count = 1.0 / (channels * pixels) as f32;
    let mean = x.sum(..) * count;
    let centred = x - mean;
    let deviation = ((centred * centred).sum(..) * count + EPSILON).rsqrt();
    let [weight, bias] = [weight, bias].map(|of| of.load(ct::bid(0), [channels]).reshape([1, channels, 1]));
    y.store(at, (centred * deviation * weight + bias).cast::<f16>());
}

/// Sums of a group as one row; then a loop over its channels.
fn group_norm_rows(
    x: Array<f16, 3>,
    [weight, bias]: [Array<f32, 1>; 2],
    y: ArrayMut<f16, 3>,
    [channels, pixels]: [usize; 2],
) {
    let (group, image) = (ct::bid(0), ct::bid(1));
    let shape = [1, 1, pixels];
    let load = |j: Scalar<i32>| x.load((image, group * channels + j, 0), shape).cast::<f32>();
    let zeros = || ct::zeros::<f32, 3>(shape);
    let (sum, squares) = ct::fold(..channels, (zeros(), zeros()), |(sum, squares), j| {
        let x = load(j);
        (sum + x, squares + x * x)
    });
    let count = 1.0 / (channels * pixels) as f32;
    let mean = sum.sum(..) * count;
    let deviation = (squares.sum(..) * count - mean * mean + EPSILON).rsqrt();
    ct::fold(..channels, (), |(), j| {
        let channel = group * channels + j;
        let (weight, bias) = (weight.load_scalar(channel), bias.load_scalar(channel));
        y.store((image, channel, 0), ((load(j) - mean) * deviation * weight + bias).cast::<f16>());
    });
}

struct Images {
    x: DeviceArray<f16, 3>,
    affine: [DeviceArray<f32, 1>; 2],
    y: DeviceArray<f16, 3>,
}

fn group_norms([images, channels, pixels]: [usize; 3]) -> Family<Images> {
    let (each, grid) = (channels / GROUPS, [GROUPS, images, 1]);
    let parts = |name: &'static str, part: usize| {
        Case::new(name, 0, move |call, Images { x, affine: [weight, bias], y }: &mut Images| {
            let extents = Constant([each, part.min(pixels)]);
            call.run(grid, group_norm_parts, (&*x, [&*weight, &*bias], y, extents))
        })
    };
    Family {
        name: format!("samples, group norm f16 {images}x{channels}x{pixels}"),
        flops: 0.0,
        bytes: (4 * images * channels * pixels + 8 * channels) as f64,
        tolerance: 0.01,
        arrays: Box::new(move |source| {
            Ok(Images {
                x: source.normal([images, channels, pixels], 1, 1.0)?,
                affine: [source.normal([channels], 2, 1.0)?, source.normal([channels], 3, 1.0)?],
                y: source.zeros([images, channels, pixels])?,
            })
        }),
        result: |arrays| some(&arrays.y),
        cases: vec![
            parts("parts of 256", 256),
            parts("parts of 512", 512),
            parts("parts of 1024", 1024),
            Case::new("channels", 0, move |call, Images { x, affine: [weight, bias], y }| {
                call.run(grid, group_norm_rows, (&*x, [&*weight, &*bias], y, Constant([each, pixels])))
            }),
            Case::new("one tile", 0, move |call, Images { x, affine: [weight, bias], y }| {
                call.run(grid, group_norm_whole, (&*x, [&*weight, &*bias], y, Constant([each, pixels])))
            }),
        ],
    }
}

/// Search for the nearest centre.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Nearest {
    /// The smallest distance of each tile, and its position.
    OfTile,
    /// The smallest distance of each tile with its position, by one reduction of pairs.
    Pairs,
    /// The smallest distance at each place of the tiles with the number of its tile, and one search
    /// after the loop.
    OfPlaces,
    /// As `OfTile`, with points along the columns of the product.
    Columns,
}

/// Assigns each point to the nearest centre: the one with the smallest `|c|^2 - 2 x c`.
fn assign(
    (x, centres, squares): (Array<f16, 2>, Array<f16, 2>, Array<f32, 1>),
    labels: ArrayMut<i32, 1>,
    ([rows, each, dim], form): ([usize; 3], Nearest),
) {
    let i = ct::bid(0);
    let points = x.load((i, 0), [rows, dim]);
    let axis = if form == Nearest::Columns { 0 } else { 1 };
    let (tile, least) = match form {
        Nearest::Columns => ([each, rows], [1, rows]),
        _ => ([rows, each], [rows, 1]),
    };
    let start = if form == Nearest::OfPlaces { tile } else { least };
    let start = (ct::full::<f32, 2>(start, f32::INFINITY), ct::zeros::<i32, 2>(start));
    let (distance, label) = ct::fold(..centres.num_tiles(0, [each, dim]), start, |(least, label), j| {
        let centres = centres.load((j, 0), [each, dim]);
        let squares = squares.load(j, [each]).unsqueeze(1 - axis);
        let product = match form {
            Nearest::Columns => ct::mma(centres, points.transpose(), ct::zeros(tile)),
            _ => ct::mma(points, centres.transpose(), ct::zeros(tile)),
        };
        let distance = squares.sub_with(product * 2.0, ct::FloatMode::new().contract());
        let (at, value) = match form {
            Nearest::OfPlaces => (ct::full(tile, j), distance),
            Nearest::Pairs => {
                let pairs = (distance, ct::indices(tile, 1));
                let (value, at) = ct::reduce(pairs, 1, (f32::INFINITY, 0), |(a, i), (b, j)| {
                    let later = b.lt(a);
                    (ct::select(later, b, a), ct::select(later, j, i))
                });
                (at, value)
            }
            Nearest::OfTile | Nearest::Columns => distance.argmin_with_value(axis),
        };
        let at = if form == Nearest::OfPlaces { at } else { at + j * each };
        let is_less = value.lt(least);
        (ct::select(is_less, value, least), ct::select(is_less, at, label))
    });
    let label = match form {
        Nearest::OfPlaces => {
            let (least, label) = (distance.reduce_min(1), label * each + ct::indices(tile, 1));
            ct::select(distance.eq(least), label, i32::MAX).reduce_min(1)
        }
        _ => label,
    };
    labels.store(i, label.reshape([rows]));
}

struct Points {
    x: DeviceArray<f16, 2>,
    centres: DeviceArray<f16, 2>,
    squares: DeviceArray<f32, 1>,
    labels: DeviceArray<i32, 1>,
}

fn assignments([points, count, dim]: [usize; 3], small: bool) -> Family<Points> {
    let forms = [
        ("tiles 128x128", [128, 128], Nearest::OfTile),
        ("tiles 128x256", [128, 256], Nearest::OfTile),
        ("tiles 64x128", [64, 128], Nearest::OfTile),
        ("pairs 128x128", [128, 128], Nearest::Pairs),
        ("places 128x64", [128, 64], Nearest::OfPlaces),
        ("places 128x128", [128, 128], Nearest::OfPlaces),
        ("columns 128x128", [128, 128], Nearest::Columns),
    ];
    let case = |(name, tile, form): (&'static str, [usize; 2], Nearest)| {
        Case::new(name, 0, move |call, Points { x, centres, squares, labels }: &mut Points| {
            let [rows, each] = if small { tile.map(|extent| extent / 8) } else { tile };
            let (grid, extents) = ([points.div_ceil(rows), 1, 1], Constant(([rows, each, dim], form)));
            call.run(grid, assign, ((&*x, &*centres, &*squares), labels, extents))
        })
    };
    Family {
        name: format!("samples, nearest of {count} centres f16 {points}x{dim}"),
        flops: 2.0 * (points * count * dim) as f64,
        bytes: (2 * (points + count) * dim + 4 * (points + count)) as f64,
        tolerance: 0.0,
        arrays: Box::new(move |source| {
            // Multiples of 1/8 up to 4, so that all distances are exact.
            let whole = |at: usize, factor: usize| (((at * factor) >> 7) % 64) as f64 / 8.0 - 4.0;
            let number = move |at: usize| whole(at, 40503);
            let square = move |at: usize| (0..dim).map(|k| number(at * dim + k).powi(2)).sum::<f64>();
            Ok(Points {
                x: source.numbers([points, dim], move |at| whole(at, 25717))?,
                centres: source.numbers([count, dim], number)?,
                squares: source.numbers([count], square)?,
                labels: source.zeros([points])?,
            })
        }),
        result: |arrays| some(&arrays.labels),
        cases: forms.into_iter().map(case).collect(),
    }
}

/// Selection of the largest elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Selection {
    TopK,
    /// A sort of the whole row, with positions.
    Sort,
    /// The largest element, as often as elements are wanted.
    Rounds,
}

fn largest(
    x: Array<f32, 2>,
    (values, places): (ArrayMut<f32, 2>, ArrayMut<i32, 2>),
    ([rows, columns, k], form): ([usize; 3], Selection),
) {
    let at = (ct::bid(0), 0);
    let x = x.load(at, [rows, columns]);
    match form {
        Selection::TopK => {
            let (largest, at_columns) = x.top_k(1, k);
            values.store(at, largest);
            places.store(at, at_columns);
        }
        Selection::Sort => {
            let (keys, columns) = ct::sort_by_key(-x, ct::indices([rows, columns], 1), 1);
            values.store(at, -keys.extract((0, 0), [rows, k]));
            places.store(at, columns.extract((0, 0), [rows, k]));
        }
        Selection::Rounds => {
            let mut rest = x;
            let numbers = ct::indices([rows, columns], 1);
            for round in 0..k {
                let (column, value) = rest.argmax_with_value(1);
                values.store((ct::bid(0), round as i32), value);
                places.store((ct::bid(0), round as i32), column);
                rest = ct::select(numbers.eq(column), f32::NEG_INFINITY, rest);
            }
        }
    }
}

struct Selected {
    x: DeviceArray<f32, 2>,
    values: DeviceArray<f32, 2>,
    places: DeviceArray<i32, 2>,
}

fn selections([m, n, k]: [usize; 3]) -> Family<Selected> {
    let forms = [
        ("top-k, 4 rows", 4, None, Selection::TopK),
        ("top-k, 8 rows", 8, None, Selection::TopK),
        ("top-k, 16 rows", 16, None, Selection::TopK),
        ("top-k, 32 rows", 32, None, Selection::TopK),
        ("top-k, 8 rows, 1 warp", 8, Some(1), Selection::TopK),
        ("top-k, 32 rows, 2 warps", 32, Some(2), Selection::TopK),
        ("top-k, 32 rows, 8 warps", 32, Some(8), Selection::TopK),
        ("sort, 8 rows", 8, None, Selection::Sort),
        ("rounds, 8 rows", 8, None, Selection::Rounds),
        ("rounds, 32 rows", 32, None, Selection::Rounds),
    ];
    let case = |(name, rows, warps, form): (&'static str, usize, Option<u32>, Selection)| {
        let mut hints = Hints::new();
        hints.num_warps = warps;
        Case::new(name, 0, move |call, Selected { x, values, places }: &mut Selected| {
            let form = Constant(([rows, n, k], form));
            call.run_with(hints, [m.div_ceil(rows), 1, 1], largest, (&*x, (values, places), form))
        })
    };
    Family {
        name: format!("samples, largest {k} of {n} f32 {m}"),
        flops: 0.0,
        bytes: (4 * m * n + 8 * m * k) as f64,
        tolerance: 0.0,
        arrays: Box::new(move |source| {
            Ok(Selected {
                x: source.normal([m, n], 1, 1.0)?,
                values: source.zeros([m, k])?,
                places: source.zeros([m, k])?,
            })
        }),
        result: |arrays| Ok([some(&arrays.values)?, some(&arrays.places)?].concat()),
        cases: forms.into_iter().map(case).collect(),
    }
}

/// The families of normalizations of groups, assignments and selections.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let small = size == Size::Small;
    let (images, points, rows) = match small {
        true => ([1, 2 * GROUPS, 64], [48, 64, 16], [96, 32, 4]),
        false => ([16, 10 * GROUPS, 4096], [1 << 20, 1024, 64], [65536, 128, 8]),
    };
    vec![Box::new(group_norms(images)), Box::new(assignments(points, small)), Box::new(selections(rows))]
}
