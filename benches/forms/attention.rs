//! Forms of attention: the ways in which users write one kernel.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

use super::attention_example;
use super::family::{AnyFamily, Case, Family, Size, some};

/// Source of the batch and the head of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Heads {
    /// The second grid axis counts the heads of all batches.
    Division,
    /// The second grid axis counts heads, the third one batches.
    Axes,
}

/// Assignment of tiles to tile blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Order {
    /// One, the first rows first.
    Tile,
    /// One, the last rows first.
    Reversed,
    /// Every n-th one, where n is the number of tile blocks.
    Persistent,
    /// The same, with tile blocks in the opposite order in every second round.
    Opposite,
}

/// Mask of the scores of keys that a query does not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mask {
    /// One loop, a select in every iteration.
    Select,
    /// One loop, a branch around the select.
    Branch,
    /// A loop without a mask, then a loop with a select.
    Split,
    /// One loop, a bias of 0 or minus infinity that is added.
    Bias,
}

/// Place of the scale in the formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scale {
    /// To the scores, before the maximum.
    Scores,
    /// After the maximum, by a product and a difference.
    Product,
    /// After the maximum, by a fused multiply-add.
    Fused,
    /// After the maximum, to the difference.
    Difference,
    /// To the queries, before the loop.
    Queries,
}

/// Order of the carried values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// (accumulator, maximum, sum)
    AccFirst,
    /// (maximum, sum, accumulator)
    AccLast,
}

/// A form of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    tile: [usize; 3],
    causal: bool,
    group: usize,
    heads: Heads,
    order: Order,
    mask: Mask,
    /// The running maximum begins at minus infinity, not at -1e30.
    infinite: bool,
    scale: Scale,
    /// `exp` in the place of `exp2`.
    natural: bool,
    state: State,
    /// The result is multiplied by the reciprocal of the sum.
    reciprocal: bool,
    /// The decay of the sums is bounded by one, by `max` or `min`.
    bounded: bool,
    /// Exact divisions and subnormal numbers, no contraction.
    exact: bool,
    /// Keys and values are loaded before the first product.
    loads_first: bool,
}

/// The kernel as a textbook writes it.
const TEXTBOOK: Form = Form {
    tile: [128, 128, 128],
    causal: true,
    group: 1,
    heads: Heads::Division,
    order: Order::Tile,
    mask: Mask::Split,
    infinite: true,
    scale: Scale::Product,
    natural: false,
    state: State::AccFirst,
    reciprocal: false,
    bounded: false,
    exact: false,
    loads_first: false,
};

type Inputs = (Array<bf16, 4>, Array<bf16, 4>, Array<bf16, 4>);

fn attention(inputs: Inputs, out: ArrayMut<bf16, 4>, scale: Scalar<f32>, form: Form) {
    let mode = if form.exact { ct::FloatMode::new() } else { ct::FloatMode::fast() };
    ct::with_mode(mode, || all_tiles(inputs, out, scale, form));
}

fn all_tiles((q, k, v): Inputs, out: ArrayMut<bf16, 4>, scale: Scalar<f32>, form: Form) {
    let heads = q.extent(1);
    let tiles = (q.extent(2) + (form.tile[0] as i32 - 1)) / form.tile[0] as i32;
    match (form.order, form.heads) {
        (Order::Persistent, _) => {
            let all = q.extent(0) * heads * tiles;
            ct::fold(ct::range(ct::bid(0), all).step(ct::num_blocks(0)), (), |(), at| {
                let (head, tile) = (at / tiles, tiles - 1 - at % tiles);
                one_tile((q, k, v), out, scale, [head / heads, head % heads, tile], form);
            });
        }
        (Order::Opposite, _) => {
            let (all, block, blocks) = (q.extent(0) * heads * tiles, ct::bid(0), ct::num_blocks(0));
            let tile_of = |round: Scalar<i32>| -> Scalar<i32> {
                let place: Scalar<i32> = ct::select((round % 2).eq(1), blocks - 1 - block, block);
                round * blocks + place
            };
            let rounds = all / blocks;
            let more: Scalar<i32> = ct::select(tile_of(rounds).lt(all), 1, 0);
            let rounds = rounds + more;
            ct::fold(..rounds, (), |(), round| {
                let at = tile_of(round);
                let (head, tile) = (at / tiles, tiles - 1 - at % tiles);
                one_tile((q, k, v), out, scale, [head / heads, head % heads, tile], form);
            });
        }
        (order, heads_by) => {
            let tile = if order == Order::Reversed { tiles - 1 - ct::bid(0) } else { ct::bid(0) };
            let [batch, head] = match heads_by {
                Heads::Division => [ct::bid(1) / heads, ct::bid(1) % heads],
                Heads::Axes => [ct::bid(2), ct::bid(1)],
            };
            one_tile((q, k, v), out, scale, [batch, head, tile], form);
        }
    }
}

