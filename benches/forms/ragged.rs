//! Forms of kernels whose groups of rows follow one another: packed attention, and a product with a
//! factor of its own for each group.

use std::f32::consts::LOG2_E;

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

use super::family::{AnyFamily, Case, Family, Size, some};

/// Bounds of the rows of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bounds {
    /// Slices of the arrays.
    Slices,
    /// Slices of the results, and element indices from the first row on.
    Elements,
}

/// A form of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    tile: [usize; 3],
    bounds: Bounds,
    /// Tile blocks after the end of their group return.
    returns: bool,
    /// Scores are bounded by a hyperbolic tangent, times this.
    softcap: Option<u32>,
}

/// The forms, with their names.
fn forms(tile: [usize; 3]) -> Vec<(&'static str, Form)> {
    let b = Form { tile, bounds: Bounds::Slices, returns: true, softcap: None };
    vec![
        ("slices, return", b),
        ("slices", Form { returns: false, ..b }),
        ("elements, return", Form { bounds: Bounds::Elements, ..b }),
        ("elements", Form { bounds: Bounds::Elements, returns: false, ..b }),
    ]
}

type Inputs = (Array<bf16, 3>, Array<bf16, 3>, Array<bf16, 3>, Array<i32, 1>);

/// Causal attention of sequences that begin where the one before ends.
fn prefill((q, k, v, starts): Inputs, out: ArrayMut<bf16, 3>, scale: Scalar<f32>, form: Form) {
    ct::with_mode(ct::FloatMode::fast(), || sequence((q, k, v, starts), out, scale, form));
}

