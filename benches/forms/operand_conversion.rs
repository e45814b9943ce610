//! Operands that a loop makes from loaded tiles: weights of 4 and 8 bits, parts of a tile, pairs of
//! numbers, and rows with a scale.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::element::CastTo;
use cutlet::packed::{Narrow, PackedArray, PackedDeviceArray, u4};
use cutlet::prelude::*;

use super::family::{AnyFamily, Case, Family, Size, Source, some};

/// Weights of a column that share a scale.
const GROUP: usize = 128;

/// A form of a product with narrow weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Product {
    /// Rows and columns of a tile of the result, and elements of a sum in one step.
    tile: [usize; 3],
    /// Parts of the sum, each by a tile block of its own.
    parts: usize,
    /// The transposed result, with weights as left operand.
    turned: bool,
}

/// One tile of the product of `x` with weights, which a function loads as `[k, n]`.
fn product(
    x: Array<f16, 2>,
    weight: impl Fn(Scalar<i32>, Scalar<i32>) -> Tile<f16, 2>,
    y: ArrayMut<f32, 3>,
    Product { tile: [tm, tn, tk], parts, turned }: Product,
) {
    let (i, j, part) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let steps = x.num_tiles(1, [tm, tk]).ceil_div(parts as i32);
    let range = ct::range(part * steps, (part * steps + steps).min(x.num_tiles(1, [tm, tk])));
    let sum = match turned {
        false => ct::fold(range, ct::zeros::<f32, 2>([tm, tn]), |sum, k| {
            ct::mma(x.load((i, k), [tm, tk]), weight(k, j), sum)
        }),
        true => ct::fold(range, ct::zeros::<f32, 2>([tn, tm]), |sum, k| {
            ct::mma(weight(k, j).transpose(), x.load((i, k), [tm, tk]).transpose(), sum)
        })
        .transpose(),
    };
    y.store((part, i, j), sum.reshape([1, tm, tn]));
}

fn by_bytes<T: Element + CastTo<f16>>(
    x: Array<f16, 2>,
    weights: Array<T, 2>,
    scales: Array<f16, 2>,
    y: ArrayMut<f32, 3>,
    form: Product,
) {
    let [_, tn, tk] = form.tile;
    let load = |k: Scalar<i32>, j: Scalar<i32>| weights.load((k, j), [tk, tn]).cast::<f16>();
    let _ = scales;
    product(x, load, y, form);
}

fn by_bytes_of_columns<T: Element + CastTo<f16>>(
    x: Array<f16, 2>,
    weights: Array<T, 2>,
    scales: Array<f16, 2>,
    y: ArrayMut<f32, 3>,
    form: Product,
) {
    let [_, tn, tk] = form.tile;
    let load = |k: Scalar<i32>, j: Scalar<i32>| weights.load((j, k), [tn, tk]).cast::<f16>().transpose();
    let _ = scales;
    product(x, load, y, form);
}

fn by_nibbles(
    x: Array<f16, 2>,
    weights: PackedArray<u4, 2>,
    scales: Array<f16, 2>,
    y: ArrayMut<f32, 3>,
    form: Product,
) {
    let [_, tn, tk] = form.tile;
    let load = |k: Scalar<i32>, j: Scalar<i32>| {
        let codes = weights.load((k, j), [tk, tn]).cast::<f16>() - 7.5;
        match tk <= GROUP {
            true => codes * scales.load((k / (GROUP / tk) as i32, j), [1, tn]),
            false => {
                let groups = tk / GROUP;
                let scales = scales.load((k, j), [groups, tn]).reshape([groups, 1, tn]);
                (codes.reshape([groups, GROUP, tn]) * scales).reshape([tk, tn])
            }
        }
    };
    product(x, load, y, form);
}

fn sum_of_parts(parts: Array<f32, 3>, y: ArrayMut<f16, 2>, [count, rows, columns]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    y.store((i, j), parts.load((0, i, j), [count, rows, columns]).sum(0).reshape([rows, columns]).cast::<f16>());
}

struct Weights<T: Element> {
    x: DeviceArray<f16, 2>,
    bytes: [DeviceArray<T, 2>; 2],
    nibbles: PackedDeviceArray<u4, 2>,
    scales: DeviceArray<f16, 2>,
    parts: DeviceArray<f32, 3>,
    y: DeviceArray<f16, 2>,
}

/// Way of storing the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Rows,
    Columns,
    Nibbles,
}

