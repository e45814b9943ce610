//! Forms of the softmax of rows.

use std::f32::consts::LOG2_E;

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::element::CastTo;
use cutlet::prelude::*;

use super::family::{AnyFamily, Case, Family, Size, some};

/// Rows and loads of a tile block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rows {
    /// One tile with some rows.
    Tile(usize),
    /// A tile with one axis.
    OneAxis,
    /// A tile with one axis, of the array of the row.
    OfRow,
    /// A tile with one axis, by positions.
    Gather,
    /// Every n-th row, with this many tile blocks for a multiprocessor.
    Persistent(usize),
    /// Chunks of a row, in a loop for maximum and sum and a second one for the result.
    Online,
    /// Chunks of a row, in a loop for the maximum, one for the sum and one for the result.
    ThreeLoops,
    /// A part of a row in each tile block of a cluster of this size.
    Cluster(usize),
}

/// Source of the first maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum First {
    Infinite,
    Large,
    /// The maximum of the first chunk.
    Chunk,
}

/// A form of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    columns: usize,
    chunk: usize,
    rows: Rows,
    first: First,
    /// `exp2` of scaled differences in the place of `exp`.
    base_2: bool,
    /// The result is multiplied by the reciprocal of the sum.
    reciprocal: bool,
    /// The operation `softmax` of tiles.
    method: bool,
}

/// The kernel as a textbook writes it.
const TEXTBOOK: Form = Form {
    columns: 0,
    chunk: 0,
    rows: Rows::Tile(1),
    first: First::Infinite,
    base_2: false,
    reciprocal: false,
    method: false,
};

fn exp(x: Tile<f32, 2>, form: Form) -> Tile<f32, 2> {
    if form.base_2 { (x * LOG2_E).exp2() } else { x.exp() }
}

/// Softmax of a tile with whole rows.
fn of_tile(x: Tile<f32, 2>, form: Form) -> Tile<f32, 2> {
    if form.method {
        return x.softmax(1);
    }
    let powers = exp(x - x.reduce_max(1), form);
    divided(powers, powers.sum(1), form)
}

fn divided(powers: Tile<f32, 2>, sum: Tile<f32, 2>, form: Form) -> Tile<f32, 2> {
    if form.reciprocal { powers * (1.0 / sum) } else { powers / sum }
}

fn softmax<T: ByteSized + CastTo<f32>>(x: Array<T, 2>, y: ArrayMut<T, 2>, form: Form)
where
    f32: CastTo<T>,
{
    let n = form.columns;
    let padding = || ct::LoadOptions::new().padding(Padding::NegInf);
    let row = ct::bid(0);
    match form.rows {
        Rows::Tile(rows) => {
            let tile = x.load_with((row, 0), [rows, n], padding()).cast::<f32>();
            y.store((row, 0), of_tile(tile, form).cast::<T>());
        }
        Rows::OneAxis => {
            let tile = x.load_with((row, 0), [n], padding()).cast::<f32>();
            y.store((row, 0), of_tile(tile.unsqueeze(0), form).cast::<T>());
        }
        Rows::OfRow => {
            let tile = x.index_axis(0, row).load_with(0, [n], padding()).cast::<f32>();
            let powers = (tile - tile.reduce_max(0)).exp();
            y.index_axis(0, row).store(0, (powers / powers.sum(0)).cast::<T>());
        }
        Rows::Gather => {
            let columns = ct::arange(0..n);
            let tile = x.gather((row, columns)).cast::<f32>();
            let powers = (tile - tile.reduce_max(0)).exp();
            y.scatter((row, columns), (powers / powers.sum(0)).cast::<T>());
        }
        Rows::Persistent(_) => ct::fold(ct::range(row, x.extent(0)).step(ct::num_blocks(0)), (), |(), row| {
            let tile = x.load_with((row, 0), [1, n], padding()).cast::<f32>();
            y.store((row, 0), of_tile(tile, form).cast::<T>());
        }),
        Rows::Online | Rows::ThreeLoops => by_chunks(x, y, row, form),
        Rows::Cluster(size) => {
            let cluster = ct::cluster(size);
            let at = (cluster.id(), cluster.rank());
            let part = x.load_with(at, [1, n / size], padding()).cast::<f32>();
            let powers = exp(part - cluster.reduce_max(part.reduce_max(1)), form);
            y.store(at, divided(powers, cluster.sum(powers.sum(1)), form).cast::<T>());
        }
    }
}

