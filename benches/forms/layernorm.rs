//! Forms of the layer normalization of rows.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

use super::family::{AnyFamily, Case, Family, Size, some};

/// Rows and loads of a tile block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rows {
    /// One tile with some rows.
    Tile(usize),
    /// A tile with one axis.
    OneAxis,
    /// A tile with one axis, by positions.
    Gather,
    /// Every n-th row, with this many tile blocks for a multiprocessor.
    Persistent(usize),
    /// Chunks of a row: a loop for the mean, one for the variance and one for the result.
    Chunks,
    /// Chunks of a row: a loop for sum and sum of squares, and one for the result.
    ChunksOfSquares,
    /// Chunks of a row: a loop for mean and variance by the algorithm of Welford, and one for the
    /// result.
    Welford,
}

/// Source of the variance of a whole row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Variance {
    /// The mean of the squares of the differences.
    Differences,
    /// The mean of the squares, less the square of the mean.
    Squares,
}

/// Order of the factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Order {
    /// `(difference * deviation) * weight + bias`
    Normalized,
    /// `difference * (deviation * weight) + bias`
    Weight,
    /// A fused multiply-add of the normalized row.
    Fused,
}

/// A form of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    columns: usize,
    chunk: usize,
    rows: Rows,
    variance: Variance,
    order: Order,
    /// `1 / sqrt` in the place of `rsqrt`.
    root: bool,
    /// Division by the number of columns in the place of a product.
    quotient: bool,
    /// Weight and bias are loaded before the row.
    weight_first: bool,
    /// Weight and bias are multiplied and added in f16.
    half: bool,
}

/// The kernel as a textbook writes it.
const TEXTBOOK: Form = Form {
    columns: 0,
    chunk: 0,
    rows: Rows::Tile(1),
    variance: Variance::Differences,
    order: Order::Normalized,
    root: false,
    quotient: false,
    weight_first: false,
    half: false,
};

const EPSILON: f32 = 1e-5;

fn mean(x: Tile<f32, 2>, form: Form) -> Tile<f32, 2> {
    let n = form.columns as f32;
    if form.quotient { x.sum(1) / n } else { x.sum(1) * (1.0 / n) }
}

fn inverse_root(variance: Tile<f32, 2>, form: Form) -> Tile<f32, 2> {
    if form.root { 1.0 / (variance + EPSILON).sqrt() } else { (variance + EPSILON).rsqrt() }
}

/// Differences from the mean, times the inverse deviation, times the weight, plus the bias.
fn scaled(
    difference: Tile<f32, 2>,
    deviation: Tile<f32, 2>,
    weight: Tile<f16, 2>,
    bias: Tile<f16, 2>,
    form: Form,
) -> Tile<f16, 2> {
    if form.half {
        return (difference * deviation).cast::<f16>() * weight + bias;
    }
    let (weight, bias) = (weight.cast::<f32>(), bias.cast::<f32>());
    let result = match form.order {
        Order::Normalized => difference * deviation * weight + bias,
        Order::Weight => difference * (deviation * weight) + bias,
        Order::Fused => (difference * deviation).fma(weight, bias),
    };
    result.cast::<f16>()
}

/// Normalizes a tile with whole rows.
fn of_tile(x: Tile<f32, 2>, vectors: impl Fn() -> [Tile<f16, 2>; 2], form: Form) -> Tile<f16, 2> {
    let early = form.weight_first.then(&vectors);
    let average = mean(x, form);
    let difference = x - average;
    let variance = match form.variance {
        Variance::Differences => mean(difference * difference, form),
        Variance::Squares => mean(x * x, form) - average * average,
    };
    let [weight, bias] = early.unwrap_or_else(&vectors);
    scaled(difference, inverse_root(variance, form), weight, bias, form)
}

fn layernorm(x: Array<f16, 2>, weight: Array<f16, 1>, bias: Array<f16, 1>, y: ArrayMut<f16, 2>, form: Form) {
    let n = form.columns;
    let vectors = || [weight, bias].map(|vector| vector.load(0, [n]).unsqueeze(0));
    let row = ct::bid(0);
    match form.rows {
        Rows::Tile(rows) => {
            let early = form.weight_first.then(vectors);
            let tile = x.load((row, 0), [rows, n]).cast::<f32>();
            y.store((row, 0), of_tile(tile, || early.unwrap_or_else(vectors), form));
        }
        Rows::OneAxis => {
            let tile = x.load((row, 0), [n]).cast::<f32>().unsqueeze(0);
            y.store((row, 0), of_tile(tile, vectors, form));
        }
        Rows::Gather => {
            let columns = ct::arange(0..n);
            let vectors = || [weight, bias].map(|vector| vector.gather(columns).unsqueeze(0));
            let tile = x.gather((row, columns)).cast::<f32>().unsqueeze(0);
            y.scatter((row, columns), of_tile(tile, vectors, form).squeeze(0));
        }
        Rows::Persistent(_) => {
            let early = form.weight_first.then(vectors);
            ct::fold(ct::range(row, x.extent(0)).step(ct::num_blocks(0)), (), |(), row| {
                let tile = x.load((row, 0), [1, n]).cast::<f32>();
                let form = Form { weight_first: false, ..form };
                y.store((row, 0), of_tile(tile, || early.unwrap_or_else(vectors), form));
            });
        }
        Rows::Chunks | Rows::ChunksOfSquares | Rows::Welford => by_chunks(x, [weight, bias], y, row, form),
    }
}

