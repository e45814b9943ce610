//! Kimi delta attention (KDA; *Kimi Linear*, 2025): the delta rule with a decay for each key
//! channel.
//!
//! A step of a head with the state S (keys x values): S ← diag(e^g) S, then S ← S + k (β (v - Sᵀ
//! k))ᵀ, and the result is scale · Sᵀ q. Chunks of 64 steps are computed together as in
//! [`super::GatedDeltaRule`]. The products of steps i ≥ j are Σ k_ic k_jc e^(G_ic - G_jc). No
//! exponent may be positive, so that nothing overflows:
//!
//! * Within blocks of 8 steps the exponentials of all pairs are computed.
//! * A block of rows and the columns before it are a product of matrices. The exponents of both are
//!   relative to the sum of gates at the first step of the block.
//!
//! Each chunk is prepared on its own; then the recurrence over chunks has products of matrices
//! alone.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::delta_rule::{DeltaInputs, Step, queue_step};
use super::tokens::{
    Extents, Packing, STEPS, Sequence, States, Tokens, TokensMut, initial, knob, knob_hints, parts, store_last, tokens,
    tokens_mut, widest,
};
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors};

/// Steps of a block of a chunk.
const BLOCK: usize = 8;
/// Blocks of a chunk.
const BLOCKS: usize = STEPS / BLOCK;

/// Kimi delta attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KimiDelta {
    /// Factor of the results; 1 / √(key channels) as a rule.
    pub scale: f32,
}

/// Constants of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Channels of a key and of a part of a value, in tiles.
    keys: usize,
    values: usize,
    /// Parts of the values.
    parts: usize,
    /// Heads of values of a head of keys.
    group: usize,
    /// The most chunks of a sequence.
    chunks: usize,
    negated: bool,
    levels: bool,
}

/// Scratch arrays (slot, head, step, channel): keys W, values U, decayed queries and keys, scores;
/// decays (slot, head, key).
type Scratch<T> = (ArrayMut<T, 4>, ArrayMut<T, 4>, ArrayMut<T, 4>, ArrayMut<T, 4>, ArrayMut<T, 4>, ArrayMut<f32, 3>);

/// Returns the products of queries with keys of steps i ≥ j, and of keys with keys of steps i > j,
/// with their decays by the sums of gates.
fn products<T: Number>(q: Tile<f32, 2>, k: Tile<f32, 2>, sums: Tile<f32, 2>) -> [Tile<f32, 2>; 2] {
    let width = sums.shape()[1];
    // Blocks on the diagonal: a column of all of them at a time.
    let blocks = |tile: Tile<f32, 2>| tile.reshape([BLOCKS, BLOCK, width]);
    let (queries, keys, gates) = (blocks(q), blocks(k), blocks(sums));
    let columns = ct::indices([BLOCKS, BLOCK, BLOCK], 2);
    let zeros = ct::zeros::<f32, 3>([BLOCKS, BLOCK, BLOCK]);
    type Both = (Tile<f32, 3>, Tile<f32, 3>);
    let diagonal: Both = ct::fold(..ct::scalar(BLOCK as i32), (zeros, zeros), |(of_q, of_k): Both, j| {
        let column = |tile: Tile<f32, 3>| tile.extract((0, j, 0), [BLOCKS, 1, width]);
        let decayed = column(keys) * (gates - column(gates)).min(0.0).exp();
        let is_own = columns.eq(j);
        (is_own.select((queries * decayed).sum(2), of_q), is_own.select((keys * decayed).sum(2), of_k))
    });
    let rows = (0..BLOCKS).map(|block| {
        let part = |tile: Tile<f32, 2>| tile.extract((block, 0), [BLOCK, width]);
        let near = |diagonal: Tile<f32, 3>| {
            let own = diagonal.extract((block, 0, 0), [1, BLOCK, BLOCK]).reshape([BLOCK, BLOCK]);
            ct::cat((0..BLOCKS).map(|other| if other == block { own } else { ct::zeros([BLOCK, BLOCK]) }), 1)
        };
        let near = ct::cat([near(diagonal.0), near(diagonal.1)], 0);
        if block == 0 {
            return near;
        }
        let first = sums.extract((block * BLOCK, 0), [1, width]);
        let decay = (part(sums) - first).exp();
        let left = ct::cat([part(q) * decay, part(k) * decay], 0).cast::<T>();
        let right = (k * (first - sums).min(0.0).exp()).cast::<T>();
        let product = ct::mma(left, right.transpose(), ct::zeros::<f32, 2>([2 * BLOCK, STEPS]));
        let is_before = ct::indices([2 * BLOCK, STEPS], 1).lt((block * BLOCK) as i32);
        is_before.select(product, near)
    });
    let rows: Vec<Tile<f32, 2>> = rows.collect();
    let [row, column] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    let half = |half: usize| ct::cat(rows.iter().map(|both| both.extract((half, 0), [BLOCK, STEPS])), 0);
    [row.ge(column).select(half(0), 0.0), row.gt(column).select(half(1), 0.0)]
}

