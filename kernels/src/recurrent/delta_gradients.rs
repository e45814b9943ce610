//! Gradients of the delta rules, by chunks.
//!
//! New values of a chunk are V' = T (β V - β e^G K S), with the state S before the chunk and the
//! inverse T = (1 + A)⁻¹, where A has the products of keys below the diagonal times β. H is the
//! gradient of the state behind the chunk.
//!
//! 1. The chunks are prepared again, and the states S and the new values V' are kept.
//! 2. From the last chunk on: dV' = scale Pᵀ dO + (e^(last G - G) K) H with the scores P, and H ←
//!    e^(last G) H + scale (e^G Q)ᵀ dO + Wᵀ dV', where W = -T (β e^G K).
//! 3. All chunks are independent. With R = Tᵀ dV', the gradient of V is β R, that of A is -R V'ᵀ
//!    below the diagonal, that of P is scale dO V'ᵀ, and that of β e^G K is -R Sᵀ.
//! 4. Queries, and keys as rows, have e^G as a factor, keys as columns e^-G. So the gradient of G is
//!    q · dq + k · (that of the row - that of the column). The last one also has the products of H
//!    with the decayed state and with the added one. The sums of these from the end on are the
//!    gradients of the gates.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, ScanOptions, Stream};

use super::delta_chunks::{Chunks, Form, Inputs, is_level, key_width, level_decay, levels, prepare};
use super::delta_rule::DeltaInputs;
use super::tokens::{
    Extents, Packing, STEPS, Sequence, Tokens, TokensMut, decays, initial, parts, store_last, tokens, tokens_mut,
    widest,
};
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors};

/// Gradients of the inputs of a delta rule, of their shapes.
#[derive(Debug)]
pub struct DeltaGradients<'a, T: Element, const GATES: usize> {
    /// Gradient of the queries.
    pub q: DeviceViewMut<'a, T, 4>,
    /// Gradient of the keys.
    pub k: DeviceViewMut<'a, T, 4>,
    /// Gradient of the values.
    pub v: DeviceViewMut<'a, T, 4>,
    /// Gradient of the logarithms of the decays.
    pub gates: DeviceViewMut<'a, f32, GATES>,
    /// Gradient of the rates.
    pub rates: DeviceViewMut<'a, f32, 3>,
    /// Gradient of the states before the first token (sequence, head, keys, values). Not stored by
    /// default.
    pub initial: Option<DeviceViewMut<'a, f32, 4>>,
}

/// Keys W, values U and decayed keys; decays.
type Prepared<T> = ([Array<T, 4>; 3], Array<f32, 3>);

/// Stores the states before each chunk (slot, head, key, value) and the new values (slot, head,
/// step, value), of a part of the values of a head.
fn states<T: Number>(
    ([w, u, ends], decays): Prepared<T>,
    like: Tokens<T>,
    offsets: Option<Array<i32, 1>>,
    before: Option<Array<f32, 4>>,
    [starts, news]: [ArrayMut<T, 4>; 2],
    form: Form,
) {
    let (Form { keys, values, chunks, .. }, [gates, _]) = (form, form.gates());
    let [part, head, sequence] = [0, 1, 2].map(ct::bid);
    let start = initial(before, [sequence, head, part], [keys, values]);
    let sequence = Sequence::new(sequence, offsets);
    ct::fold(..sequence.chunks(like, chunks), start, |state: Tile<f32, 2>, at| {
        let slot = sequence.slot(at, chunks);
        let load = |array: Array<T, 4>, width: usize, part: Scalar<i32>| {
            array.load((slot, head, 0, part), [1, 1, STEPS, width]).reshape([STEPS, width])
        };
        let zero = ct::scalar(0);
        let (w, k, u) = (load(w, keys, zero), load(ends, keys, zero), load(u, values, part));
        let decay = decays.load((slot, head, 0), [1, 1, gates]).reshape([gates, 1]);
        let rounded = state.cast::<T>();
        let new = ct::mma(w, rounded, u.cast::<f32>()).cast::<T>();
        starts.store((slot, head, 0, part), rounded.reshape([1, 1, keys, values]));
        news.store((slot, head, 0, part), new.reshape([1, 1, STEPS, values]));
        ct::mma(k.transpose(), new, state * decay)
    });
}

