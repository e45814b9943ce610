//! Matrix products, products of many pairs, products by experts, and attention.

use std::f32::consts::LOG2_E;

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

use crate::family::{AnyFamily, Case, Family, Size, some};

/// Arrays of `T`, multiplied as `I`.
fn one_tile<T: Element + CastTo<I>, I: Element + MmaInput<I, f32>>(
    (a, b): (Array<T, 2>, Array<T, 2>),
    c: ArrayMut<T, 2>,
    [i, j]: [Scalar<i32>; 2],
    [tm, tn, tk]: [usize; 3],
) where
    f32: CastTo<T>,
{
    let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::full([tm, tn], 0.0f32), |acc, k| {
        let (a, b) = (a.load([i, k], [tm, tk]).cast::<I>(), b.load([k, j], [tk, tn]).cast::<I>());
        ct::mma(a, b, acc)
    });
    c.store([i, j], acc.cast::<T>());
}

/// Grid of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Grid {
    Axes,
    Grouped,
    Persistent,
}

fn matmul<T: Element + CastTo<I>, I: Element + MmaInput<I, f32>>(
    inputs: (Array<T, 2>, Array<T, 2>),
    c: ArrayMut<T, 2>,
    tile: [usize; 3],
    grid: Grid,
) where
    f32: CastTo<T>,
{
    let [rows, columns] = [0, 1].map(|axis| c.num_tiles(axis, [tile[0], tile[1]]));
    let at = |index| ct::swizzle_2d(index, rows, columns, 8);
    match grid {
        Grid::Axes => one_tile::<T, I>(inputs, c, [ct::bid(0), ct::bid(1)], tile),
        Grid::Grouped => one_tile::<T, I>(inputs, c, at(ct::bid(0)), tile),
        Grid::Persistent => {
            let all = ct::range(ct::bid(0), rows * columns).step(ct::num_blocks(0));
            ct::fold(all, (), |(), index| one_tile::<T, I>(inputs, c, at(index), tile));
        }
    }
}

fn of_matmul<T: Element + CastTo<I>, I: Element + MmaInput<I, f32>>(
    [m, n, k]: [usize; 3],
    forms: Vec<(&'static str, [usize; 3], Grid)>,
) -> Family<[DeviceArray<T, 2>; 3]>
where
    f32: CastTo<T>,
{
    let case = |(name, tile, form): (&'static str, [usize; 3], Grid)| {
        let [rows, columns] = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
        Case::new(name, 0, move |call, [a, b, c]: &mut [DeviceArray<T, 2>; 3]| {
            let grid = match form {
                Grid::Axes => [rows, columns, 1],
                Grid::Grouped => [rows * columns, 1, 1],
                Grid::Persistent => [call.num_multiprocessors().min(rows * columns), 1, 1],
            };
            call.run(grid, matmul::<T, I>, ((&*a, &*b), c, Constant(tile), Constant(form)))
        })
    };
    Family {
        name: format!("samples, matmul {} {m}x{n}x{k}", I::NAME),
        flops: 2.0 * (m * n * k) as f64,
        bytes: 0.0,
        tolerance: 0.02,
        arrays: Box::new(move |source| {
            let deviation = (k as f32).sqrt().recip();
            Ok([source.normal([m, k], 1, 1.0)?, source.normal([k, n], 2, deviation)?, source.zeros([m, n])?])
        }),
        result: |[_, _, c]| some(c),
        cases: forms.into_iter().map(case).collect(),
    }
}

/// Second operands of many products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Second {
    /// `[batch, k, n]`
    Rows,
    /// `[batch, n, k]`, and loaded tiles are transposed.
    Columns,
}

fn batched<T, O>(
    a: Array<T, 3>,
    (b, transposed): (Array<T, 3>, Array<T, 3>),
    c: ArrayMut<O, 3>,
    [tm, tn, tk]: [usize; 3],
    second: Second,
) where
    T: Element + MmaInput<T, f32>,
    O: Element,
    f32: CastTo<O>,
{
    let [batch, i, j] = [0, 1, 2].map(ct::bid);
    let acc = ct::fold(..a.num_tiles(2, [1, tm, tk]), ct::full([tm, tn], 0.0f32), |acc, k| {
        let x = a.load([batch, i, k], [1, tm, tk]).reshape([tm, tk]);
        let y = match second {
            Second::Rows => b.load([batch, k, j], [1, tk, tn]).reshape([tk, tn]),
            Second::Columns => transposed.load([batch, j, k], [1, tn, tk]).reshape([tn, tk]).transpose(),
        };
        ct::mma(x, y, acc)
    });
    c.store([batch, i, j], acc.cast::<O>().reshape([1, tm, tn]));
}

struct Batched<T: Element, O: Element> {
    a: DeviceArray<T, 3>,
    b: [DeviceArray<T, 3>; 2],
    c: DeviceArray<O, 3>,
}