/// The same by levels: a pair of steps belongs to the level of the highest bit in which both differ.
fn products_by_levels<T: Number>(q: Tile<T, 2>, k: Tile<T, 2>, sums: Tile<f32, 2>) -> [Tile<f32, 2>; 2] {
    let width = sums.shape()[1];
    let (exact_q, exact_k) = (q.cast::<f32>(), k.cast::<f32>());
    let [row, column] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    let square = ct::zeros::<f32, 2>([STEPS, STEPS]);
    let own = ct::mma(q, k.transpose(), square);
    let start = [row.eq(column).select(own, 0.0), square];
    (0..STEPS.trailing_zeros()).fold(start, |[of_q, of_k], level| {
        let half = 1usize << level;
        let pairs = [STEPS / half / 2, 2, half, width];
        let sums = sums.reshape(pairs);
        let middle = sums.extract((0, 0, half - 1, 0), [pairs[0], 1, 1, width]);
        let middle = middle.broadcast_to(pairs).reshape([STEPS, width]);
        let sums = sums.reshape([STEPS, width]);
        let decay = (sums - middle).min(middle - sums).exp();
        let (q, k) = ((exact_q * decay).cast::<T>(), (exact_k * decay).cast::<T>());
        let is_level = ((row ^ column) / half as i32).eq(1) & row.gt(column);
        let product = |left: Tile<T, 2>| ct::mma(left, k.transpose(), square);
        [is_level.select(product(q), of_q), is_level.select(product(k), of_k)]
    })
}

/// Queries, keys, values, gates and rates.
type Inputs<T> = (Tokens<T>, Tokens<T>, Tokens<T>, Tokens<f32>, Tokens<f32>);

/// All that the recurrence needs of a chunk.
fn prepare<T: Number>(inputs: Inputs<T>, offsets: Option<Array<i32, 1>>, scratch: Scratch<T>, form: Form) {
    ct::with_mode(ct::FloatMode::fast(), || prepare_chunk(inputs, offsets, scratch, form));
}

fn prepare_chunk<T: Number>(
    (q, k, v, gates, rates): Inputs<T>,
    offsets: Option<Array<i32, 1>>,
    (w, u, queries, ends, scores, decays): Scratch<T>,
    form: Form,
) {
    let Form { keys, values, parts, group, chunks, negated, .. } = form;
    let [at, head, sequence] = [0, 1, 2].map(ct::bid);
    let sequence = Sequence::new(sequence, offsets);
    if offsets.is_some() {
        ct::return_if(at.ge(sequence.chunks(k, chunks)));
    }
    let (zero, slot) = (ct::scalar(0), sequence.slot(at, chunks));
    let own = [at, head / group as i32, zero];
    let (rounded_q, rounded_k) = (sequence.load(q, own, keys), sequence.load(k, own, keys));
    let (q, k) = (rounded_q.cast::<f32>(), rounded_k.cast::<f32>());
    let rates = sequence.load(rates, [at, head, zero], 1);
    let sums = sequence.load(gates, [at, head, zero], keys).cumsum(0);
    let last = sums.extract((STEPS - 1, 0), [1, keys]);

    let (shape, place) = ([1, 1, STEPS, keys], (slot, head, 0, 0));
    queries.store(place, (q * sums.exp()).cast::<T>().reshape(shape));
    ends.store(place, (k * (last - sums).exp()).cast::<T>().reshape(shape));
    decays.store((slot, head, 0), last.exp().reshape([1, 1, keys]));
    let [of_queries, of_keys] = match form.levels {
        true => products_by_levels(rounded_q, rounded_k, sums),
        false => products::<T>(q, k, sums),
    };
    scores.store(place, of_queries.cast::<T>().reshape([1, 1, STEPS, STEPS]));

    let [rows, columns] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    let one = rows.eq(columns).cast::<f32>();
    let triangle = of_keys * rates + one;
    let inverse = triangle.inverse_unit_lower().cast::<T>();
    let scaled = (k * (rates * sums.exp())).cast::<T>();
    let result = ct::mma(inverse, scaled, ct::zeros::<f32, 2>([STEPS, keys]));
    let result = if negated { -result } else { result }.cast::<T>();
    w.store(place, result.reshape(shape));
    for part in 0..parts as i32 {
        let v = sequence.load(v, [at, head, ct::scalar(part)], values);
        let scaled = (v.cast::<f32>() * rates).cast::<T>();
        let result = ct::mma(inverse, scaled, ct::zeros::<f32, 2>([STEPS, values])).cast::<T>();
        u.store((slot, head, 0, part), result.reshape([1, 1, STEPS, values]));
    }
}