fn by_chunks(x: Array<f16, 2>, vectors: [Array<f16, 1>; 2], y: ArrayMut<f16, 2>, row: Scalar<i32>, form: Form) {
    let shape = [1, form.chunk];
    let load = |j: Scalar<i32>| x.load((row, j), shape).cast::<f32>();
    let chunks = x.num_tiles(1, shape);
    let zeros = || ct::zeros::<f32, 2>(shape);
    let (average, variance) = match form.rows {
        Rows::ChunksOfSquares => {
            let (sum, squares) = ct::fold(..chunks, (zeros(), zeros()), |(sum, squares), j| {
                let x = load(j);
                (sum + x, squares + x * x)
            });
            let average = mean(sum, form);
            (average, mean(squares, form) - average * average)
        }
        Rows::Welford => {
            let one = || ct::zeros::<f32, 2>([1, 1]);
            let start = (ct::scalar(0.0f32), one(), one());
            let (_, average, squares) = ct::fold(..chunks, start, |(count, average, squares), j| {
                let x = load(j);
                let part = form.chunk as f32;
                let of_chunk = x.sum(1) * (1.0 / part);
                let of_squares = ((x - of_chunk) * (x - of_chunk)).sum(1);
                let (all, distance) = (count + part, of_chunk - average);
                let moved = average + distance * (part / all);
                (all, moved, squares + of_squares + distance * distance * (count * part / all))
            });
            (average, squares * (1.0 / form.columns as f32))
        }
        _ => {
            let average = mean(ct::fold(..chunks, zeros(), |sum, j| sum + load(j)), form);
            let squares = ct::fold(..chunks, zeros(), |sum, j| {
                let difference = load(j) - average;
                sum + difference * difference
            });
            (average, mean(squares, form))
        }
    };
    let deviation = inverse_root(variance, form);
    ct::fold(..chunks, (), |(), j| {
        let [weight, bias] = vectors.map(|vector| vector.load(j, [form.chunk]).unsqueeze(0));
        y.store((row, j), scaled(load(j) - average, deviation, weight, bias, form));
    });
}

/// The forms, with their names.
fn forms() -> Vec<(&'static str, Form)> {
    let b = TEXTBOOK;
    vec![
        ("textbook", b),
        ("mean of squares", Form { variance: Variance::Squares, ..b }),
        ("1 / sqrt", Form { root: true, ..b }),
        ("division by n", Form { quotient: true, ..b }),
        ("weight times deviation", Form { order: Order::Weight, ..b }),
        ("fused", Form { order: Order::Fused, ..b }),
        ("weight loaded first", Form { weight_first: true, ..b }),
        ("weight in f16", Form { half: true, ..b }),
        ("tile of one axis", Form { rows: Rows::OneAxis, ..b }),
        ("by positions", Form { rows: Rows::Gather, ..b }),
        ("2 rows", Form { rows: Rows::Tile(2), ..b }),
        ("4 rows", Form { rows: Rows::Tile(4), ..b }),
        ("persistent", Form { rows: Rows::Persistent(1), ..b }),
        ("persistent, weight before the loop", Form { rows: Rows::Persistent(1), weight_first: true, ..b }),
        ("persistent, 4 a multiprocessor", Form { rows: Rows::Persistent(4), ..b }),
        (
            "persistent, 4 a multiprocessor, weight before the loop",
            Form { rows: Rows::Persistent(4), weight_first: true, ..b },
        ),
        ("chunks", Form { rows: Rows::Chunks, ..b }),
        ("chunks, mean of squares", Form { rows: Rows::ChunksOfSquares, ..b }),
        ("chunks, Welford", Form { rows: Rows::Welford, ..b }),
    ]
}

struct Arrays {
    x: DeviceArray<f16, 2>,
    weight: DeviceArray<f16, 1>,
    bias: DeviceArray<f16, 1>,
    y: DeviceArray<f16, 2>,
}

fn family([m, n]: [usize; 2]) -> Family<Arrays> {
    let case = |(name, form): (&'static str, Form)| {
        let form = Form { columns: n, chunk: n / 4, ..form };
        Case::new(name, 0, move |call, Arrays { x, weight, bias, y }| {
            let blocks = match form.rows {
                Rows::Tile(rows) => m.div_ceil(rows),
                Rows::Persistent(each) => (call.num_multiprocessors() * each).min(m),
                _ => m,
            };
            call.run([blocks, 1, 1], layernorm, (&*x, &*weight, &*bias, y, Constant(form)))
        })
    };
    Family {
        name: format!("layernorm f16 {m}x{n}"),
        flops: 0.0,
        bytes: (4 * m * n + 4 * n) as f64,
        tolerance: 0.06,
        arrays: Box::new(move |source| {
            Ok(Arrays {
                x: source.normal([m, n], 1, 1.0)?,
                weight: source.normal([n], 2, 1.0)?,
                bias: source.normal([n], 3, 1.0)?,
                y: source.zeros([m, n])?,
            })
        }),
        result: |arrays| some(&arrays.y),
        cases: forms().into_iter().map(case).collect(),
    }
}

/// The families of layer normalization.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let shape = match size {
        Size::Full => [4096, 4096],
        Size::Small => [12, 128],
    };
    vec![Box::new(family(shape))]
}