fn of_batched<T, O>(
    [batch, m, n, k]: [usize; 4],
    forms: Vec<(&'static str, [usize; 3], Second)>,
) -> Family<Batched<T, O>>
where
    T: Element + MmaInput<T, f32>,
    O: Element,
    f32: CastTo<O>,
{
    let case = |(name, tile, second): (&'static str, [usize; 3], Second)| {
        let grid = [batch, m.div_ceil(tile[0]), n.div_ceil(tile[1])];
        Case::new(name, 0, move |call, Batched { a, b, c }: &mut Batched<T, O>| {
            call.run(grid, batched::<T, O>, (&*a, (&b[0], &b[1]), c, Constant(tile), Constant(second)))
        })
    };
    Family {
        name: format!("samples, batched matmul {} {batch}x{m}x{n}x{k}", T::NAME),
        flops: 2.0 * (batch * m * n * k) as f64,
        bytes: 0.0,
        tolerance: 0.02,
        arrays: Box::new(move |source| {
            let deviation = (k as f32).sqrt().recip();
            let [rows, columns]: [DeviceArray<T, 2>; 2] = source.both([batch * k, n], 2, deviation)?;
            // Axes [n, batch, k] in memory; the array has [batch, n, k].
            let turned = columns.to_vec()?;
            let at = |at: usize| {
                let (of_batch, of_n, of_k) = (at / (n * k), at / k % n, at % k);
                turned[(of_n * batch + of_batch) * k + of_k].to_f64()
            };
            Ok(Batched {
                a: source.normal([batch, m, k], 1, 1.0)?,
                b: [rows.into_shape([batch, k, n])?, source.numbers([batch, n, k], at)?],
                c: source.zeros([batch, m, n])?,
            })
        }),
        result: |arrays| some(&arrays.c),
        cases: forms.into_iter().map(case).collect(),
    }
}

/// Form of the product of tokens with the weights of their experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tokens {
    /// Rows and columns by positions, weights by an order of axes.
    Gather,
    /// Rows by `ct::at`, weights by an order of axes.
    At,
    /// Rows by `ct::at`, tiles of weights are transposed.
    AtTransposed,
}

/// Rows of the tokens of each expert, `TILE_M` at a time, times the weights of the expert.
fn experts(
    (tokens, weights): (Array<bf16, 2>, Array<bf16, 3>),
    (ids, of_tile): (Array<i32, 1>, Array<i32, 1>),
    out: ArrayMut<bf16, 2>,
    replicas: Scalar<i32>,
    [tm, tn, tk]: [usize; 3],
    form: Tokens,
) {
    let [rows, columns] = [ids.num_tiles(0, [tm]), weights.num_tiles(1, [1, tn, tk])];
    let [i, j] = ct::swizzle_2d(ct::bid(0), rows, columns, 8);
    let ids = ids.gather(i * tm + ct::arange(0..tm));
    let token = ids / replicas;
    let expert = of_tile.load_scalar(i);
    let depth = weights.extent(2);
    let acc = ct::fold(..depth.ceil_div(tk as i32), ct::full([tm, tn], 0.0f32), |acc, k| {
        let columns = k * tk + ct::arange(0..tk);
        let x = match form {
            Tokens::Gather => {
                let row = token.unsqueeze(1).broadcast_to([tm, tk]);
                tokens.gather((row, columns.unsqueeze(0).broadcast_to([tm, tk])))
            }
            Tokens::At | Tokens::AtTransposed => tokens.load((ct::at(token), k), [tm, tk]),
        };
        let y = match form {
            Tokens::Gather | Tokens::At => {
                let order = ct::LoadOptions::new().order([0, 2, 1]);
                weights.load_with([expert, k, j], [1, tk, tn], order).reshape([tk, tn])
            }
            Tokens::AtTransposed => weights.load([expert, j, k], [1, tn, tk]).reshape([tn, tk]).transpose(),
        };
        ct::mma(x, y, acc)
    });
    let result = acc.cast::<bf16>();
    match form {
        Tokens::Gather => {
            let columns = (j * tn + ct::arange(0..tn)).unsqueeze(0).broadcast_to([tm, tn]);
            out.scatter((ids.unsqueeze(1).broadcast_to([tm, tn]), columns), result);
        }
        Tokens::At | Tokens::AtTransposed => out.store((ct::at(ids), j), result),
    }
}

/// Extents of a layer of experts.
#[derive(Clone, Copy)]
struct Layer {
    tokens: usize,
    hidden: usize,
    width: usize,
    experts: usize,
    replicas: usize,
    tile: [usize; 3],
}