/// Keys W, decayed queries and keys, and scores; decays.
type Decayed<T> = ([Array<T, 4>; 4], Array<f32, 3>);

/// Stores the gradients of the states behind each chunk and of the new values, of a part of the
/// values of a head.
fn state_gradients<T: Number>(
    ([w, queries, ends, scores], decays): Decayed<T>,
    dy: Tokens<T>,
    offsets: Option<Array<i32, 1>>,
    (behind, first): (Option<Array<f32, 4>>, Option<ArrayMut<f32, 4>>),
    [afters, dnews]: [ArrayMut<T, 4>; 2],
    scale: Scalar<f32>,
    form: Form,
) {
    let (Form { keys, values, chunks, .. }, [gates, _]) = (form, form.gates());
    let [part, head, sequence] = [0, 1, 2].map(ct::bid);
    let place = [sequence, head, part];
    let start = initial(behind, place, [keys, values]);
    let sequence = Sequence::new(sequence, offsets);
    let count = sequence.chunks(dy, chunks);
    let state = ct::fold(..count, start, |state: Tile<f32, 2>, i| {
        let at = count - 1 - i;
        let slot = sequence.slot(at, chunks);
        let load = |array: Array<T, 4>, width: usize| {
            array.load((slot, head, 0, 0), [1, 1, STEPS, width]).reshape([STEPS, width])
        };
        let (w, q, k, scores) = (load(w, keys), load(queries, keys), load(ends, keys), load(scores, STEPS));
        let dy = (sequence.load(dy, [at, head, part], values).cast::<f32>() * scale).cast::<T>();
        let decay = decays.load((slot, head, 0), [1, 1, gates]).reshape([gates, 1]);
        let rounded = state.cast::<T>();
        let of_scores = ct::mma(scores.transpose(), dy, ct::zeros::<f32, 2>([STEPS, values]));
        let dnew = ct::mma(k, rounded, of_scores).cast::<T>();
        afters.store((slot, head, 0, part), rounded.reshape([1, 1, keys, values]));
        dnews.store((slot, head, 0, part), dnew.reshape([1, 1, STEPS, values]));
        ct::mma(w.transpose(), dnew, ct::mma(q.transpose(), dy, state * decay))
    });
    store_last(first, place, state);
}

/// Returns the gradients of queries, of keys as rows up to their rates, and of keys as columns, from
/// those of the scores and of the triangle A.
fn of_products<T: Number>(
    [q, k]: [Tile<T, 2>; 2],
    rates: Tile<f32, 2>,
    sums: Tile<f32, 2>,
    [of_scores, of_triangle]: [Tile<f32, 2>; 2],
) -> [Tile<f32, 2>; 3] {
    let [_, keys] = k.shape();
    let zeros = ct::zeros::<f32, 2>([STEPS, keys]);
    let (exact_q, exact_k) = (q.cast::<f32>(), k.cast::<f32>());
    let product = |a: Tile<T, 2>, b: Tile<T, 2>| ct::mma(a, b, zeros);
    let columns = |scores: Tile<T, 2>, triangle: Tile<T, 2>, q: Tile<T, 2>, k: Tile<T, 2>| {
        ct::mma(triangle.transpose(), k, product(scores.transpose(), q))
    };
    if sums.shape()[1] == 1 {
        let scores = (of_scores * decays(sums, false)).cast::<T>();
        let triangle = (of_triangle * decays(sums, true)).cast::<T>();
        let rated = (exact_k * rates).cast::<T>();
        return [product(scores, k), product(triangle, k), columns(scores, triangle, q, rated)];
    }
    let [row, column] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    let own = row.eq(column).select(of_scores, 0.0).sum(1);
    let sums = sums * std::f32::consts::LOG2_E;
    levels().fold([exact_k * own, zeros, exact_q * own], |[of_q, of_rows, of_columns], half| {
        let (decay, is_level) = (level_decay(sums, half), is_level(STEPS, half));
        let [scores, triangle] = [of_scores, of_triangle].map(|x| is_level.select(x, 0.0).cast::<T>());
        let decayed = exact_k * decay;
        let (q, k, rated) = ((exact_q * decay).cast::<T>(), decayed.cast::<T>(), (decayed * rates).cast::<T>());
        [
            product(scores, k).fma(decay, of_q),
            product(triangle, k).fma(decay, of_rows),
            columns(scores, triangle, q, rated).fma(decay, of_columns),
        ]
    })
}