fn one_tile((q, k, v): Inputs, out: ArrayMut<bf16, 4>, scale: Scalar<f32>, at: [Scalar<i32>; 3], form: Form) {
    let ([batch, head, tile], [m, n, d]) = (at, form.tile);
    let (rows, columns) = (m as i32, n as i32);
    let keys = k.extent(2);
    let exp = |x: Tile<f32, 2>| if form.natural { x.exp() } else { x.exp2() };
    let queries = q.load((batch, head, tile, 0), [1, 1, m, d]).reshape([m, d]);
    let queries = match form.scale {
        Scale::Queries => (queries.cast::<f32>() * scale).cast::<bf16>(),
        _ => queries,
    };
    let last = if form.causal { ((tile + 1) * rows).min(keys) } else { keys };
    let whole = if form.causal { (tile * rows + 1) / columns } else { keys / columns };
    let some = (last + (columns - 1)) / columns;
    let seen = || {
        let key = (ct::arange(0..n)).unsqueeze(0);
        let row = (tile * rows + ct::arange(0..m)).unsqueeze(1);
        move |j: Scalar<i32>| {
            let key = j * columns + key;
            if form.causal { key.lt(keys) & key.le(row) } else { key.lt(keys).broadcast_to([m, n]) }
        }
    };
    let step = |masked: bool| {
        move |(acc, max, sum): (Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>), j: Scalar<i32>| {
            let load =
                |x: Array<bf16, 4>| x.load((batch, head / form.group as i32, j, 0), [1, 1, n, d]).reshape([n, d]);
            let early = form.loads_first.then(|| (load(k), load(v)));
            let keys = early.map_or_else(|| load(k), |(keys, _)| keys);
            let scores = ct::mma(queries, keys.transpose(), ct::zeros::<f32, 2>([m, n]));
            let selected = || ct::select(seen()(j), scores, f32::NEG_INFINITY);
            let scores = match form.mask {
                Mask::Select => selected(),
                Mask::Branch => ct::if_else(j.lt(whole), || scores, selected),
                Mask::Split if masked => selected(),
                Mask::Split => scores,
                Mask::Bias => scores + ct::select(seen()(j), ct::zeros::<f32, 2>([m, n]), f32::NEG_INFINITY),
            };
            let (weights, above, decay) = match form.scale {
                Scale::Scores | Scale::Queries => {
                    let scores = if form.scale == Scale::Queries { scores } else { scores * scale };
                    let above = max.max(scores.reduce_max(1));
                    (exp(scores - above), above, max - above)
                }
                Scale::Product => {
                    let above = max.max(scores.reduce_max(1) * scale);
                    (exp(scores * scale - above), above, max - above)
                }
                Scale::Fused => {
                    let above = max.max(scores.reduce_max(1));
                    let bound = if form.bounded { scale.max(0.0) } else { scale };
                    (exp(scores.fma(scale, -above * scale)), above, (max - above) * bound)
                }
                Scale::Difference => {
                    let above = max.max(scores.reduce_max(1));
                    (exp((scores - above) * scale), above, (max - above) * scale)
                }
            };
            let decay = if form.bounded && form.scale != Scale::Fused { decay.min(0.0) } else { decay };
            let decay = exp(decay);
            let values = early.map_or_else(|| load(v), |(_, values)| values);
            (ct::mma(weights.cast::<bf16>(), values, acc * decay), above, sum * decay + weights.sum(1))
        }
    };
    let max = if form.infinite { f32::NEG_INFINITY } else { -1e30 };
    let start = (ct::zeros([m, d]), ct::full([m, 1], max), ct::zeros([m, 1]));
    let run = |range: (Scalar<i32>, Scalar<i32>), start, masked: bool| match form.state {
        State::AccFirst => ct::fold(range.0..range.1, start, step(masked)),
        State::AccLast => {
            let (acc, max, sum) = start;
            let (max, sum, acc) = ct::fold(range.0..range.1, (max, sum, acc), |(max, sum, acc), j| {
                let (acc, max, sum) = step(masked)((acc, max, sum), j);
                (max, sum, acc)
            });
            (acc, max, sum)
        }
    };
    let zero = ct::scalar(0);
    let (acc, _, sum) = match form.mask {
        Mask::Split => {
            let start = run((zero, whole), start, false);
            run((whole, some), start, true)
        }
        Mask::Select | Mask::Branch | Mask::Bias => run((zero, some), start, true),
    };
    let result = if form.reciprocal { acc * (1.0 / sum) } else { acc / sum };
    out.store((batch, head, tile, 0), result.cast::<bf16>().reshape([1, 1, m, d]));
}