struct Experts {
    tokens: DeviceArray<bf16, 2>,
    weights: DeviceArray<bf16, 3>,
    ids: DeviceArray<i32, 1>,
    of_tile: DeviceArray<i32, 1>,
    out: DeviceArray<bf16, 2>,
}

fn of_experts(layer: Layer) -> Family<Experts> {
    let Layer { tokens, hidden, width, experts: count, replicas, tile } = layer;
    let total = tokens * replicas;
    // Rows of each expert, padded to whole tiles by the number of all rows.
    let mut ids: Vec<i32> = Vec::new();
    let mut of_tile: Vec<i32> = Vec::new();
    for expert in 0..count {
        let taken = |row: &usize| (row / replicas * 7 + row % replicas * 5 + row / replicas / 13) % count == expert;
        ids.extend((0..total).filter(taken).map(|row| row as i32));
        ids.resize(ids.len().next_multiple_of(tile[0]), total as i32);
        of_tile.resize(ids.len() / tile[0], expert as i32);
    }
    let grid = [of_tile.len() * width.div_ceil(tile[1]), 1, 1];
    let case = |(name, form): (&'static str, Tokens)| {
        Case::new(name, 0, move |call, Experts { tokens, weights, ids, of_tile, out }: &mut Experts| {
            let arguments =
                ((&*tokens, &*weights), (&*ids, &*of_tile), out, replicas as i32, Constant(tile), Constant(form));
            call.run(grid, experts, arguments)
        })
    };
    Family {
        name: format!("samples, experts bf16 {count}x{tokens}x{width}x{hidden}, {replicas} each"),
        flops: 2.0 * (total * width * hidden) as f64,
        bytes: 0.0,
        tolerance: 0.05,
        arrays: Box::new(move |source| {
            let deviation = (hidden as f32).sqrt().recip();
            Ok(Experts {
                tokens: source.normal([tokens, hidden], 1, 1.0)?,
                weights: source.normal([count, width, hidden], 2, deviation)?,
                ids: source.device.array(&ids, [ids.len()])?,
                of_tile: source.device.array(&of_tile, [of_tile.len()])?,
                out: source.zeros([total, width])?,
            })
        }),
        result: |arrays| some(&arrays.out),
        cases: [
            ("by positions", Tokens::Gather),
            ("rows by at", Tokens::At),
            ("rows by at, weights transposed", Tokens::AtTransposed),
        ]
        .map(case)
        .into(),
    }
}

/// A form of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Attention {
    tile: [usize; 3],
    causal: bool,
    /// Tiles of keys are transposed, in the place of an order of axes.
    transposed: bool,
    /// The mask is a select, in the place of a bias.
    select: bool,
}

type Inputs = (Array<f16, 4>, Array<f16, 4>, Array<f16, 4>);

fn attention((q, k, v): Inputs, out: ArrayMut<f16, 4>, scale: Scalar<f32>, form: Attention) {
    let [tm, tn, d] = form.tile;
    let heads = q.extent(1);
    let tile = ct::bid(0);
    let (batch, head) = (ct::bid(1) / heads, ct::bid(1) % heads);
    let mode = ct::FloatMode::new().flush_to_zero();
    let scale = scale * LOG2_E;
    let rows = (tile * tm + ct::arange(0..tm)).unsqueeze(1);
    let columns = ct::arange(0..tn).unsqueeze(0);
    let queries = q.load((batch, head, tile, 0), [1, 1, tm, d]).reshape([tm, d]);
    let keys = k.extent(2);
    let (whole, steps) = match form.causal {
        true => ((tile * tm / tn as i32).min(keys / tn as i32), ((tile + 1) * tm).min(keys).ceil_div(tn as i32)),
        false => (keys / tn as i32, keys.ceil_div(tn as i32)),
    };
    let start = (ct::full([tm, 1], f32::NEG_INFINITY), ct::full([tm, 1], 0.0f32), ct::full([tm, d], 0.0f32));
    let (_, sum, acc) = ct::fold(..steps, start, |(max, sum, acc), j| {
        let keys = match form.transposed {
            true => k.load((batch, head, j, 0), [1, 1, tn, d]).reshape([tn, d]).transpose(),
            false => {
                let options = ct::LoadOptions::new().order([0, 1, 3, 2]).latency(2);
                k.load_with((batch, head, 0, j), [1, 1, d, tn], options).reshape([d, tn])
            }
        };
        let scores = ct::mma(queries, keys, ct::full([tm, tn], 0.0f32));
        let masked = || {
            let seen = rows.ge(j * tn + columns);
            match form.select {
                true => ct::select(seen, scores, f32::NEG_INFINITY),
                false => scores + ct::select(seen, ct::zeros::<f32, 2>([tm, tn]), f32::NEG_INFINITY),
            }
        };
        let scores = if form.causal { ct::if_else(j.ge(whole), masked, || scores) } else { scores };
        let above = max.max(scores.reduce_max(1) * scale);
        let weights = (scores * scale - above).exp2_with(mode);
        let decay = (max - above).exp2_with(mode);
        let sum = sum * decay + weights.sum(1);
        let acc = acc * decay;
        let options = ct::LoadOptions::new().latency(4);
        let values = v.load_with((batch, head, j, 0), [1, 1, tn, d], options).reshape([tn, d]);
        (above, sum, ct::mma(weights.cast::<f16>(), values, acc))
    });
    let result = acc.div_with(sum, mode.approx());
    out.store((batch, head, tile, 0), result.reshape([1, 1, tm, d]).cast::<f16>());
}

