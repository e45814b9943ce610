//! Gradients of attention: FlashAttention-2 (Dao, 2023).
//!
//! 1. Each row has the sum of its result times the gradient of its result.
//! 2. A block takes a tile of keys past the tiles of queries that see any of them. Scores are
//!    transposed, so that the weights are left operands in registers. It sums the gradients of its
//!    keys and values, and adds those of the queries to an array in f32.
//! 3. The gradients of the queries are rounded.
//!
//! The order of the additions in step 2 varies.
//! [`Gradients::deterministic`](super::Gradients::deterministic) has a kernel with a tile of
//! queries a block instead, which computes the weights again.

use std::f32::consts::LOG2_E;

use cutlet as ct;
use cutlet::prelude::*;

use crate::Number;

/// Rows of a tile in which rows are summed, and gradients are rounded.
pub const ROWS: usize = 64;

/// Stores the sums of products of rows.
pub fn row_sums<T: Number>([a, b]: [Array<T, 4>; 2], sums: ArrayMut<f32, 3>, e: usize) {
    let (i, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let [a, b] = [a, b].map(|x| x.load((batch, head, i, 0), [1, 1, ROWS, e]).cast::<f32>());
    sums.store((batch, head, i), (a * b).sum(3).reshape([1, 1, ROWS]));
}

/// Scales and rounds the gradients of queries.
pub fn rounded<T: Number>(sums: Array<f32, 4>, dq: ArrayMut<T, 4>, scale: Scalar<f32>, d: usize) {
    let at = (ct::bid(2), ct::bid(1), ct::bid(0), 0);
    dq.store(at, (sums.load(at, [1, 1, ROWS, d]) * scale).cast::<T>());
}

/// Rows of a tile whose sinks have gradients.
const SINK_ROWS: usize = 1024;

/// Stores the gradient of the sink of a head: the sum of its weights times those of the rows.
pub fn of_sinks(sinks: Array<f32, 1>, logs: Array<f32, 3>, sums: Array<f32, 3>, gradients: ArrayMut<f32, 1>) {
    let head = ct::bid(0);
    let (sink, tiles) = (sinks.load_scalar(head), logs.num_tiles(2, [1, 1, SINK_ROWS]));
    let sum = ct::fold(..tiles * logs.extent(0), ct::zeros::<f32, 3>([1, 1, SINK_ROWS]), |sum, i| {
        let at = (i / tiles, head, i % tiles);
        let [logs, sums] = [logs, sums].map(|x| x.load(at, [1, 1, SINK_ROWS]));
        sum - (sink - logs).min(0.0).exp() * sums
    });
    gradients.store(head, sum.sum([0, 1, 2]).reshape([1]));
}

/// Constants of the kernels.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Form {
    /// Queries and keys of a tile.
    pub tile: [usize; 2],
    /// Columns of a tile of keys and of values.
    pub columns: [usize; 2],
    /// Heads of queries that share a head of keys and values.
    pub group: usize,
    pub causal: bool,
}

/// The first token of each packed sequence and the end of the last one, of queries and of keys.
pub type Starts = Option<[Array<i32, 1>; 2]>;
/// Queries, keys, values, and gradients of the result.
pub type Inputs<T> = [Array<T, 4>; 4];
/// Natural logarithms of the sums of exponentials, and sums of rows.
pub type Rows = [Array<f32, 3>; 2];
/// Scale, softcap and window.
pub type Parameters = (Scalar<f32>, Option<Scalar<f32>>, Option<Scalar<i32>>);

/// Tokens of a sequence: its number in the arrays, and its ranges of queries and of keys, if they are
/// parts of the rows.
#[derive(Clone, Copy)]
struct Sequence {
    batch: Scalar<i32>,
    ranges: Option<[(Scalar<i32>, Scalar<i32>); 2]>,
}

impl Sequence {
    /// Loads the ranges of a sequence.
    fn new(number: Scalar<i32>, starts: Starts) -> Sequence {
        let range = |starts: Array<i32, 1>| (starts.load_scalar(number), starts.load_scalar(number + 1));
        let batch = if starts.is_some() { ct::scalar(0) } else { number };
        Sequence { batch, ranges: starts.map(|starts| starts.map(range)) }
    }

    /// Returns the rows of the queries of the sequence.
    fn queries<A: Part>(self, array: A, axis: usize) -> A {
        self.ranges.map_or(array, |[range, _]| array.part(axis, range))
    }

    /// Returns the rows of the keys of the sequence.
    fn keys<A: Part>(self, array: A, axis: usize) -> A {
        self.ranges.map_or(array, |[_, range]| array.part(axis, range))
    }
}

/// Arrays with parts.
trait Part: Copy {
    /// Returns a range along an axis.
    fn part(self, axis: usize, range: (Scalar<i32>, Scalar<i32>)) -> Self;
}

