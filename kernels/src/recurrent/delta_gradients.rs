//! Gradients of the delta rules, by chunks.
//!
//! New values of a chunk are V' = T (β V - β e^G K S), with the state S before the chunk and the
//! inverse T = (1 + A)⁻¹. A has the products of keys below the diagonal times β. H is the gradient
//! of the state after the chunk.
//!
//! 1. The chunks are prepared again, and the states S and the new values V' are kept.
//! 2. From the last chunk on: dV' = scale Pᵀ dO + (e^(last G - G) K) H with the scores P, and H ←
//!    e^(last G) H + scale (e^G Q)ᵀ dO + Wᵀ dV', where W = -T (β e^G K).
//! 3. All chunks are independent. With R = Tᵀ dV', the gradient of V is β R. That of A is -R V'ᵀ
//!    below the diagonal. That of P is scale dO V'ᵀ. That of β e^G K is -R Sᵀ.
//! 4. Queries, and keys as rows, have e^G as a factor, keys as columns e^-G. So the gradient of G
//!    is q · dq + k · (that of the row - that of the column). The last one also has the products of
//!    H with the decayed state and with the added one. The sums of these from the end on are the
//!    gradients of the gates.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, ScanOptions, Stream};

use super::delta_chunks::{BLOCK, Chunks, Form, Inputs, is_level, level_decay, levels, prepare};
use super::delta_inputs::DeltaInputs;
use super::tokens::{
    Extents, Packing, STEPS, Sequence, Tokens, TokensMut, decays, initial, parts, store_last, tokens, tokens_mut,
    widest,
};
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors, of_batch};

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

/// Stores the gradients of the states after each chunk and of the new values, of a part of the
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

/// Returns the gradients of queries, of keys as rows up to their rates, and of keys as columns,
/// from those of the scores and of the triangle A.
fn of_products<T: Number>([q, k]: [Tile<T, 2>; 2], sums: Tile<f32, 2>, pairs: &Pairs<T>) -> [Tile<f32, 2>; 3] {
    let (rates, [scores, triangle]) = (pairs.rates, pairs.gradients);
    let [_, keys] = k.shape();
    let zeros = ct::zeros::<f32, 2>([STEPS, keys]);
    let (exact_q, exact_k) = (q.cast::<f32>(), k.cast::<f32>());
    if sums.shape()[1] == 1 {
        let rated = (exact_k * rates).cast::<T>();
        let of_columns = ct::mma(triangle.transpose(), rated, ct::mma(scores.transpose(), q, zeros));
        return [ct::mma(scores, k, zeros), ct::mma(triangle, k, zeros), of_columns];
    }
    let (sums, own, pairs) = (sums * std::f32::consts::LOG2_E, pairs.of_own, [scores, triangle]);
    let start = [exact_k * own, zeros, exact_q * own];
    let start = levels().take_while(|half| *half < BLOCK).fold(start, |[of_q, of_rows, of_columns], half| {
        let count = STEPS / BLOCK;
        let is_level = is_level([count, BLOCK, BLOCK], half);
        let [scores, triangle] = pairs.map(|x| is_level.select(diagonal(x), ct::zeros([count, BLOCK, BLOCK])));
        let decay = level_decay(sums, half);
        let decayed = exact_k * decay;
        let [q, k, rated] =
            [exact_q * decay, decayed, decayed * rates].map(|x| x.cast::<T>().reshape([count, BLOCK, keys]));
        let product = |a: Tile<T, 3>, b: Tile<T, 3>, sum: Tile<f32, 3>| ct::mma(a, b, sum);
        let zeros = ct::zeros::<f32, 3>([count, BLOCK, keys]);
        let turned = |x: Tile<T, 3>| x.permute([0, 2, 1]);
        let results = [
            product(scores, k, zeros),
            product(triangle, k, zeros),
            product(turned(triangle), rated, product(turned(scores), q, zeros)),
        ];
        let [a, b, c] = results.map(|x| x.reshape([STEPS, keys]));
        [a.fma(decay, of_q), b.fma(decay, of_rows), c.fma(decay, of_columns)]
    });
    levels().skip_while(|half| *half < BLOCK).fold(start, |[of_q, of_rows, of_columns], half| {
        let blocks = STEPS / half / 2;
        // Rows of second halves, columns of first halves.
        let [scores, triangle] = pairs.map(|x| {
            let parts = (0..blocks).map(|i| x.extract((2 * i + 1, 2 * i), [half, half]).reshape([1, half, half]));
            ct::cat(parts, 0)
        });
        let decay = level_decay(sums, half);
        let decayed = exact_k * decay;
        let halves = |x: Tile<f32, 2>, which: usize| {
            let whole = x.cast::<T>().reshape([blocks, 2 * half, keys]);
            whole.extract((0, which, 0), [blocks, half, keys])
        };
        let (q, k, rated) = (halves(exact_q * decay, 1), halves(decayed, 0), halves(decayed * rates, 1));
        let zeros = ct::zeros::<f32, 3>([blocks, half, keys]);
        let turned = |x: Tile<T, 3>| x.permute([0, 2, 1]);
        let (a, b) = (ct::mma(scores, k, zeros), ct::mma(triangle, k, zeros));
        let c = ct::mma(turned(triangle), rated, ct::mma(turned(scores), q, zeros));
        let whole = |parts: [Tile<f32, 3>; 2]| ct::cat(parts, 1).reshape([STEPS, keys]);
        [
            whole([zeros, a]).fma(decay, of_q),
            whole([zeros, b]).fma(decay, of_rows),
            whole([c, zeros]).fma(decay, of_columns),
        ]
    })
}