/// The scratch arrays, to be read.
type Prepared<T> = (Array<T, 4>, Array<T, 4>, Array<T, 4>, Array<T, 4>, Array<T, 4>, Array<f32, 3>);

/// The recurrence over the chunks, of a part of the values of a head.
fn recurrence<T: Number>(
    (w, u, queries, ends, scores, decays): Prepared<T>,
    like: Tokens<T>,
    offsets: Option<Array<i32, 1>>,
    (before, last): (Option<Array<f32, 4>>, Option<ArrayMut<f32, 4>>),
    out: TokensMut<T>,
    scale: Scalar<f32>,
    form: Form,
) {
    let Form { keys, values, chunks, negated, .. } = form;
    let [part, head, sequence] = [0, 1, 2].map(ct::bid);
    let place = [sequence, head, part];
    let sequence = Sequence::new(sequence, offsets);
    let start = initial(before, place, [keys, values]);
    let state = ct::fold(..sequence.chunks(like, chunks), start, |state: Tile<f32, 2>, at| {
        let slot = sequence.slot(at, chunks);
        let load = |array: Array<T, 4>, width: usize, part: Scalar<i32>| {
            array.load((slot, head, 0, part), [1, 1, STEPS, width]).reshape([STEPS, width])
        };
        let zero = ct::scalar(0);
        let (w, q, k) = (load(w, keys, zero), load(queries, keys, zero), load(ends, keys, zero));
        let (u, scores) = (load(u, values, part), load(scores, STEPS, zero));
        let decay = decays.load((slot, head, 0), [1, 1, keys]).reshape([keys, 1]);
        let zeros = ct::zeros::<f32, 2>([STEPS, values]);
        let rounded = state.cast::<T>();
        let new =
            if negated { ct::mma(w, rounded, u.cast::<f32>()) } else { u.cast::<f32>() - ct::mma(w, rounded, zeros) };
        let new = new.cast::<T>();
        let result = ct::mma(scores, new, ct::mma(q, rounded, zeros));
        sequence.store(out, [at, head, part], (result * scale).cast::<T>());
        ct::mma(k.transpose(), new, state * decay)
    });
    store_last(last, place, state);
}