impl<T: Element, const R: usize> Part for Array<T, R> {
    fn part(self, axis: usize, (begin, end): (Scalar<i32>, Scalar<i32>)) -> Self {
        self.slice(axis, begin..end)
    }
}

impl<T: Element, const R: usize> Part for ArrayMut<T, R> {
    fn part(self, axis: usize, (begin, end): (Scalar<i32>, Scalar<i32>)) -> Self {
        self.slice(axis, begin..end)
    }
}

/// Visible pairs of queries and keys, by the position of the first query.
#[derive(Clone, Copy)]
struct Visible {
    causal: bool,
    window: Option<Scalar<i32>>,
    keys: Scalar<i32>,
}

impl Visible {
    /// Returns the condition of pairs: positions of queries and keys, either of them along each
    /// axis.
    fn pairs(self, query: Tile<i32, 2>, key: Tile<i32, 2>) -> Tile<bool, 2> {
        let seen = if self.causal { key.le(query) } else { key.lt(self.keys) & query.ge(query) };
        self.window.map_or(seen, |window| {
            let seen = seen & key.gt(query - window);
            if self.causal { seen } else { seen & key.lt(query + window) }
        })
    }

    /// Returns true if all pairs of a tile are visible: its first query and key, and their numbers.
    fn all(self, [query, key]: [Scalar<i32>; 2], [m, n]: [usize; 2]) -> Scalar<bool> {
        let seen = if self.causal { (key + n - 1).le(query) } else { (key + n).le(self.keys) };
        self.window.map_or(seen, |window| {
            let seen = seen & key.gt(query + (m - 1) - window);
            if self.causal { seen } else { seen & (key + n - 1).lt(query + window) }
        })
    }
}

/// Returns weights and gradients of scores of a tile, up to the scale. `steps`: the products of
/// values and gradients of results.
fn weighted(
    scores: Tile<f32, 2>,
    steps: Tile<f32, 2>,
    [logs, sums]: [Tile<f32, 2>; 2],
    (scale, softcap, _): Parameters,
    mask: impl Fn(Tile<f32, 2>) -> Tile<f32, 2>,
) -> [Tile<f32, 2>; 2] {
    let logs = logs * LOG2_E;
    match softcap {
        None => {
            let weights = mask(scores.fma(scale * LOG2_E, -logs).exp2());
            [weights, weights * (steps - sums)]
        }
        Some(cap) => {
            let bounded = (scores * (scale / cap)).tanh_approx();
            let weights = mask(bounded.fma(cap * LOG2_E, -logs).exp2());
            [weights, weights * (steps - sums) * (1.0 - bounded * bounded)]
        }
    }
}

/// A block takes a tile of keys past all queries that see them.
pub fn of_keys<T: Number>(
    [q, k, v, dout]: Inputs<T>,
    (rows, starts): (Rows, Starts),
    ([dk, dv], dq): ([ArrayMut<T, 4>; 2], Option<ArrayMut<f32, 4>>),
    parameters: Parameters,
    Form { tile: [m, n], columns: [d, e], group, causal }: Form,
) {
    let (tile, key_head) = (ct::bid(0), ct::bid(1));
    let sequence = Sequence::new(ct::bid(2), starts);
    let batch = sequence.batch;
    let [q, dout] = [q, dout].map(|x| sequence.queries(x, 2));
    let [k, v] = [k, v].map(|x| sequence.keys(x, 2));
    let rows = rows.map(|x| sequence.queries(x, 2));
    let ([dk, dv], dq) = ([dk, dv].map(|x| sequence.keys(x, 2)), dq.map(|x| sequence.queries(x, 2)));
    if starts.is_some() {
        ct::return_if((tile * n).ge(k.extent(2)));
    }
    let load = |x: Array<T, 4>, head, at, [rows, columns]: [usize; 2]| {
        x.load((batch, head, at, 0), [1, 1, rows, columns]).reshape([rows, columns])
    };
    let (keys, values) = (load(k, key_head, tile, [n, d]), load(v, key_head, tile, [n, e]));
    let (queries, all_keys) = (q.extent(2), k.extent(2));
    let offset = all_keys - queries;
    let visible = Visible { causal, window: parameters.2, keys: all_keys };
    let first = if causal { tile * n - offset } else { ct::scalar(0) };
    let (first, end) = match visible.window {
        None => (first, queries),
        Some(window) => {
            let first = if causal { first } else { tile * n - offset - window + 1 };
            (first, queries.min(tile * n + (n - 1) + window - offset))
        }
    };
    let (first, end) = (first.max(0) / m, end.max(0).ceil_div(m));
    let step = |[key, value]: [Tile<f32, 2>; 2], head: Scalar<i32>, i: Scalar<i32>| {
        let (x, dy) = (load(q, head, i, [m, d]), load(dout, head, i, [m, e]));
        let rows = rows.map(|x| x.load((batch, head, i), [1, 1, m]).reshape([1, m]));
        let product = |a: Tile<T, 2>, b: Tile<T, 2>| ct::mma(a, b.transpose(), ct::zeros::<f32, 2>([n, m]));
        let (scores, steps) = (product(keys, x), product(values, dy));
        let mask = |weights: Tile<f32, 2>| {
            let query = (i * m + offset + ct::arange_from(m, 0, 1)).unsqueeze(0);
            let key = (tile * n + ct::arange_from(n, 0, 1)).unsqueeze(1);
            let whole = visible.all([i * m + offset, tile * n], [m, n]);
            ct::if_else(whole, || weights, || ct::select(visible.pairs(query, key), weights, 0.0))
        };
        let [weights, steps] = weighted(scores, steps, rows, parameters, mask);
        let value = ct::mma(weights.cast::<T>(), dy, value);
        let steps = steps.cast::<T>();
        let query = dq.map(|dq| (dq, ct::mma(steps.transpose(), keys, ct::zeros::<f32, 2>([m, d]))));
        let key = ct::mma(steps, x, key);
        query.iter().for_each(|(dq, x)| dq.atomic_store_add((batch, head, i, 0), x.reshape([1, 1, m, d])));
        [key, value]
    };
    let zeros = [ct::zeros::<f32, 2>([n, d]), ct::zeros::<f32, 2>([n, e])];
    let [key, value] = match group {
        1 => ct::fold(first..end, zeros, |sums, i| step(sums, key_head, i)),
        _ => {
            let count = (end - first).max(0);
            ct::fold(..count * group, zeros, |sums, i| step(sums, key_head * group + i / count, first + i % count))
        }
    };
    dk.store((batch, key_head, tile, 0), (key * parameters.0).cast::<T>().reshape([1, 1, n, d]));
    dv.store((batch, key_head, tile, 0), value.cast::<T>().reshape([1, 1, n, e]));
}