type Arrays4 = [DeviceArray<f16, 4>; 4];

fn of_attention([batch, heads, seq, d]: [usize; 4], causal: bool, tiles: [[usize; 2]; 2]) -> Family<Arrays4> {
    let scale = 1.0 / (d as f32).sqrt();
    let form = |[tm, tn]: [usize; 2]| Attention { tile: [tm, tn, d], causal, transposed: false, select: false };
    let case = |(name, form): (&'static str, Attention)| {
        let grid = [seq.div_ceil(form.tile[0]), batch * heads, 1];
        Case::new(name, 0, move |call, [q, k, v, out]: &mut Arrays4| {
            call.run(grid, attention, ((&*q, &*k, &*v), out, scale, Constant(form)))
        })
    };
    let b = form(tiles[0]);
    Family {
        name: format!("samples, attention f16 {batch}x{heads}x{seq}x{d} {}", if causal { "causal" } else { "full" }),
        flops: (if causal { 2.0 } else { 4.0 }) * (batch * heads * seq * seq * d) as f64,
        bytes: 0.0,
        tolerance: 0.02,
        arrays: Box::new(move |source| {
            let shape = [batch, heads, seq, d];
            let normal = |seed| source.normal(shape, seed, 1.0);
            Ok([normal(1)?, normal(2)?, normal(3)?, source.zeros(shape)?])
        }),
        result: |[_, _, _, out]| some(out),
        cases: [
            ("128x128", b),
            ("128x128, keys transposed", Attention { transposed: true, ..b }),
            ("128x128, select", Attention { select: true, ..b }),
            ("64x64", form(tiles[1])),
        ]
        .map(case)
        .into(),
    }
}

pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let full = size == Size::Full;
    let product = if full { [4096; 3] } else { [64, 64, 32] };
    let batched = if full { [8, 1024, 2048, 512] } else { [2, 32, 64, 32] };
    let scaled = |tile: [usize; 3]| if full { tile } else { tile.map(|extent| extent / 8) };
    let layer = Layer {
        tokens: if full { 2048 } else { 12 },
        hidden: if full { 2048 } else { 32 },
        width: if full { 2048 } else { 32 },
        experts: if full { 16 } else { 4 },
        replicas: if full { 4 } else { 2 },
        tile: scaled([128, 128, 64]),
    };
    let (heads, tiles) =
        if full { ([8, 16, 1024, 64], [[128, 128], [64, 64]]) } else { ([1, 2, 64, 16], [[32, 32], [16, 16]]) };
    let forms = [
        ("128x256x128", scaled([128, 256, 128]), Second::Rows),
        ("128x256x64", scaled([128, 256, 64]), Second::Rows),
        ("128x256x64, second transposed", scaled([128, 256, 64]), Second::Columns),
        ("128x128x64", scaled([128, 128, 64]), Second::Rows),
    ];
    let of_bytes = [
        ("128x256x128", scaled([128, 256, 128]), Second::Rows),
        ("128x256x128, second transposed", scaled([128, 256, 128]), Second::Columns),
    ];
    let of_halves = [
        ("128x256x64, grouped", scaled([128, 256, 64]), Grid::Grouped),
        ("128x256x64, persistent", scaled([128, 256, 64]), Grid::Persistent),
        ("128x256x64, grid of two axes", scaled([128, 256, 64]), Grid::Axes),
    ];
    let of_words = [
        ("32x32x32, grouped", scaled([32, 32, 32]), Grid::Grouped),
        ("32x32x32, persistent", scaled([32, 32, 32]), Grid::Persistent),
        ("256x128x32, grouped", scaled([256, 128, 32]), Grid::Grouped),
    ];
    vec![
        Box::new(of_matmul::<f16, f16>(product, of_halves.into())),
        Box::new(of_matmul::<f32, tf32>(product, of_words.into())),
        Box::new(of_batched::<f16, f16>(batched, forms.into())),
        Box::new(of_batched::<f8e4m3fn, f32>(batched, of_bytes.into())),
        Box::new(of_experts(layer)),
        Box::new(of_attention(heads, true, tiles)),
        Box::new(of_attention(heads, false, tiles)),
    ]
}
