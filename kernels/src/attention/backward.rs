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

/// Rows to a multiple of which the columns of packed sequences are aligned, as TMA loads them.
pub const ALIGNED: usize = 128;

/// Returns the place of the columns of a packed sequence, in units of [`ALIGNED`] rows.
fn aligned(number: Scalar<i32>, begin: Scalar<i32>) -> Scalar<i32> {
    begin / ALIGNED as i32 + number
}

/// Stores the logarithms and the sums of products of rows of packed sequences, aligned.
pub fn packed_columns<T: Number>(
    [a, b]: [Array<T, 3>; 2],
    (logs, starts): (Array<f32, 2>, Array<i32, 1>),
    [of_logs, of_sums]: [ArrayMut<f32, 2>; 2],
    e: usize,
) {
    let (i, head, number) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let [begin, end] = [0, 1].map(|side| starts.load_scalar(number + side));
    ct::return_if((i * ROWS).ge(end - begin));
    let [a, b] = [a, b].map(|x| x.slice(0, begin..end).load((i, head, 0), [ROWS, 1, e]).cast::<f32>());
    let at = (head, aligned(number, begin) * (ALIGNED / ROWS) as i32 + i);
    of_sums.store(at, (a * b).sum(2).reshape([1, ROWS]));
    of_logs.store(at, logs.slice(1, begin..end).load((head, i), [1, ROWS]));
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

/// An array (batch, heads, rows, columns), or (rows, heads, columns) of packed sequences.
pub type Table<T> = (Option<Array<T, 4>>, Option<Array<T, 3>>);
/// The same, of results.
pub type TableMut<T> = (Option<ArrayMut<T, 4>>, Option<ArrayMut<T, 3>>);
/// Numbers of rows (batch, heads, rows), or (heads, aligned rows) of packed sequences.
pub type Column = (Option<Array<f32, 3>>, Option<Array<f32, 2>>);
/// The first token of each packed sequence and the end of the last one, of queries and of keys.
pub type Starts = Option<[Array<i32, 1>; 2]>;
/// Queries, keys, values, and gradients of the result.
pub type Inputs<T> = [Table<T>; 4];
/// Natural logarithms of the sums of exponentials, and sums of rows.
pub type Rows = [Column; 2];
/// Scale, softcap and window.
pub type Parameters = (Scalar<f32>, Option<Scalar<f32>>, Option<Scalar<i32>>);

/// Tables of a sequence.
#[derive(Clone, Copy)]
struct Sequence {
    number: Scalar<i32>,
    /// The first row and the end of queries and of keys, of packed sequences.
    ranges: Option<[[Scalar<i32>; 2]; 2]>,
}

/// Tables with a row for each query, or for each key.
#[derive(Clone, Copy)]
enum Of {
    Queries,
    Keys,
}

impl Sequence {
    /// Loads the ranges of a sequence.
    fn new(number: Scalar<i32>, starts: Starts) -> Sequence {
        let range = |starts: Array<i32, 1>| [0, 1].map(|side| starts.load_scalar(number + side));
        Sequence { number, ranges: starts.map(|starts| starts.map(range)) }
    }

    /// Returns the number of rows, which `table` has.
    fn rows<T: Element>(self, of: Of, table: Table<T>) -> Scalar<i32> {
        match (self.ranges, table.0) {
            (Some(ranges), _) => ranges[of as usize][1] - ranges[of as usize][0],
            (None, Some(table)) => table.extent(2),
            (None, None) => unreachable!("a table of a batch"),
        }
    }

    /// Loads a tile of rows of a head, with zeros after the last row.
    fn load<T: Element>(self, of: Of, table: Table<T>, [head, at]: [Scalar<i32>; 2], [m, d]: [usize; 2]) -> Tile<T, 2> {
        match (self.ranges, table) {
            (None, (Some(table), _)) => table.load((self.number, head, at, 0), [1, 1, m, d]).reshape([m, d]),
            (Some(ranges), (_, Some(table))) => {
                let [begin, end] = ranges[of as usize];
                table.slice(0, begin..end).load((at, head, 0), [m, 1, d]).reshape([m, d])
            }
            _ => unreachable!("ranges belong to packed tables"),
        }
    }

    /// Stores a tile of rows of a head.
    fn store<T: Element>(self, of: Of, table: TableMut<T>, [head, at]: [Scalar<i32>; 2], tile: Tile<T, 2>) {
        let [m, d] = tile.shape();
        match (self.ranges, table) {
            (None, (Some(table), _)) => table.store((self.number, head, at, 0), tile.reshape([1, 1, m, d])),
            (Some(ranges), (_, Some(table))) => {
                let [begin, end] = ranges[of as usize];
                table.slice(0, begin..end).store((at, head, 0), tile.reshape([m, 1, d]));
            }
            _ => unreachable!("ranges belong to packed tables"),
        }
    }

    /// Adds to a tile of rows of queries, by atomic additions.
    fn add(self, table: TableMut<f32>, [head, at]: [Scalar<i32>; 2], tile: Tile<f32, 2>) {
        let [m, d] = tile.shape();
        match (self.ranges, table) {
            (None, (Some(table), _)) => table.atomic_store_add((self.number, head, at, 0), tile.reshape([1, 1, m, d])),
            (Some([[begin, end], _]), (_, Some(table))) => {
                table.slice(0, begin..end).atomic_store_add((at, head, 0), tile.reshape([m, 1, d]));
            }
            _ => unreachable!("ranges belong to packed tables"),
        }
    }

    /// Loads numbers of a tile of queries.
    fn column(self, column: Column, [head, at]: [Scalar<i32>; 2], m: usize) -> Tile<f32, 1> {
        match (self.ranges, column) {
            (None, (Some(column), _)) => column.load((self.number, head, at), [1, 1, m]).reshape([m]),
            (Some([[begin, _], _]), (_, Some(column))) => {
                let first = aligned(self.number, begin) * (ALIGNED / m) as i32;
                column.load((head, first + at), [1, m]).reshape([m])
            }
            _ => unreachable!("ranges belong to packed tables"),
        }
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
    ([dk, dv], dq): ([TableMut<T>; 2], Option<TableMut<f32>>),
    parameters: Parameters,
    Form { tile: [m, n], columns: [d, e], group, causal }: Form,
) {
    let (tile, key_head) = (ct::bid(0), ct::bid(1));
    let sequence = Sequence::new(ct::bid(2), starts);
    let (queries, all_keys) = (sequence.rows(Of::Queries, q), sequence.rows(Of::Keys, k));
    if starts.is_some() {
        ct::return_if((tile * n).ge(all_keys));
    }
    let place = [key_head, tile];
    let (keys, values) = (sequence.load(Of::Keys, k, place, [n, d]), sequence.load(Of::Keys, v, place, [n, e]));
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
        let at = [head, i];
        let (x, dy) = (sequence.load(Of::Queries, q, at, [m, d]), sequence.load(Of::Queries, dout, at, [m, e]));
        let rows = rows.map(|x| sequence.column(x, at, m).unsqueeze(0));
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
        query.iter().for_each(|(dq, x)| sequence.add(*dq, at, *x));
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
    sequence.store(Of::Keys, dk, place, (key * parameters.0).cast::<T>());
    sequence.store(Of::Keys, dv, place, value.cast::<T>());
}

/// A block takes a tile of queries past all keys that they see.
pub fn of_queries<T: Number>(
    [q, k, v, dout]: Inputs<T>,
    (rows, starts): (Rows, Starts),
    dq: TableMut<T>,
    parameters: Parameters,
    Form { tile: [m, n], columns: [d, e], group, causal }: Form,
) {
    let head = ct::bid(1);
    // The longest first.
    let tile = if causal { ct::num_blocks(0) - 1 - ct::bid(0) } else { ct::bid(0) };
    let sequence = Sequence::new(ct::bid(2), starts);
    let (all_queries, keys) = (sequence.rows(Of::Queries, q), sequence.rows(Of::Keys, k));
    if starts.is_some() {
        ct::return_if((tile * m).ge(all_queries));
    }
    let place = [head, tile];
    let queries = sequence.load(Of::Queries, q, place, [m, d]);
    let dout = sequence.load(Of::Queries, dout, place, [m, e]);
    let rows = rows.map(|x| sequence.column(x, place, m).unsqueeze(1));
    let position = tile * m + (keys - all_queries);
    let visible = Visible { causal, window: parameters.2, keys };
    let end = if causal { (position + m).min(keys) } else { keys };
    let (begin, end) = match visible.window {
        None => (ct::scalar(0), end),
        Some(window) => ((position - window + 1).max(0), end.min(position + (m - 1) + window)),
    };
    let query = ct::fold(begin / n..end.max(0).ceil_div(n), ct::zeros::<f32, 2>([m, d]), |query, j| {
        let at = [head / group, j];
        let (y, z) = (sequence.load(Of::Keys, k, at, [n, d]), sequence.load(Of::Keys, v, at, [n, e]));
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
    sequence.store(Of::Queries, dq, place, (query * parameters.0).cast::<T>());
}
