//! Attention of many queries, forward: FlashAttention (Dao et al., 2022; Shah et al., 2024).
//!
//! A block takes a tile of queries past the blocks of keys that any of them sees:
//! 1. scores: a product with the keys;
//! 2. softcap, score function and mask, the last one where the block has a key that some query does
//!    not see;
//! 3. weights by an online softmax;
//! 4. a product with the values.
//!
//! The compiler rotates the loop: the second product of a block runs during the softmax of the next
//! one.

use std::f32::consts::{LN_2, LOG2_E};

use cutlet as ct;
use cutlet::prelude::*;

use super::online::{Exponent, Online};
use super::scores::{Place, Scores};
use crate::Number;

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

/// Parameters of the kernels.
pub type Parameters = (Factors, Option<Scalar<i32>>, Option<Array<f32, 1>>);
/// Factor of the scores; with a softcap, the factor before the tangent and the bound.
pub type Factors = (Scalar<f32>, Option<(Scalar<f32>, Scalar<f32>)>);

/// A tile of queries, with the numbers of queries and keys of its sequence.
struct Queries {
    batch: Scalar<i32>,
    head: Scalar<i32>,
    tile: Scalar<i32>,
    extents: [Scalar<i32>; 2],
}

/// Returns the results of a tile of queries, and the natural logarithms of their sums of
/// exponentials. `load` returns a block of keys and values.
fn attend<T: Number, P: Copy, F: Scores<P>>(
    queries: Tile<T, 2>,
    load: impl Fn(Scalar<i32>) -> [Tile<T, 2>; 2],
    Queries { batch, head, tile, extents: [rows, keys] }: Queries,
    ((scale, cap), window, sinks): Parameters,
    (function, parameters): (F, P),
    Form { tile: [m, n], columns, causal, .. }: Form,
) -> (Tile<f32, 2>, Tile<f32, 2>) {
    // Positions of the first and the last query. Keys that a query sees are from `before` on, and
    // in front of `behind`.
    let first = tile * m + (keys - rows);
    let last = first + (m as i32 - 1);
    let before = |query: Scalar<i32>| window.map_or(ct::scalar(0), |window| (query - window + 1).max(0));
    let behind = |query: Scalar<i32>| match window {
        _ if causal => (query + 1).min(keys),
        Some(window) => (query + window).min(keys),
        None => keys,
    };
    let (begin, end) = (before(first) / n, behind(last).max(0).ceil_div(n));

    // The exponents take the factor: in their fused multiply-add it costs nothing.
    let bound = cap.map_or(scale, |(_, cap)| cap);
    let factor = if F::SCALED { ct::scalar(LOG2_E) } else { bound * LOG2_E };
    // With 64 columns, exponentials take longer than products, and this form was faster on an H100.
    let narrow = columns[0].max(columns[1]) <= 64;
    let exponent = Exponent { scales_max: narrow, ..Exponent::new(factor) };
    let step = |state: Online, j: Scalar<i32>| {
        let [keys_of, values] = load(j);
        let scores = ct::mma(queries, keys_of.transpose(), ct::zeros::<f32, 2>([m, n]));
        let scores = cap.map_or(scores, |(inner, _)| (scores * inner).tanh_approx());
        let scores = if F::SCALED { scores * bound } else { scores };
        let key = (j * n + ct::arange(0..n)).unsqueeze(0);
        let query = (first + ct::arange_from(m, 0, 1)).unsqueeze(1);
        let scores = function.apply(scores, Place { batch, head, block: j, query, key }, parameters);
        let masked = || {
            let seen = if causal { key.le(query) } else { key.lt(keys).broadcast_to([m, n]) };
            let seen = window.map_or(seen, |window| seen & key.gt(query - window));
            let seen = window.filter(|_| !causal).map_or(seen, |window| seen & key.lt(query + window));
            ct::select(seen, scores, f32::NEG_INFINITY)
        };
        let whole = ((j + 1) * n).le(behind(first));
        let whole = if window.is_some() { whole & (j * n).ge(before(last)) } else { whole };
        let scores = if narrow { masked() } else { ct::if_else(whole, || scores, masked) };
        state.add(scores, exponent, |weights, sum| vec![ct::mma(weights.cast::<T>(), values, sum(0))])
    };
    let state = ct::fold(begin..end, Online::new(m, columns[1], 1), step);
    let sink = sinks.map(|sinks| sinks.load(head, [1]).reshape([1, 1]) * LOG2_E);
    let (results, logs) = state.finish(exponent, sink);
    (results[0], logs * LN_2)
}

/// A block takes a tile of queries of a head of a sequence.
pub fn contiguous<T: Number, P: Copy, F: Scores<P>>(
    [q, k, v]: [Array<T, 4>; 3],
    (out, logs): (ArrayMut<T, 4>, Option<ArrayMut<f32, 3>>),
    parameters: Parameters,
    function: (F, P),
    form: Form,
) {
    let Form { tile: [m, n], columns: [d, e], group, .. } = form;
    let (tile, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let load = |x: Array<T, 4>, j, d| x.load((batch, head / group, j, 0), [1, 1, n, d]).reshape([n, d]);
    let queries = q.load((batch, head, tile, 0), [1, 1, m, d]).reshape([m, d]);
    let place = Queries { batch, head, tile, extents: [q.extent(2), k.extent(2)] };
    let (result, log) = attend(queries, |j| [load(k, j, d), load(v, j, e)], place, parameters, function, form);
    logs.iter().for_each(|logs| logs.store((batch, head, tile), log.reshape([1, 1, m])));
    out.store((batch, head, tile, 0), result.cast::<T>().reshape([1, 1, m, e]));
}

/// A block takes a tile of queries of a head of a sequence, whose rows begin and end where `starts`
/// says.
pub fn packed<T: Number, P: Copy, F: Scores<P>>(
    [q, k, v]: [Array<T, 3>; 3],
    starts: [Array<i32, 1>; 2],
    (out, logs): (ArrayMut<T, 3>, Option<ArrayMut<f32, 2>>),
    parameters: Parameters,
    function: (F, P),
    form: Form,
) {
    let Form { tile: [m, n], columns: [d, e], group, .. } = form;
    // The last rows have the most keys.
    let (tile, head, batch) = (ct::num_blocks(0) - 1 - ct::bid(0), ct::bid(1), ct::bid(2));
    let [rows, keys] = starts.map(|starts| (starts.load_scalar(batch), starts.load_scalar(batch + 1)));
    let extents = [rows, keys].map(|(begin, end)| end - begin);
    ct::return_if((tile * m).ge(extents[0]));
    let part = |x: Array<T, 3>, (begin, end): (Scalar<i32>, Scalar<i32>)| x.slice(0, begin..end);
    let load = |x: Array<T, 3>, j, d| x.load((j, head / group, 0), [n, 1, d]).reshape([n, d]);
    let queries = part(q, rows).load((tile, head, 0), [m, 1, d]).reshape([m, d]);
    let load = |j| [load(part(k, keys), j, d), load(part(v, keys), j, e)];
    let (result, log) = attend(queries, load, Queries { batch, head, tile, extents }, parameters, function, form);
    logs.iter().for_each(|logs| logs.slice(1, rows.0..rows.1).store((head, tile), log.reshape([1, m])));
    out.slice(0, rows.0..rows.1).store((tile, head, 0), result.cast::<T>().reshape([m, 1, e]));
}