/// The forms, with their names.
fn forms() -> Vec<(&'static str, Form)> {
    let b = TEXTBOOK;
    vec![
        ("textbook", b),
        ("select in each iteration", Form { mask: Mask::Select, ..b }),
        ("branch around the select", Form { mask: Mask::Branch, ..b }),
        ("bias in each iteration", Form { mask: Mask::Bias, ..b }),
        ("maximum from -1e30", Form { infinite: false, ..b }),
        ("accumulator last", Form { state: State::AccLast, ..b }),
        ("scores scaled", Form { scale: Scale::Scores, ..b }),
        ("queries scaled", Form { scale: Scale::Queries, ..b }),
        ("fused multiply-add", Form { scale: Scale::Fused, ..b }),
        ("difference scaled", Form { scale: Scale::Difference, ..b }),
        ("exp", Form { natural: true, ..b }),
        ("exp of scaled scores", Form { natural: true, scale: Scale::Scores, ..b }),
        ("reciprocal", Form { reciprocal: true, ..b }),
        ("decay bounded", Form { bounded: true, ..b }),
        ("decay bounded, fused", Form { bounded: true, scale: Scale::Fused, ..b }),
        ("exact", Form { exact: true, ..b }),
        ("exact, reciprocal", Form { exact: true, reciprocal: true, ..b }),
        ("heads by axes", Form { heads: Heads::Axes, ..b }),
        ("last rows first", Form { order: Order::Reversed, ..b }),
        ("persistent", Form { order: Order::Persistent, ..b }),
        ("loads first", Form { loads_first: true, ..b }),
        ("branch, fused, bounded", Form { mask: Mask::Branch, scale: Scale::Fused, bounded: true, ..b }),
        ("persistent, branch, fused", Form { order: Order::Persistent, mask: Mask::Branch, scale: Scale::Fused, ..b }),
        (
            "last rows first, branch, fused",
            Form { order: Order::Reversed, mask: Mask::Branch, scale: Scale::Fused, ..b },
        ),
        ("last rows first, split, fused", Form { order: Order::Reversed, scale: Scale::Fused, ..b }),
        (
            "persistent, opposite rounds, branch, fused",
            Form { order: Order::Opposite, mask: Mask::Branch, scale: Scale::Fused, ..b },
        ),
        ("persistent, opposite rounds", Form { order: Order::Opposite, ..b }),
        ("persistent, split, fused", Form { order: Order::Persistent, scale: Scale::Fused, ..b }),
        (
            "persistent, select, queries scaled, accumulator last",
            Form { order: Order::Persistent, mask: Mask::Select, scale: Scale::Queries, state: State::AccLast, ..b },
        ),
        ("grouped heads", Form { group: GROUP, ..b }),
    ]
}