fn sequence((q, k, v, starts): Inputs, out: ArrayMut<bf16, 3>, scale: Scalar<f32>, form: Form) {
    let [m, n, d] = form.tile;
    // The last rows have the most keys.
    let (tile, head, sequence) = (ct::num_blocks(0) - 1 - ct::bid(0), ct::bid(1), ct::bid(2));
    let (begin, end) = (starts.load_scalar(sequence), starts.load_scalar(sequence + 1));
    let length = end - begin;
    if form.returns {
        ct::return_if((tile * m).ge(length));
    }
    let load = |x: Array<bf16, 3>, at: Scalar<i32>, rows: usize| {
        let tile = match form.bounds {
            Bounds::Slices => x.slice(0, begin..end).load((at, head, 0), [rows, 1, d]),
            Bounds::Elements => x.load((ct::at(begin + at * rows), head, 0), [rows, 1, d]),
        };
        tile.reshape([rows, d])
    };
    let queries = load(q, tile, m);
    let step = |masked: bool| {
        move |(acc, max, sum): (Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>), j: Scalar<i32>| {
            let scores = ct::mma(queries, load(k, j, n).transpose(), ct::zeros::<f32, 2>([m, n]));
            // The exponentials have the scale, which the bound is divided by.
            let scores = match form.softcap {
                Some(cap) => (scores * (scale / (cap as f32))).tanh_approx() * (ct::scalar(cap as f32) / scale),
                None => scores,
            };
            let scores = if masked {
                let (row, key) = (tile * m + ct::arange(0..m), j * n + ct::arange(0..n));
                ct::select(key.unsqueeze(0).le(row.unsqueeze(1)), scores, f32::NEG_INFINITY)
            } else {
                scores
            };
            let above = max.max(scores.reduce_max(1) * scale);
            let (weights, decay) = ((scores * scale - above).exp2(), (max - above).exp2());
            (ct::mma(weights.cast::<bf16>(), load(v, j, n), acc * decay), above, sum * decay + weights.sum(1))
        }
    };
    let last = ((tile + 1) * m).min(length);
    // Without an early return, a tile after the end has no keys.
    let (whole, some) = ((tile * m + 1) / n as i32, last.ceil_div(n));
    let (whole, some) = match form.returns {
        true => (whole, some),
        false => {
            let is_there = (tile * m).lt(length).cast::<i32>();
            (whole * is_there, some * is_there)
        }
    };
    let start = (ct::zeros([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    let start = ct::fold(ct::scalar(0)..whole, start, step(false));
    let (acc, _, sum) = ct::fold(whole..some, start, step(true));
    let out = out.slice(0, begin..end);
    out.store((tile, head, 0), (acc / sum).cast::<bf16>().reshape([m, 1, d]));
}

/// Products of groups of rows with a matrix of each group.
fn grouped((a, b, starts): (Array<bf16, 2>, Array<bf16, 3>, Array<i32, 1>), c: ArrayMut<bf16, 2>, form: Form) {
    let [m, n, k] = form.tile;
    let (j, i, group) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let (begin, end) = (starts.load_scalar(group), starts.load_scalar(group + 1));
    if form.returns {
        ct::return_if((i * m).ge(end - begin));
    }
    let tiles = a.num_tiles(1, [m, k]);
    let tiles = if form.returns { tiles } else { tiles * (i * m).lt(end - begin).cast::<i32>() };
    let rows = a.slice(0, begin..end);
    let acc = ct::fold(ct::scalar(0)..tiles, ct::zeros::<f32, 2>([m, n]), |acc, l| {
        let a = match form.bounds {
            Bounds::Slices => rows.load((i, l), [m, k]),
            Bounds::Elements => a.load((ct::at(begin + i * m), l), [m, k]),
        };
        ct::mma(a, b.load((group, l, j), [1, k, n]).reshape([k, n]), acc)
    });
    c.slice(0, begin..end).store((i, j), acc.cast::<bf16>());
}

/// Returns the first row of each group, and the number of rows of all.
fn starts_of(lengths: &[usize]) -> Vec<usize> {
    let mut starts = vec![0];
    starts.extend(lengths.iter().scan(0, |sum, length| {
        *sum += length;
        Some(*sum)
    }));
    starts
}

type Packed = ([DeviceArray<bf16, 3>; 4], DeviceArray<i32, 1>);

fn prefill_family(
    heads: usize,
    d: usize,
    lengths: &'static [usize],
    tile: [usize; 3],
    softcap: Option<u32>,
) -> Family<Packed> {
    let starts = starts_of(lengths);
    let (rows, longest) = (starts[lengths.len()], lengths.iter().copied().max().unwrap_or(0));
    let scale = LOG2_E / (d as f32).sqrt();
    let case = |(name, form): (&'static str, Form)| {
        Case::new(name, 0, move |call, ([q, k, v, out], starts): &mut Packed| {
            let grid = [longest.div_ceil(form.tile[0]), heads, lengths.len()];
            let form = Form { softcap, ..form };
            call.run(grid, prefill, ((&*q, &*k, &*v, &*starts), out, scale, Constant(form)))
        })
    };
    let pairs: usize = lengths.iter().map(|length| length * (length + 1) / 2).sum();
    Family {
        name: format!(
            "packed prefill bf16 {heads} heads of {d}, {rows} rows in {} sequences{}",
            lengths.len(),
            if softcap.is_some() { ", softcap" } else { "" }
        ),
        flops: (4 * heads * d * pairs) as f64,
        bytes: (8 * rows * heads * d) as f64,
        tolerance: 2e-2,
        arrays: Box::new(move |source| {
            let shape = [rows, heads, d];
            let [q, k, v] = [1, 2, 3].map(|seed| source.normal(shape, seed, 1.0));
            let starts: Vec<i32> = starts_of(lengths).into_iter().map(|start| start as i32).collect();
            Ok(([q?, k?, v?, source.zeros(shape)?], source.device.array(&starts, [starts.len()])?))
        }),
        result: |([.., out], _)| some(out),
        cases: forms(tile).into_iter().map(case).collect(),
    }
}

type Groups = (DeviceArray<bf16, 2>, DeviceArray<bf16, 3>, DeviceArray<bf16, 2>, DeviceArray<i32, 1>);

fn grouped_family([n, k]: [usize; 2], lengths: &'static [usize], tile: [usize; 3]) -> Family<Groups> {
    let rows = starts_of(lengths)[lengths.len()];
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let case = |(name, form): (&'static str, Form)| {
        Case::new(name, 0, move |call, (a, b, c, starts): &mut Groups| {
            let grid = [n.div_ceil(form.tile[1]), longest.div_ceil(form.tile[0]), lengths.len()];
            call.run(grid, grouped, ((&*a, &*b, &*starts), c, Constant(form)))
        })
    };
    Family {
        name: format!("grouped product bf16 {rows}x{n}x{k} in {} groups", lengths.len()),
        flops: (2 * rows * n * k) as f64,
        bytes: (2 * (rows * k + lengths.len() * n * k + rows * n)) as f64,
        tolerance: 2e-2,
        arrays: Box::new(move |source| {
            let (a, b) = (source.normal([rows, k], 1, 1.0)?, source.normal([lengths.len(), k, n], 2, 1.0)?);
            let starts: Vec<i32> = starts_of(lengths).into_iter().map(|start| start as i32).collect();
            Ok((a, b, source.zeros([rows, n])?, source.device.array(&starts, [starts.len()])?))
        }),
        result: |(_, _, c, _)| some(c),
        cases: forms(tile).into_iter().map(case).collect(),
    }
}

/// Rows of the sequences: 16384 together.
const SEQUENCES: [usize; 8] = [4099, 517, 2048, 1311, 3333, 130, 2999, 1947];
/// Rows of longer sequences: 39998 together.
const LONG_SEQUENCES: [usize; 8] = [10007, 1261, 5000, 3201, 8137, 317, 7322, 4753];
/// Rows of the groups: 8192 together.
const ROWS: [usize; 8] = [1717, 305, 911, 2050, 64, 1403, 0, 1742];

/// The families of ragged groups.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    match size {
        Size::Full => vec![
            Box::new(prefill_family(32, 128, &SEQUENCES, [128, 128, 128], None)),
            Box::new(prefill_family(32, 128, &LONG_SEQUENCES, [128, 128, 128], None)),
            Box::new(prefill_family(32, 128, &LONG_SEQUENCES, [128, 128, 128], Some(30))),
            Box::new(grouped_family([4096, 4096], &ROWS, [128, 256, 64])),
        ],
        Size::Small => vec![
            Box::new(prefill_family(2, 64, &[70, 3, 130], [64, 64, 64], None)),
            Box::new(prefill_family(2, 64, &[70, 3, 130], [64, 64, 64], Some(30))),
            Box::new(grouped_family([64, 64], &[50, 0, 17, 69], [32, 32, 32])),
        ],
    }
}