/// Results of [`backward`]: gradients of queries, keys, values, gates and rates.
type Results<T> = (TokensMut<T>, TokensMut<T>, TokensMut<T>, TokensMut<f32>, TokensMut<f32>);

/// States, their gradients, new values and theirs, and inverses.
type Kept<T> = [Array<T, 4>; 5];

/// The gradients of a chunk of a head of keys.
fn backward<T: Number>(
    inputs: Inputs<T>,
    dy: Tokens<T>,
    offsets: Option<Array<i32, 1>>,
    kept: Kept<T>,
    results: Results<T>,
    scale: Scalar<f32>,
    form: Form,
) {
    ct::with_mode(ct::FloatMode::fast(), || backward_of_chunk(inputs, dy, offsets, kept, results, scale, form));
}

fn backward_of_chunk<T: Number>(
    (q, k, v, gates, rates): Inputs<T>,
    dy: Tokens<T>,
    offsets: Option<Array<i32, 1>>,
    [starts, afters, news, dnews, inverses]: Kept<T>,
    (dq, dk, dv, dgates, drates): Results<T>,
    scale: Scalar<f32>,
    form: Form,
) {
    let Form { values, parts, width, group, chunks, .. } = form;
    let [at, key_head, sequence] = [0, 1, 2].map(ct::bid);
    let sequence = Sequence::new(sequence, offsets);
    if offsets.is_some() {
        ct::return_if(at.ge(sequence.chunks(k, chunks)));
    }
    let (zero, slot) = (ct::scalar(0), sequence.slot(at, chunks));
    let square = ct::zeros::<f32, 2>([STEPS, STEPS]);
    let gate_width = form.gates()[1];
    let of_head = |part: Scalar<i32>, [sum_q, sum_k]: [Tile<f32, 2>; 2], i: Scalar<i32>| {
        let head = key_head * group + i;
        let own = sequence.load(rates, [at, head, zero], 1);
        let inverse = inverses.load((slot, head, 0, 0), [1, 1, STEPS, STEPS]).reshape([STEPS, STEPS]);
        let zeros = ct::zeros::<f32, 2>([STEPS, width]);
        let (mut of_scores, mut of_triangle, mut of_rates) = (square, square, ct::zeros::<f32, 2>([STEPS, 1]));
        let (mut of_queries, mut of_starts, mut of_ends) = (zeros, zeros, zeros);
        let mut carried = ct::zeros::<f32, 2>([width, 1]);
        for value in 0..parts as i32 {
            let load = |array: Array<T, 4>, row: Scalar<i32>, extent: usize| {
                array.load((slot, head, row, value), [1, 1, extent, values]).reshape([extent, values])
            };
            let place = [at, head, ct::scalar(value)];
            let (before, after) = (load(starts, part, width), load(afters, part, width));
            let (new, dnew) = (load(news, zero, STEPS), load(dnews, zero, STEPS));
            let dy = (sequence.load(dy, place, values).cast::<f32>() * scale).cast::<T>();
            let residual = ct::mma(inverse.transpose(), dnew, ct::zeros::<f32, 2>([STEPS, values]));
            sequence.store(dv, place, (residual * own).cast::<T>());
            of_rates += (residual * sequence.load(v, place, values).cast::<f32>()).sum(1);
            let residual = residual.cast::<T>();
            of_scores = ct::mma(dy, new.transpose(), of_scores);
            of_triangle = ct::mma(residual, new.transpose(), of_triangle);
            of_queries = ct::mma(dy, before.transpose(), of_queries);
            of_starts = ct::mma(residual, before.transpose(), of_starts);
            of_ends = ct::mma(new, after.transpose(), of_ends);
            carried += (before.cast::<f32>() * after.cast::<f32>()).sum(1);
        }
        let [q, k] = [q, k].map(|x| sequence.load(x, [at, key_head, part], width));
        let (exact_q, exact_k) = (q.cast::<f32>(), k.cast::<f32>());
        let gates = sequence.load(gates, [at, head, form.gate_of(part)], gate_width).cumsum(0);
        let last = gates.extract((STEPS - 1, 0), [1, gate_width]);
        let [of_q, of_rows, of_columns] = of_products([q, k], own, gates, [of_scores, -of_triangle]);
        let of_q = of_queries.fma(gates.exp(), of_q);
        let of_rows = of_rows - of_starts * gates.exp();
        let of_ends = of_ends * (last - gates).exp();
        let (of_rated, of_columns) = (of_rows * own, of_columns + of_ends);
        let of_sums = exact_q * of_q + exact_k * (of_rated - of_columns);
        let (of_last, carried) = ((exact_k * of_ends).sum(0), carried.transpose());
        let behind = |x: Tile<f32, 2>| x.cumsum_with(0, ScanOptions::new().reverse());
        // The parts after the first one add to the sums over channels.
        let add = |results: TokensMut<f32>, first: Tile<f32, 2>, more: Tile<f32, 2>| {
            let place = [at, head, zero];
            let sum = part.gt(0).select(sequence.load_result(results, place, 1), first);
            sequence.store(results, place, sum + more);
        };
        if form.by_channel {
            sequence.store(dgates, [at, head, part], behind(of_sums) + carried.fma(last.exp(), of_last));
        } else {
            let more = behind(of_sums.sum(1)) + (of_last.sum(1) + carried.sum(1) * last.exp());
            add(dgates, ct::zeros([STEPS, 1]), more);
        }
        add(drates, of_rates, (of_rows * exact_k).sum(1));
        [sum_q + of_q, sum_k + of_rated + of_columns]
    };
    ct::for_each(..form.key_parts(), |part| {
        let start = [ct::zeros::<f32, 2>([STEPS, width]); 2];
        let [of_q, of_k] = match group {
            1 => of_head(part, start, zero),
            _ => ct::fold(..ct::scalar(group as i32), start, |sums, i| of_head(part, sums, i)),
        };
        sequence.store(dq, [at, key_head, part], of_q.cast::<T>());
        sequence.store(dk, [at, key_head, part], of_k.cast::<T>());
    });
}