/// A block takes a tile of queries past all keys that they see.
pub fn of_queries<T: Number>(
    [q, k, v, dout]: Inputs<T>,
    (rows, starts): (Rows, Starts),
    dq: ArrayMut<T, 4>,
    parameters: Parameters,
    Form { tile: [m, n], columns: [d, e], group, causal }: Form,
) {
    let head = ct::bid(1);
    // The longest first.
    let tile = if causal { ct::num_blocks(0) - 1 - ct::bid(0) } else { ct::bid(0) };
    let sequence = Sequence::new(ct::bid(2), starts);
    let batch = sequence.batch;
    let [q, dout] = [q, dout].map(|x| sequence.queries(x, 2));
    let [k, v] = [k, v].map(|x| sequence.keys(x, 2));
    let (rows, dq) = (rows.map(|x| sequence.queries(x, 2)), sequence.queries(dq, 2));
    if starts.is_some() {
        ct::return_if((tile * m).ge(q.extent(2)));
    }
    let load = |x: Array<T, 4>, head, at, [rows, columns]: [usize; 2]| {
        x.load((batch, head, at, 0), [1, 1, rows, columns]).reshape([rows, columns])
    };
    let (queries, dout) = (load(q, head, tile, [m, d]), load(dout, head, tile, [m, e]));
    let rows = rows.map(|x| x.load((batch, head, tile), [1, 1, m]).reshape([m, 1]));
    let keys = k.extent(2);
    let position = tile * m + (keys - q.extent(2));
    let visible = Visible { causal, window: parameters.2, keys };
    let end = if causal { (position + m).min(keys) } else { keys };
    let (begin, end) = match visible.window {
        None => (ct::scalar(0), end),
        Some(window) => ((position - window + 1).max(0), end.min(position + (m - 1) + window)),
    };
    let query = ct::fold(begin / n..end.max(0).ceil_div(n), ct::zeros::<f32, 2>([m, d]), |query, j| {
        let (y, z) = (load(k, head / group, j, [n, d]), load(v, head / group, j, [n, e]));
        let product = |a: Tile<T, 2>, b: Tile<T, 2>| ct::mma(a, b.transpose(), ct::zeros::<f32, 2>([m, n]));
        let (scores, steps) = (product(queries, y), product(dout, z));
        let mask = |weights: Tile<f32, 2>| {
            let query = (position + ct::arange_from(m, 0, 1)).unsqueeze(1);
            let key = (j * n + ct::arange_from(n, 0, 1)).unsqueeze(0);
            let whole = visible.all([position, j * n], [m, n]);
            ct::if_else(whole, || weights, || ct::select(visible.pairs(query, key), weights, 0.0))
        };
        let [_, steps] = weighted(scores, steps, rows, parameters, mask);
        ct::mma(steps.cast::<T>(), y, query)
    });
    dq.store((batch, head, tile, 0), (query * parameters.0).cast::<T>().reshape([1, 1, m, d]));
}