impl KimiDelta {
    /// Queues the results (batch, tokens, heads, value channels) of whole sequences, by chunks of
    /// 64 steps. Gates are (batch, tokens, heads, key channels), and not positive.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::recurrent::{DeltaInputs, KimiDelta, States};
    ///
    /// let device = ct::Device::cpu();
    /// let (k, v) = (device.full([1, 3, 1, 1], 1.0f32)?, device.array(&[2.0f32, 4.0, 6.0], [1, 3, 1, 1])?);
    /// let (gates, rates) = (device.zeros([1, 3, 1, 1])?, device.full([1, 3, 1], 0.5)?);
    /// let mut out = device.zeros([1, 3, 1, 1])?;
    /// let (k, v, gates, rates) = (k.view(), v.view(), gates.view(), rates.view());
    /// let inputs = DeltaInputs { q: k, k, v, gates, rates };
    /// let rule = KimiDelta { scale: 1.0 };
    /// rule.chunks(&device.default_stream(), inputs, None, States::default(), out.view_mut())?;
    /// assert_eq!(out.to_vec()?, [1.0, 2.5, 4.25]); // each step halves the distance to the value
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit, or if there are more than 256 key channels;
    /// those of the launches.
    #[track_caller]
    pub fn chunks<T: Number>(
        &self,
        stream: &Stream,
        inputs: DeltaInputs<T, 4>,
        packing: Option<Packing>,
        states: States,
        out: DeviceViewMut<T, 4>,
    ) -> ct::Result<()> {
        let name = "KimiDelta::chunks";
        let [batch, count, heads, keys, values] = inputs.check(name, out.shape())?;
        let wanted = [batch, count, heads, keys];
        require(inputs.gates.shape() == wanted, || {
            format!("{name}: gates are of shape {:?}, not {wanted:?}", inputs.gates.shape())
        })?;
        let Extents { sequences, chunks, slots } = Extents::new(name, [batch, count], packing)?;
        states.check(name, [sequences, heads, keys, values])?;
        if heads * values * sequences == 0 {
            return Ok(());
        }
        let whole = widest(values);
        let group = heads / inputs.k.shape()[2];
        let form = Form {
            keys: keys.next_power_of_two().max(16),
            values: whole,
            parts: values.div_ceil(whole),
            group,
            chunks,
            negated: knob("N") == 1,
            levels: knob("L") == 1,
        };
        let zeros = |channels: usize| stream.device().zeros::<T, 4>([slots, heads, STEPS, channels]);
        let (mut w, mut u, mut scores) = (zeros(keys)?, zeros(values)?, zeros(STEPS)?);
        let (mut queries, mut ends) = (zeros(keys)?, zeros(keys)?);
        let mut decays = stream.device().zeros::<f32, 3>([slots, heads, keys])?;
        let offsets = packing.map(|packing| packing.offsets);
        let like = tokens(inputs.v, packing)?;
        if chunks > 0 {
            let rates = tokens(inputs.rates.reshape([batch, count, heads, 1])?, packing)?;
            let keys = (tokens(inputs.q, packing)?, tokens(inputs.k, packing)?);
            let arguments = (keys.0, keys.1, like, tokens(inputs.gates, packing)?, rates);
            let scratch = (&mut w, &mut u, &mut queries, &mut ends, &mut scores, &mut decays);
            // Eight warps have registers for queries, keys, gates and their products.
            let hints = knob_hints("P", ct::Hints::new().num_warps(8));
            let launch = ct::Launch::new([chunks, heads, sequences]).hints(hints).stream(stream);
            launch.run(prepare::<T>, (arguments, offsets, scratch, ct::Constant(form)))?;
        }
        let (parts, width) = match knob("D") {
            0 => parts(values, heads * sequences, num_multiprocessors(stream)),
            width => (values.div_ceil(width), width),
        };
        let form = Form { values: width, parts, ..form };
        let arguments = (&w, &u, &queries, &ends, &scores, &decays);
        let states = (states.initial, states.last);
        let out = tokens_mut(out, packing)?;
        let launch = ct::Launch::new([parts, heads, sequences]).stream(stream);
        let launch = launch.hints(knob_hints("R", ct::Hints::new()));
        launch.run(recurrence::<T>, (arguments, like, offsets, states, out, self.scale, ct::Constant(form)))
    }

    /// Queues one step of each sequence of a batch: `q` and `k` (batch, key heads, key channels),
    /// `v` and the result (batch, heads, value channels), gates (batch, heads, key channels), rates
    /// (batch, heads). The states (batch, heads, keys, values) are updated in place. Nothing is
    /// allocated.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::recurrent::KimiDelta;
    ///
    /// let device = ct::Device::cpu();
    /// let (k, v) = (device.full([1, 1, 1], 1.0f32)?, device.full([1, 1, 1], 4.0f32)?);
    /// let (gates, rates) = (device.zeros([1, 1, 1])?, device.full([1, 1], 0.5)?);
    /// let (mut state, mut out) = (device.full([1, 1, 1, 1], 2.0)?, device.zeros([1, 1, 1])?);
    /// let inputs = [k.view(), k.view(), v.view()];
    /// let rule = KimiDelta { scale: 1.0 };
    /// let stream = device.default_stream();
    /// rule.step(&stream, inputs, gates.view(), rates.view(), state.view_mut(), out.view_mut())?;
    /// assert_eq!((out.to_vec()?, state.to_vec()?), (vec![3.0], vec![3.0]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
    #[track_caller]
    pub fn step<T: Number>(
        &self,
        stream: &Stream,
        [q, k, v]: [DeviceView<T, 3>; 3],
        gates: DeviceView<f32, 3>,
        rates: DeviceView<f32, 2>,
        state: DeviceViewMut<f32, 4>,
        out: DeviceViewMut<T, 3>,
    ) -> ct::Result<()> {
        queue_step(stream, "KimiDelta::step", self.scale, Step { q, k, v, gates, rates }, state, out)
    }
}