/// The code of a weight.
fn code(row: usize, column: usize) -> usize {
    ((row * 31 + column) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 60 & 15
}

fn of_weights<T: Element + CastTo<f16>>(
    name: &str,
    [m, n, k]: [usize; 3],
    stored: Vec<Stored>,
    forms: &[(&'static str, Product)],
) -> Family<Weights<T>> {
    let is_small = m <= 64;
    let largest = forms.iter().map(|(_, form)| form.parts).max().unwrap_or(1);
    let mut cases = Vec::new();
    for &stored in &stored {
        for &(name, form) in forms {
            let name = match stored {
                Stored::Columns => [name, "columns in rows"].join(", ").leak(),
                Stored::Rows | Stored::Nibbles => name,
            };
            let [tm, tn, _] = form.tile;
            let grid = [m.div_ceil(tm), n.div_ceil(tn), form.parts];
            cases.push(Case::new(name, 0, move |call, Weights { x, bytes, nibbles, scales, parts, y }| {
                let mut out = parts.view_mut().slice(0, ..form.parts)?;
                match stored {
                    Stored::Rows => {
                        call.run(grid, by_bytes::<T>, (&*x, &bytes[0], &*scales, &mut out, Constant(form)))?;
                    }
                    Stored::Columns => {
                        call.run(grid, by_bytes_of_columns::<T>, (&*x, &bytes[1], &*scales, &mut out, Constant(form)))?;
                    }
                    Stored::Nibbles => {
                        call.run(grid, by_nibbles, (&*x, &*nibbles, &*scales, &mut out, Constant(form)))?;
                    }
                }
                let rows = if is_small { 1 } else { 8 };
                let sums = [m.div_ceil(rows), n.div_ceil(256), 1];
                call.run(sums, sum_of_parts, (out.as_view(), y, Constant([form.parts, rows, 256])))
            }));
        }
    }
    let is_narrow = stored.contains(&Stored::Nibbles);
    let arrays = move |source: Source| {
        let bytes: [usize; 2] = if is_narrow { [1, 1] } else { [k, n] };
        Ok(Weights {
            x: source.normal([m, k], 1, 1.0 / (k as f32).sqrt())?,
            bytes: [
                source.numbers(bytes, move |at| code(at / n, at % n) as f64 - 7.0)?,
                source.numbers([bytes[1], bytes[0]], move |at| code(at % k, at / k) as f64 - 7.0)?,
            ],
            nibbles: match is_narrow {
                true if source.has_values => {
                    let codes: Vec<u4> = (0..k * n).map(|at| u4::from_value(code(at / n, at % n) as f64)).collect();
                    source.device.packed(&codes, [k, n])?
                }
                true => source.device.packed_zeros([k, n])?,
                false => source.device.packed_zeros([1, 1])?,
            },
            scales: source.numbers([k.div_ceil(GROUP), n], |at| 0.5 + (at % 7) as f64 / 10.0)?,
            parts: source.zeros([largest, m, n])?,
            y: source.zeros([m, n])?,
        })
    };
    Family {
        name: format!("conversion, {name} x f16 {m}x{n}x{k}"),
        flops: if m > 256 { 2.0 * (m * n * k) as f64 } else { 0.0 },
        bytes: (k * n) as f64 * if is_narrow { 0.5 } else { 1.0 } + (2 * m * (k + n)) as f64,
        tolerance: 0.02,
        arrays: Box::new(arrays),
        result: |arrays| some(&arrays.y),
        cases,
    }
}

/// The forms for a number of rows.
fn products(m: usize, size: Size) -> Vec<(&'static str, Product)> {
    let form = |tile, parts, turned| Product { tile, parts, turned };
    match (m, size) {
        (_, Size::Small) => vec![
            ("plain", form([32, 64, 32], 1, false)),
            ("turned", form([16, 64, 32], 1, true)),
            ("turned, 2 parts", form([32, 64, 64], 2, true)),
        ],
        (..=64, _) => {
            let tm = m.next_power_of_two().max(16);
            vec![
                ("plain, 4 parts", form([tm, 64, 128], 4, false)),
                ("turned, 4 parts", form([tm, 64, 128], 4, true)),
                ("turned, wide, 4 parts", form([tm, 128, 128], 4, true)),
                ("turned, 8 parts", form([tm, 64, 128], 8, true)),
                ("turned, wide, 8 parts", form([tm, 128, 64], 8, true)),
            ]
        }
        _ => vec![
            ("plain 128x128", form([128, 128, 64], 1, false)),
            ("plain 128x256", form([128, 256, 64], 1, false)),
            ("turned 128x128", form([128, 128, 64], 1, true)),
            ("turned 256x128", form([256, 128, 64], 1, true)),
            ("turned 128x256", form([128, 256, 64], 1, true)),
        ],
    }
}

/// A form of decoding with one latent vector for keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Latent {
    /// Heads of a tile, keys of a tile, numbers of the latent and rotated part of a key.
    tile: [usize; 4],
    /// Both parts of a key are loads of their own.
    apart: bool,
    /// The value is a load of its own.
    twice: bool,
    /// Columns of a load of the latent part; 0: all of them.
    columns: usize,
}

/// The latent part in blocks of columns, each of which is a load of its own and has an accumulator.
fn latent_in_blocks(
    q: Array<f16, 3>,
    keys: Array<f16, 3>,
    out: ArrayMut<f16, 3>,
    scale: Scalar<f32>,
    Latent { tile: [m, n, d, r], columns, .. }: Latent,
) {
    let (heads, batch) = (ct::bid(0), ct::bid(1));
    let part = |x: Array<f16, 3>, i: Scalar<i32>, rows: usize, column: usize, width: usize| {
        x.load((batch, i, (column / width) as i32), [1, rows, width]).reshape([rows, width])
    };
    let blocks = |x: Array<f16, 3>, i: Scalar<i32>, rows: usize| -> [Tile<f16, 2>; 4] {
        [0, 1, 2, 3].map(|block| part(x, i, rows, block * columns, columns))
    };
    let (queries, rotated) = (blocks(q, heads, m), part(q, heads, m, d, r));
    let sums: [Tile<f32, 2>; 4] = [(); 4].map(|()| ct::zeros([m, columns]));
    let start = (sums, ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    ct::with_mode(ct::FloatMode::fast(), || {
        let (sums, _, total) = ct::fold(..keys.extent(1).ceil_div(n), start, |(sums, max, total), j| {
            let (narrow, wide) = (part(keys, j, n, d, r), blocks(keys, j, n));
            let scores = ct::mma(rotated, narrow.transpose(), ct::zeros::<f32, 2>([m, n]));
            let scores = ct::mma(queries[0], wide[0].transpose(), scores);
            let scores = ct::mma(queries[1], wide[1].transpose(), scores);
            let scores = ct::mma(queries[2], wide[2].transpose(), scores);
            let scores = ct::mma(queries[3], wide[3].transpose(), scores);
            let new_max = max.max(scores.reduce_max(1) * scale);
            let weights = (scores * scale - new_max).exp2();
            let decay = (max - new_max).exp2();
            let factors = weights.cast::<f16>();
            let sums = [
                ct::mma(factors, wide[0], sums[0] * decay),
                ct::mma(factors, wide[1], sums[1] * decay),
                ct::mma(factors, wide[2], sums[2] * decay),
                ct::mma(factors, wide[3], sums[3] * decay),
            ];
            (sums, new_max, total * decay + weights.sum(1))
        });
        for (block, sum) in sums.into_iter().enumerate() {
            out.store((batch, heads, block as i32), (sum / total).cast::<f16>().reshape([1, m, columns]));
        }
    });
}

fn latent(q: Array<f16, 3>, keys: Array<f16, 3>, out: ArrayMut<f16, 3>, scale: Scalar<f32>, form: Latent) {
    if form.columns > 0 {
        return latent_in_blocks(q, keys, out, scale, form);
    }
    let Latent { tile: [m, n, d, r], apart, twice, .. } = form;
    let (heads, batch) = (ct::bid(0), ct::bid(1));
    let part = |x: Array<f16, 3>, i: Scalar<i32>, rows: usize, column: usize, width: usize| {
        x.load((batch, i, (column / width) as i32), [1, rows, width]).reshape([rows, width])
    };
    let queries: Vec<Tile<f16, 2>> = match apart {
        true => vec![part(q, heads, m, 0, d), part(q, heads, m, d, r)],
        false => vec![part(q, heads, m, 0, d + r)],
    };
    let start = (ct::zeros([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    ct::with_mode(ct::FloatMode::fast(), || {
        let (acc, _, sum) = ct::fold(..keys.extent(1).ceil_div(n), start, |(acc, max, sum), j| {
            let zeros = ct::zeros::<f32, 2>([m, n]);
            let (scores, values) = match apart {
                true => {
                    let (wide, narrow) = (part(keys, j, n, 0, d), part(keys, j, n, d, r));
                    let scores = ct::mma(queries[1], narrow.transpose(), zeros);
                    (ct::mma(queries[0], wide.transpose(), scores), wide)
                }
                false => {
                    let key = part(keys, j, n, 0, d + r);
                    let value = if twice { part(keys, j, n, 0, d) } else { key.extract((0, 0), [n, d]) };
                    (ct::mma(queries[0], key.transpose(), zeros), value)
                }
            };
            let new_max = max.max(scores.reduce_max(1) * scale);
            let weights = (scores * scale - new_max).exp2();
            let decay = (max - new_max).exp2();
            (ct::mma(weights.cast::<f16>(), values, acc * decay), new_max, sum * decay + weights.sum(1))
        });
        out.store((batch, heads, 0), (acc / sum).cast::<f16>().reshape([1, m, d]));
    });
}

struct Latents {
    q: DeviceArray<f16, 3>,
    keys: DeviceArray<f16, 3>,
    out: DeviceArray<f16, 3>,
}

fn of_latent([batch, heads, seq]: [usize; 3], [m, n, d, r]: [usize; 4]) -> Family<Latents> {
    let scale = std::f32::consts::LOG2_E / ((d + r) as f32).sqrt();
    let form = |apart, twice| Latent { tile: [m, n, d, r], apart, twice, columns: 0 };
    let blocks = |columns, keys| Latent { tile: [m, keys, d, r], columns, ..form(true, false) };
    let case = |(name, form): (&'static str, Latent)| {
        Case::new(name, 0, move |call, Latents { q, keys, out }| {
            call.run([heads.div_ceil(m), batch, 1], latent, (&*q, &*keys, out, scale, Constant(form)))
        })
    };
    let forms = [
        ("latent apart", form(true, false)),
        ("part of a tile", form(false, false)),
        ("loaded twice", form(false, true)),
        ("latent apart, 32 keys", Latent { tile: [m, n / 2, d, r], ..form(true, false) }),
        ("part of a tile, 32 keys", Latent { tile: [m, n / 2, d, r], ..form(false, false) }),
        ("in quarters", blocks(d / 4, n)),
        ("in quarters, 128 keys", blocks(d / 4, 2 * n)),
    ];
    Family {
        name: format!("conversion, latent attention f16 {batch}x{heads}x{seq}x{d}+{r}"),
        flops: 2.0 * (batch * heads * seq * (2 * d + r)) as f64,
        bytes: 0.0,
        tolerance: 0.01,
        arrays: Box::new(move |source| {
            Ok(Latents {
                q: source.normal([batch, heads, d + r], 1, 1.0)?,
                keys: source.normal([batch, seq, d + r], 2, 1.0)?,
                out: source.zeros([batch, heads, d])?,
            })
        }),
        result: |arrays| some(&arrays.out),
        cases: forms.into_iter().map(case).collect(),
    }
}

/// A form of the rotation of adjacent pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pairs {
    /// One load of pairs, and its halves.
    Split,
    /// One load of rows, as pairs, and its halves.
    Rows,
    /// As `Rows`, and the result is stored as rows.
    BothRows,
    /// A load of each half, at stride 2.
    Strided,
}

/// Rotates pairs of `[rows, sequence, half, 2]` by angles of `[sequence, half]`.
fn rotate(
    x: Array<bf16, 4>,
    [cos, sin]: [Array<f32, 2>; 2],
    y: ArrayMut<bf16, 4>,
    [rows, half]: [usize; 2],
    form: Pairs,
) {
    let (i, of) = (ct::bid(0), ct::bid(1));
    let (first, second) = match form {
        Pairs::Split => {
            let both = x.load((of, i, 0, 0), [1, rows, half, 2]);
            let part = |which: i32| both.extract((0, 0, 0, which), [1, rows, half, 1]).reshape([rows, half]);
            (part(0), part(1))
        }
        Pairs::Rows | Pairs::BothRows => {
            let x: Array<bf16, 3> = x.reshape((x.extent(0), x.extent(1), 2 * half));
            let both = x.load((of, i, 0), [1, rows, 2 * half]).reshape([rows, half, 2]);
            let part = |which: i32| both.extract((0, 0, which), [rows, half, 1]).reshape([rows, half]);
            (part(0), part(1))
        }
        Pairs::Strided => {
            let part = |which: i32| x.index_axis(3, which).load((of, i, 0), [1, rows, half]).reshape([rows, half]);
            (part(0), part(1))
        }
    };
    let (first, second) = (first.cast::<f32>(), second.cast::<f32>());
    let [cos, sin] = [cos, sin].map(|angles| angles.load((i, 0), [rows, half]));
    let turned = [first * cos - second * sin, second * cos + first * sin];
    let turned = turned.map(|part| part.cast::<bf16>().reshape([1, rows, half, 1]));
    let turned = ct::cat(turned, 3);
    match form {
        Pairs::BothRows => {
            let y: ArrayMut<bf16, 3> = y.reshape((y.extent(0), y.extent(1), 2 * half));
            y.store((of, i, 0), turned.reshape([1, rows, 2 * half]));
        }
        _ => y.store((of, i, 0, 0), turned),
    }
}

/// Rotates pairs as `rotate` with rows as pairs, `heads` consecutive ones by the same angles.
fn rotate_heads(
    x: Array<bf16, 4>,
    [cos, sin]: [Array<f32, 2>; 2],
    y: ArrayMut<bf16, 4>,
    [rows, half]: [usize; 2],
    heads: usize,
) {
    let (i, group) = (ct::bid(0), ct::bid(1));
    let [cos, sin] = [cos, sin].map(|angles| angles.load((i, 0), [rows, half]));
    let x: Array<bf16, 3> = x.reshape((x.extent(0), x.extent(1), 2 * half));
    let y: ArrayMut<bf16, 3> = y.reshape((y.extent(0), y.extent(1), 2 * half));
    ct::fold(..heads, (), |(), head| {
        let of = group * heads + head;
        let both = x.load((of, i, 0), [1, rows, 2 * half]).reshape([rows, half, 2]);
        let part = |which: i32| both.extract((0, 0, which), [rows, half, 1]).reshape([rows, half]).cast::<f32>();
        let (first, second) = (part(0), part(1));
        let turned = [first * cos - second * sin, second * cos + first * sin];
        let turned = turned.map(|part| part.cast::<bf16>().reshape([1, rows, half, 1]));
        y.store((of, i, 0), ct::cat(turned, 3).reshape([1, rows, 2 * half]));
    });
}

struct Rotated {
    x: DeviceArray<bf16, 4>,
    angles: [DeviceArray<f32, 2>; 2],
    y: DeviceArray<bf16, 4>,
}

fn of_rotation([count, seq, half]: [usize; 3], rows: &'static [usize]) -> Family<Rotated> {
    let forms = [
        ("one load of pairs", Pairs::Split),
        ("rows as pairs", Pairs::Rows),
        ("rows to rows", Pairs::BothRows),
        ("loads at stride 2", Pairs::Strided),
    ];
    let each = forms.into_iter().flat_map(|form| rows.iter().map(move |&rows| (form, rows)));
    let case = |((name, form), rows): ((&str, Pairs), usize)| {
        let name = format!("{name}, {rows} rows").leak();
        Case::new(name, 0, move |call, Rotated { x, angles: [cos, sin], y }| {
            let angles = [&*cos, &*sin];
            call.run([seq.div_ceil(rows), count, 1], rotate, (&*x, angles, y, Constant([rows, half]), Constant(form)))
        })
    };
    let in_turn = rows.iter().map(|&rows| {
        let name = format!("rows as pairs, {rows} rows, 8 heads in turn").leak();
        Case::new(name, 0, move |call, Rotated { x, angles: [cos, sin], y }: &mut Rotated| {
            let (heads, grid) = (8.min(count), [seq.div_ceil(rows), count.div_ceil(8), 1]);
            call.run(grid, rotate_heads, (&*x, [&*cos, &*sin], y, Constant([rows, half]), Constant(heads)))
        })
    });
    Family {
        name: format!("conversion, rotated pairs bf16 {count}x{seq}x{}", 2 * half),
        flops: 0.0,
        bytes: (8 * count * seq * half) as f64,
        tolerance: 0.02,
        arrays: Box::new(move |source| {
            let angle = move |at: usize| (at / half) as f64 * 1e-4_f64.powf((at % half) as f64 / half as f64);
            Ok(Rotated {
                x: source.normal([count, seq, half, 2], 1, 1.0)?,
                angles: [
                    source.numbers([seq, half], move |at| angle(at).cos())?,
                    source.numbers([seq, half], move |at| angle(at).sin())?,
                ],
                y: source.zeros([count, seq, half, 2])?,
            })
        }),
        result: |arrays| some(&arrays.y),
        cases: each.map(case).chain(in_turn).collect(),
    }
}

/// The scale of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RowScale {
    Scalar,
    Column,
    /// A scalar of f16, which no asynchronous copy transfers.
    Half,
    /// The scales of all steps are one tile before the loop.
    None,
}

/// Sums the rows of `x` after their scales.
fn weighted(
    x: Array<f16, 2>,
    (scales, halves): (Array<f32, 1>, Array<f16, 1>),
    y: ArrayMut<f32, 2>,
    [tm, tn]: [usize; 2],
    form: RowScale,
) {
    let (j, part) = (ct::bid(0), ct::bid(1));
    let steps = x.num_tiles(0, [tm, tn]) / ct::num_blocks(1);
    let sum = ct::fold(part * steps..part * steps + steps, ct::zeros::<f32, 2>([tm, tn]), |sum, i| {
        let rows = x.load((i, j), [tm, tn]).cast::<f32>();
        match form {
            RowScale::Scalar => sum + rows * scales.load_scalar(i * tm as i32),
            RowScale::Column => sum + rows * scales.load(i, [tm]).unsqueeze(1),
            RowScale::Half => sum + rows * halves.load_scalar(i * tm as i32).cast::<f32>(),
            RowScale::None => sum + rows,
        }
    });
    y.store((part, j), sum.sum(0).reshape([1, tn]));
}

struct Rows {
    x: DeviceArray<f16, 2>,
    scales: DeviceArray<f32, 1>,
    halves: DeviceArray<f16, 1>,
    y: DeviceArray<f32, 2>,
}

fn of_rows([m, n]: [usize; 2], tile: [usize; 2], parts: usize) -> Family<Rows> {
    let forms = [
        ("a scalar", RowScale::Scalar),
        ("a column", RowScale::Column),
        ("a scalar of f16", RowScale::Half),
        ("no scale", RowScale::None),
    ];
    let case = |(name, form): (&'static str, RowScale)| {
        Case::new(name, 0, move |call, Rows { x, scales, halves, y }| {
            call.run([n / tile[1], parts, 1], weighted, (&*x, (&*scales, &*halves), y, Constant(tile), Constant(form)))
        })
    };
    Family {
        name: format!("conversion, scaled rows f16 {m}x{n}"),
        flops: 0.0,
        bytes: (2 * m * n) as f64,
        tolerance: 1e-3,
        arrays: Box::new(move |source| {
            Ok(Rows {
                x: source.normal([m, n], 1, 1.0)?,
                scales: source.numbers([m], |_| 1.0)?,
                halves: source.numbers([m], |_| 1.0)?,
                y: source.zeros([parts, n])?,
            })
        }),
        result: |arrays| some(&arrays.y),
        cases: forms.into_iter().map(case).collect(),
    }
}

/// The families of converted operands.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let bytes = || vec![Stored::Rows, Stored::Columns];
    if size == Size::Small {
        let shape = [40, 256, 256];
        return vec![
            Box::new(of_weights::<i8>("i8", shape, bytes(), &products(40, size))),
            Box::new(of_weights::<f8e4m3fn>("e4m3", shape, bytes(), &products(40, size))),
            Box::new(of_weights::<i8>("u4", shape, vec![Stored::Nibbles], &products(40, size))),
            Box::new(of_latent([2, 16, 128], [16, 32, 128, 16])),
            Box::new(of_rotation([2, 70, 16], &[8])),
            Box::new(of_rows([128, 64], [8, 32], 2)),
        ];
    }
    let mut all: Vec<Box<dyn AnyFamily>> = Vec::new();
    for shape in [[16, 4096, 4096], [4096, 4096, 4096]] {
        all.push(Box::new(of_weights::<i8>("i8", shape, bytes(), &products(shape[0], size))));
        all.push(Box::new(of_weights::<f8e4m3fn>("e4m3", shape, bytes(), &products(shape[0], size))));
    }
    for shape in [[1, 8192, 8192], [16, 8192, 8192], [64, 8192, 8192], [4096, 4096, 4096]] {
        all.push(Box::new(of_weights::<i8>("u4", shape, vec![Stored::Nibbles], &products(shape[0], size))));
    }
    all.push(Box::new(of_latent([66, 128, 8192], [64, 64, 512, 64])));
    all.push(Box::new(of_rotation([128, 4096, 64], &[8, 16, 32])));
    all.push(Box::new(of_rows([16384, 8192], [8, 256], 32)));
    all
}