fn by_chunks<T: ByteSized + CastTo<f32>>(x: Array<T, 2>, y: ArrayMut<T, 2>, row: Scalar<i32>, form: Form)
where
    f32: CastTo<T>,
{
    let shape = [1, form.chunk];
    let padding = || ct::LoadOptions::new().padding(Padding::NegInf);
    let load = |j: Scalar<i32>| x.load_with((row, j), shape, padding()).cast::<f32>();
    let chunks = x.num_tiles(1, shape);
    let first = match form.first {
        First::Infinite => ct::full([1, 1], f32::NEG_INFINITY),
        First::Large => ct::full([1, 1], -1e30),
        First::Chunk => load(ct::scalar(0)).reduce_max(1),
    };
    let (max, sum) = match form.rows {
        Rows::ThreeLoops => {
            let max = ct::fold(..chunks, first, |max, j| max.max(load(j).reduce_max(1)));
            (max, ct::fold(..chunks, ct::zeros([1, 1]), |sum, j| sum + exp(load(j) - max, form).sum(1)))
        }
        _ => ct::fold(..chunks, (first, ct::zeros::<f32, 2>([1, 1])), |(max, sum), j| {
            let x = load(j);
            let above = max.max(x.reduce_max(1));
            (above, sum * exp(max - above, form) + exp(x - above, form).sum(1))
        }),
    };
    ct::fold(..chunks, (), |(), j| y.store((row, j), divided(exp(load(j) - max, form), sum, form).cast::<T>()));
}

/// The forms, with their names.
fn forms() -> Vec<(&'static str, Form)> {
    let b = TEXTBOOK;
    let online = Form { rows: Rows::Online, ..b };
    vec![
        ("textbook", b),
        ("method", Form { method: true, ..b }),
        ("exp2", Form { base_2: true, ..b }),
        ("reciprocal", Form { reciprocal: true, ..b }),
        ("exp2, reciprocal", Form { base_2: true, reciprocal: true, ..b }),
        ("tile of one axis", Form { rows: Rows::OneAxis, ..b }),
        ("array of the row", Form { rows: Rows::OfRow, ..b }),
        ("by positions", Form { rows: Rows::Gather, ..b }),
        ("2 rows", Form { rows: Rows::Tile(2), ..b }),
        ("4 rows", Form { rows: Rows::Tile(4), ..b }),
        ("persistent", Form { rows: Rows::Persistent(1), ..b }),
        ("persistent, 4 a multiprocessor", Form { rows: Rows::Persistent(4), ..b }),
        ("chunks", online),
        ("chunks, maximum from -1e30", Form { first: First::Large, ..online }),
        ("chunks, maximum of the first chunk", Form { first: First::Chunk, ..online }),
        ("chunks, exp2, reciprocal", Form { base_2: true, reciprocal: true, ..online }),
        ("chunks, three loops", Form { rows: Rows::ThreeLoops, ..b }),
    ]
}

/// The forms for rows that exceed the registers of a tile block.
fn forms_of_long_rows() -> Vec<(&'static str, Form)> {
    let b = TEXTBOOK;
    vec![
        ("cluster of 8", Form { rows: Rows::Cluster(8), ..b }),
        ("cluster of 4", Form { rows: Rows::Cluster(4), ..b }),
        ("cluster of 16", Form { rows: Rows::Cluster(16), ..b }),
        ("chunks", Form { rows: Rows::Online, ..b }),
        ("chunks, three loops", Form { rows: Rows::ThreeLoops, ..b }),
    ]
}

type Arrays<T> = [DeviceArray<T, 2>; 2];

fn family<T: ByteSized + CastTo<f32>>([m, n]: [usize; 2], forms: Vec<(&'static str, Form)>) -> Family<Arrays<T>>
where
    f32: CastTo<T>,
{
    let case = |(name, form): (&'static str, Form)| {
        let form = Form { columns: n.next_power_of_two(), chunk: (n.next_power_of_two() / 4).min(4096), ..form };
        Case::new(name, 0, move |call, [x, y]: &mut Arrays<T>| {
            let blocks = match form.rows {
                Rows::Tile(rows) => m.div_ceil(rows),
                Rows::Cluster(size) => m * size,
                Rows::Persistent(each) => (call.num_multiprocessors() * each).min(m),
                _ => m,
            };
            call.run([blocks, 1, 1], softmax::<T>, (&*x, y, Constant(form)))
        })
    };
    Family {
        name: format!("softmax {} {m}x{n}", T::NAME),
        flops: 0.0,
        bytes: (2 * m * n * size_of::<T>()) as f64,
        tolerance: 2e-4,
        arrays: Box::new(move |source| Ok([source.normal([m, n], 1, 2.0)?, source.zeros([m, n])?])),
        result: |[_, y]| some(y),
        cases: forms.into_iter().map(case).collect(),
    }
}

/// The families of softmax.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let (shape, long) = match size {
        Size::Full => ([4096, 4096], [1024, 1 << 17]),
        Size::Small => ([12, 128], [3, 1000]),
    };
    vec![
        Box::new(family::<f32>(shape, forms())),
        Box::new(family::<f16>(shape, forms())),
        Box::new(family::<f32>(long, forms_of_long_rows())),
    ]
}