/// Queues the gradients of the inputs.
#[track_caller]
pub(super) fn queue_gradients<T: Number, const GATES: usize>(
    stream: &Stream,
    name: &str,
    scale: f32,
    inputs: DeltaInputs<T, GATES>,
    (dy, behind): (DeviceView<T, 4>, Option<DeviceView<f32, 4>>),
    (packing, initial): (Option<Packing>, Option<DeviceView<f32, 4>>),
    gradients: DeltaGradients<T, GATES>,
) -> ct::Result<()> {
    let [batch, count, heads, keys, values] = inputs.check(name, dy.shape())?;
    let DeltaInputs { q, k, v, gates, rates } = inputs;
    let Extents { sequences, chunks, slots } = Extents::new(name, [batch, count], packing)?;
    gradients.check(name, &inputs)?;
    let first = gradients.initial.as_ref().map(|x| x.shape());
    for shape in [initial.map(|x| x.shape()), behind.map(|x| x.shape()), first].into_iter().flatten() {
        let wanted = [sequences, heads, keys, values];
        require(shape == wanted, || format!("{name}: states are of shape {shape:?}, not {wanted:?}"))?;
    }
    if heads * keys * values * sequences == 0 {
        return Ok(());
    }
    let width = if GATES == 3 { 1 } else { keys };
    let tile = widest(values).min(64);
    let form = Form {
        keys: keys.next_power_of_two().max(16),
        values: tile,
        parts: values.div_ceil(tile),
        // With one gate of a head, the products of all parts would be computed again.
        width: if GATES == 3 { keys.next_power_of_two().max(16) } else { key_width(keys.next_power_of_two().max(16)) },
        by_channel: GATES == 4,
        group: heads / k.shape()[2],
        chunks,
        kind: crate::launch::knob("kind", 0),
    };
    let device = stream.device();
    let mut scratch = Chunks::<T>::new(stream, [slots, heads], [keys, values, width], true)?;
    let of_states = |rows: usize| device.zeros::<T, 4>([slots, heads, rows, values]);
    let (mut starts, mut afters) = (of_states(keys)?, of_states(keys)?);
    let (mut news, mut dnews) = (of_states(STEPS)?, of_states(STEPS)?);
    let offsets = packing.map(|packing| packing.offsets);
    let four = |width| [batch, count, heads, width];
    let of_tokens = (tokens(q, packing)?, tokens(k, packing)?, tokens(v, packing)?);
    let (gates, rates) = (tokens(gates.reshape(four(width))?, packing)?, tokens(rates.reshape(four(1))?, packing)?);
    let arguments = (of_tokens.0, of_tokens.1, of_tokens.2, gates, rates);
    let dy = tokens(dy, packing)?;
    let eight = ct::Hints::new().num_warps(8);
    if chunks > 0 {
        let launch = ct::Launch::new([chunks, heads, sequences]).hints(eight).stream(stream);
        launch.run(prepare::<T>, (arguments, offsets, scratch.arguments(), ct::Constant(form)))?;
    }
    let Chunks { w, u, queries, ends, scores, decays, inverses } = &scratch;
    let (parts, part) = parts(values, heads * sequences, num_multiprocessors(stream));
    let of_parts = ct::Constant(Form { values: part, parts, ..form });
    let launch = || ct::Launch::new([parts, heads, sequences]).stream(stream);
    let kept = [&mut starts, &mut news];
    launch().run(states::<T>, (([w, u, ends], decays), of_tokens.2, offsets, initial, kept, of_parts))?;
    let (kept, both) = ([&mut afters, &mut dnews], (behind, gradients.initial));
    let of_chunks = ([w, queries, ends, scores], decays);
    launch().run(state_gradients::<T>, (of_chunks, dy, offsets, both, kept, scale, of_parts))?;
    let Some(inverses) = inverses.as_ref().filter(|_| chunks > 0) else { return Ok(()) };
    let dgates = tokens_mut(gradients.gates.reshape(four(width))?, packing)?;
    let drates = tokens_mut(gradients.rates.reshape(four(1))?, packing)?;
    let of_tokens = (tokens_mut(gradients.q, packing)?, tokens_mut(gradients.k, packing)?);
    let results = (of_tokens.0, of_tokens.1, tokens_mut(gradients.v, packing)?, dgates, drates);
    let kept = [&starts, &afters, &news, &dnews, inverses];
    let launch = ct::Launch::new([chunks, k.shape()[2], sequences]).hints(eight).stream(stream);
    launch.run(backward::<T>, (arguments, dy, offsets, kept, results, scale, ct::Constant(form)))
}

impl<T: Element, const GATES: usize> DeltaGradients<'_, T, GATES> {
    #[track_caller]
    fn check(&self, name: &str, inputs: &DeltaInputs<T, GATES>) -> ct::Result<()> {
        let (own, of) = ([&self.q, &self.k, &self.v].map(|x| x.shape()), [inputs.q, inputs.k, inputs.v]);
        let of = of.map(|x| x.shape());
        require(own == of, || format!("{name}: gradients of shapes {own:?} for {of:?}"))?;
        let (own, of) = (self.gates.shape(), inputs.gates.shape());
        require(own == of && self.rates.shape() == inputs.rates.shape(), || {
            format!("{name}: gradients of gates and rates of shapes {own:?} and {:?} for {of:?}", self.rates.shape())
        })
    }
}