/// Returns the square blocks along the diagonal.
fn diagonal<T: Number>(x: Tile<T, 2>) -> Tile<T, 3> {
    ct::cat((0..STEPS / BLOCK).map(|i| x.extract((i, i), [BLOCK, BLOCK]).reshape([1, BLOCK, BLOCK])), 0)
}

/// Values of a head that all parts of its keys need.
struct Pairs<T: Element> {
    rates: Tile<f32, 2>,
    /// Gradients of the scores and of the triangle A, times the decays if the head has one gate.
    gradients: [Tile<T, 2>; 2],
    /// Gradients of the scores of equal steps.
    of_own: Tile<f32, 2>,
    /// The residuals R of all parts of the values.
    residuals: Vec<Tile<T, 2>>,
    /// The gradient of the rates by the values.
    of_rates: Tile<f32, 2>,
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

/// Returns the values of a head that all parts of its keys need, and stores the gradients of its
/// values. `place`: sequence, chunk, slot of the chunk, head.
fn pairs<T: Number>(
    (sequence, at, slot, head): (Sequence, Scalar<i32>, Scalar<i32>, Scalar<i32>),
    (v, gates, rates, dy): (Tokens<T>, Tokens<f32>, Tokens<f32>, Tokens<T>),
    dv: TokensMut<T>,
    [news, dnews, inverses]: [Array<T, 4>; 3],
    scale: Scalar<f32>,
    Form { values, parts, by_channel, .. }: Form,
) -> Pairs<T> {
    let zero = ct::scalar(0);
    let own = sequence.load(rates, [at, head, zero], 1);
    let inverse = inverses.load((slot, head, 0, 0), [1, 1, STEPS, STEPS]).reshape([STEPS, STEPS]);
    let mut of_rates = ct::zeros::<f32, 2>([STEPS, 1]);
    let [mut of_scores, mut of_triangle] = [ct::zeros::<f32, 2>([STEPS, STEPS]); 2];
    let mut residuals = Vec::new();
    for value in (0..parts as i32).map(ct::scalar) {
        let place = [at, head, value];
        let [new, dnew] = [news, dnews]
            .map(|array| array.load((slot, head, zero, value), [1, 1, STEPS, values]).reshape([STEPS, values]));
        let residual = ct::mma(inverse.transpose(), dnew, ct::zeros::<f32, 2>([STEPS, values]));
        sequence.store(dv, place, (residual * own).cast::<T>());
        of_rates += (residual * sequence.load(v, place, values).cast::<f32>()).sum(1);
        let residual = residual.cast::<T>();
        of_scores = ct::mma(sequence.load(dy, place, values), new.transpose(), of_scores);
        of_triangle = ct::mma(residual, new.transpose(), of_triangle);
        residuals.push(residual);
    }
    let (of_scores, of_triangle) = (of_scores * scale, -of_triangle);
    let [row, column] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    let gradients = match by_channel {
        true => [of_scores, of_triangle],
        false => {
            let sums = sequence.load(gates, [at, head, zero], 1).cumsum(0);
            [of_scores * decays(sums, false), of_triangle * decays(sums, true)]
        }
    };
    let of_own = row.eq(column).select(of_scores, 0.0).sum(1);
    Pairs { rates: own, gradients: gradients.map(|x| x.cast::<T>()), of_own, residuals, of_rates }
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
    let gate_width = form.gates()[1];
    let of_value = |array: Array<T, 4>, head: Scalar<i32>, [row, value]: [Scalar<i32>; 2], extent: usize| {
        array.load((slot, head, row, value), [1, 1, extent, values]).reshape([extent, values])
    };
    let all_values = || (0..parts as i32).map(ct::scalar);
    let of_pairs = |head: Scalar<i32>| {
        pairs((sequence, at, slot, head), (v, gates, rates, dy), dv, [news, dnews, inverses], scale, form)
    };
    let of_head = |part: Scalar<i32>, [sum_q, sum_k]: [Tile<f32, 2>; 2], head: Scalar<i32>, pairs: &Pairs<T>| {
        let [q, k] = [q, k].map(|x| sequence.load(x, [at, key_head, part], width));
        let gates = sequence.load(gates, [at, head, form.gate_of(part)], gate_width).cumsum(0);
        let last = gates.extract((STEPS - 1, 0), [1, gate_width]);
        let [of_q, of_rows, of_columns] = of_products([q, k], gates, pairs);
        // One product after another, so that registers have one sum at a time.
        let product = |left: &dyn Fn(usize) -> Tile<T, 2>, states: Array<T, 4>| {
            all_values().enumerate().fold(ct::zeros::<f32, 2>([STEPS, width]), |sum, (i, value)| {
                ct::mma(left(i), of_value(states, head, [part, value], width).transpose(), sum)
            })
        };
        let (exact_q, exact_k) = (q.cast::<f32>(), k.cast::<f32>());
        let decay = gates.exp();
        let of_queries = product(&|i| sequence.load(dy, [at, head, ct::scalar(i as i32)], values), starts);
        let of_q = (of_queries * scale).fma(decay, of_q);
        let of_rows = of_rows - product(&|i| pairs.residuals[i], starts) * decay;
        let of_ends = product(&|i| of_value(news, head, [zero, ct::scalar(i as i32)], STEPS), afters);
        let carried = all_values().fold(ct::zeros::<f32, 2>([width, 1]), |sum, value| {
            let [before, after] =
                [starts, afters].map(|array| of_value(array, head, [part, value], width).cast::<f32>());
            sum + (before * after).sum(1)
        });
        let of_ends = of_ends * (last - gates).exp();
        let (of_rated, of_columns) = (of_rows * pairs.rates, of_columns + of_ends);
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
        add(drates, pairs.of_rates, (of_rows * exact_k).sum(1));
        [sum_q + of_q, sum_k + of_rated + of_columns]
    };
    // A single head has its pairs once for all parts of the keys.
    let single = (group == 1).then(|| of_pairs(key_head));
    ct::for_each(..form.key_parts(), |part| {
        let start = [ct::zeros::<f32, 2>([STEPS, width]); 2];
        let [of_q, of_k] = match &single {
            Some(pairs) => of_head(part, start, key_head, pairs),
            None => ct::fold(..ct::scalar(group as i32), start, |sums, i| {
                let head = key_head * group as i32 + i;
                of_head(part, sums, head, &of_pairs(head))
            }),
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
        // On an H100, 4 x 4096 tokens of 32 heads of 128 channels: 2587 us with one gate of a head
        // (parts of 64 channels: 2800 us), and 4764 us with gates of channels (parts of 32
        // channels: 5072 us).
        width: keys.next_power_of_two().clamp(16, if GATES == 3 { 256 } else { 64 }),
        by_channel: GATES == 4,
        group: heads / k.shape()[2],
        chunks,
    };
    let device = stream.device();
    let mut scratch = Chunks::<T>::new(stream, [slots, heads], [keys, values, width], true)?;
    let of_states = |rows: usize| device.unspecified::<T, 4>([slots, heads, rows, values]);
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
        let four = ct::Hints::new().num_warps(4).occupancy(2);
        let launch = ct::Launch::new([chunks, heads, sequences]).hints(four).stream(stream);
        launch.run(prepare::<T>, (arguments, offsets, scratch.arguments(), ct::Constant(form)))?;
    }
    let Chunks { w, u, queries, ends, scores, decays, inverses } = &scratch;
    let (parts, part) = parts(values, heads * of_batch(sequences, 1), num_multiprocessors(stream));
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