/// Queries, keys and values with as many heads, keys and values with fewer heads, and the result.
struct Arrays4 {
    q: DeviceArray<bf16, 4>,
    kv: [[DeviceArray<bf16, 4>; 2]; 2],
    out: DeviceArray<bf16, 4>,
}

/// Heads of queries for a head of keys, in the form with grouped heads.
const GROUP: usize = 4;

/// Forms that are tried for each shape.
const FOR_EACH_SHAPE: [&str; 4] =
    ["textbook", "select in each iteration", "branch, fused, bounded", "persistent, branch, fused"];

/// The kernel of the example.
fn example([batch, heads, seq, dim]: [usize; 4], [rows, keys]: [usize; 2], causal: bool) -> Case<Arrays4> {
    let form = attention_example::Form { tile: [rows, keys, dim], group: 1, causal };
    let scale = std::f32::consts::LOG2_E / (dim as f32).sqrt();
    let grid = [seq.div_ceil(rows), heads, batch];
    Case::new("examples/attention", 1, move |call, Arrays4 { q, kv: [[k, v], _], out }| {
        let arguments = ((&*q, &*k, &*v), (out, attention_example::NO_LOGS), scale, Constant(form));
        call.run(grid, attention_example::attention::<bf16>, arguments)
    })
}

/// The family of a shape and a tile, of all forms or of the short list.
fn family(shape: [usize; 4], tile: [usize; 2], causal: bool, all_forms: bool) -> Family<Arrays4> {
    let ([batch, heads, seq, dim], [rows, keys]) = (shape, tile);
    let case = |(name, form): (&'static str, Form)| {
        let form = Form { tile: [rows, keys, dim], causal, ..form };
        let base = if form.natural { 1.0 } else { std::f32::consts::LOG2_E };
        let scale = base / (dim as f32).sqrt();
        let tiles = seq.div_ceil(form.tile[0]);
        Case::new(name, form.group, move |call, Arrays4 { q, kv, out }| {
            let grid = match (form.order, form.heads) {
                (Order::Persistent | Order::Opposite, _) => [call.num_multiprocessors(), 1, 1],
                (_, Heads::Division) => [tiles, batch * heads, 1],
                (_, Heads::Axes) => [tiles, heads, batch],
            };
            let [k, v] = &kv[usize::from(form.group > 1)];
            call.run(grid, attention, ((&*q, k, v), out, scale, Constant(form)))
        })
    };
    Family {
        name: format!("attention bf16 {batch}x{heads}x{seq}x{dim} {}", if causal { "causal" } else { "full" }),
        flops: (if causal { 2.0 } else { 4.0 }) * (batch * heads * seq * seq * dim) as f64,
        bytes: 0.0,
        tolerance: 0.02,
        arrays: Box::new(move |source| {
            let (shape, few) = ([batch, heads, seq, dim], [batch, heads / GROUP, seq, dim]);
            let random = |shape, seed| source.normal(shape, seed, 1.0);
            let kv = [[random(shape, 2)?, random(shape, 3)?], [random(few, 4)?, random(few, 5)?]];
            Ok(Arrays4 { q: random(shape, 1)?, kv, out: source.zeros(shape)? })
        }),
        result: |arrays| some(&arrays.out),
        cases: forms()
            .into_iter()
            .filter(|(name, _)| all_forms || FOR_EACH_SHAPE.contains(name))
            .map(case)
            .chain([example(shape, tile, causal)])
            .collect(),
    }
}

/// The families of attention.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let all: &[([usize; 4], [usize; 2])] = match size {
        Size::Full => &[
            ([4, 32, 4096, 128], [128, 128]),
            ([2, 16, 16384, 128], [128, 128]),
            ([4, 32, 4096, 64], [192, 128]),
            ([2, 16, 8192, 256], [128, 80]),
            ([8, 16, 1024, 64], [64, 128]),
        ],
        Size::Small => &[([1, 4, 64, 16], [32, 16])],
    };
    let forms = all.iter().enumerate().flat_map(|(index, &(shape, tile))| {
        [true, false].map(|causal| Box::new(family(shape, tile, causal, index == 0)) as Box<dyn AnyFamily>)
    });
    forms.collect()
}
