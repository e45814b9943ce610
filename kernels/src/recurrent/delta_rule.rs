//! Gated delta rule (Yang, Kautz and Hatamizadeh, *Gated Delta Networks*, 2024).
//!
//! A step of a head with the state S (keys x values): S ← e^g S, then S ← S + k (β (v - Sᵀ k))ᵀ,
//! and the result is scale · Sᵀ q. Chunks of steps are computed together by the WY representation:
//!
//! 1. For each chunk, on its own: T = (1 + tril(β K Kᵀ ∘ decays))⁻¹, the keys W = T (β e^G K) and
//!    the values U = T (β V), where G has the sums of g within the chunk.
//! 2. Chunk after chunk: new values V' = U - W S, results (Q Kᵀ ∘ decays) V' + e^G Q S, and the
//!    state e^(last G) S + (e^(last G - G) K)ᵀ V'.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::delta_gradients::{DeltaGradients, queue_gradients};
use super::delta_inputs::DeltaInputs;
use super::tokens::{
    Extents, Packing, STEPS, Sequence, States, Tokens, TokensMut, decays, initial, parts, store_last, tokens,
    tokens_mut, widest,
};
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors, of_batch};

/// The gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatedDeltaRule {
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
}

/// Scratch arrays: keys W and values U (slot, head, step, channel), and sums of gates (slot, head,
/// step).
type Prepared<T> = (ArrayMut<T, 4>, ArrayMut<T, 4>, ArrayMut<f32, 3>);

/// The keys W and the values U of a chunk.
fn prepare<T: Number>(
    (k, v, gates, rates): (Tokens<T>, Tokens<T>, Tokens<f32>, Tokens<f32>),
    offsets: Option<Array<i32, 1>>,
    (w, u, sums): Prepared<T>,
    form: Form,
) {
    let Form { keys, values, parts, group, chunks } = form;
    let [at, head, sequence] = [0, 1, 2].map(ct::bid);
    let sequence = Sequence::new(sequence, offsets);
    if offsets.is_some() {
        ct::return_if(at.ge(sequence.chunks(k, chunks)));
    }
    let (zero, slot) = (ct::scalar(0), sequence.slot(at, chunks));
    let k = sequence.load(k, [at, head / group as i32, zero], keys);
    let rates = sequence.load(rates, [at, head, zero], 1);
    let gates = sequence.load(gates, [at, head, zero], 1).cumsum(0);
    sums.store((slot, head, 0), gates.reshape([1, 1, STEPS]));

    let [rows, columns] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    let products = ct::mma(k, k.transpose(), ct::zeros::<f32, 2>([STEPS, STEPS]));
    let triangle = products * decays(gates, true) * rates + rows.eq(columns).cast::<f32>();
    let inverse = triangle.inverse_unit_lower().cast::<T>();
    let scaled = (k.cast::<f32>() * (rates * gates.exp())).cast::<T>();
    let result = ct::mma(inverse, scaled, ct::zeros::<f32, 2>([STEPS, keys])).cast::<T>();
    w.store((slot, head, 0, 0), result.reshape([1, 1, STEPS, keys]));
    for part in 0..parts as i32 {
        let v = sequence.load(v, [at, head, ct::scalar(part)], values);
        let scaled = (v.cast::<f32>() * rates).cast::<T>();
        let result = ct::mma(inverse, scaled, ct::zeros::<f32, 2>([STEPS, values])).cast::<T>();
        u.store((slot, head, 0, part), result.reshape([1, 1, STEPS, values]));
    }
}

/// Queries, keys, and the scratch arrays W, U and sums of gates.
type Chunks<T> = (Tokens<T>, Tokens<T>, Array<T, 4>, Array<T, 4>, Array<f32, 3>);

/// The recurrence over the chunks, of a part of the values of a head.
fn recurrence<T: Number>(
    (q, k, w, u, sums): Chunks<T>,
    offsets: Option<Array<i32, 1>>,
    (before, last): (Option<Array<f32, 4>>, Option<ArrayMut<f32, 4>>),
    out: TokensMut<T>,
    scale: Scalar<f32>,
    form: Form,
) {
    let Form { keys, values, group, chunks, .. } = form;
    let [part, head, sequence] = [0, 1, 2].map(ct::bid);
    let place = [sequence, head, part];
    let sequence = Sequence::new(sequence, offsets);
    let start = initial(before, place, [keys, values]);
    let state = ct::fold(..sequence.chunks(q, chunks), start, |state: Tile<f32, 2>, at| {
        let own = [at, head / group as i32, ct::scalar(0)];
        let (q, k) = (sequence.load(q, own, keys), sequence.load(k, own, keys));
        let slot = sequence.slot(at, chunks);
        let w = w.load((slot, head, 0, 0), [1, 1, STEPS, keys]).reshape([STEPS, keys]);
        let u = u.load((slot, head, 0, part), [1, 1, STEPS, values]).reshape([STEPS, values]);
        let gates = sums.load((slot, head, 0), [1, 1, STEPS]).reshape([STEPS]);
        let whole = gates.extract(STEPS - 1, [1]).reshape([1, 1]);
        let gate = gates.unsqueeze(1);
        let zeros = ct::zeros::<f32, 2>([STEPS, values]);
        let rounded = state.cast::<T>();
        let new = u.cast::<f32>() - ct::mma(w, rounded, zeros);
        let scores = ct::mma(q, k.transpose(), ct::zeros::<f32, 2>([STEPS, STEPS])) * decays(gate, false);
        let result = ct::mma(scores.cast::<T>(), new.cast::<T>(), ct::mma(q, rounded, zeros) * gate.exp());
        sequence.store(out, [at, head, part], (result * scale).cast::<T>());
        let decayed = (new * (whole - gate).exp()).cast::<T>();
        ct::mma(k.transpose(), decayed, state * whole.exp())
    });
    store_last(last, place, state);
}

/// A step of a part of the values of a head.
fn step<T: Number>(
    (q, k, v): (Array<T, 3>, Array<T, 3>, Array<T, 3>),
    (gates, rates): (Array<f32, 3>, Array<f32, 2>),
    state: ArrayMut<f32, 4>,
    out: ArrayMut<T, 3>,
    scale: Scalar<f32>,
    form: Form,
    is_gated_by_key: bool,
) {
    let Form { keys, values, group, .. } = form;
    let [part, head, batch] = [0, 1, 2].map(ct::bid);
    let key = |array: Array<T, 3>| array.load((batch, head / group as i32, 0), [1, 1, keys]).cast::<f32>();
    let (q, k) = (key(q).reshape([keys, 1]), key(k).reshape([keys, 1]));
    let v = v.load((batch, head, part), [1, 1, values]).cast::<f32>().reshape([1, values]);
    // One gate of a head, or one for each key channel.
    let width = if is_gated_by_key { keys } else { 1 };
    let gates = gates.load((batch, head, 0), [1, 1, width]).reshape([width, 1]);
    let rate = rates.load_scalar((batch, head));
    let (at, shape) = ((batch, head, 0, part), [1, 1, keys, values]);
    let decayed = state.load(at, shape).reshape([keys, values]) * gates.exp();
    let new = (v - (decayed * k).sum(0)) * rate;
    let after = k.fma(new, decayed);
    state.store(at, after.reshape(shape));
    out.store((batch, head, part), ((after * q).sum(0) * scale).cast::<T>().reshape([1, 1, values]));
}

/// Inputs of a step for a batch.
pub(super) struct Step<'a, T: Element> {
    pub q: DeviceView<'a, T, 3>,
    pub k: DeviceView<'a, T, 3>,
    pub v: DeviceView<'a, T, 3>,
    /// (batch, heads, 1 or key channels).
    pub gates: DeviceView<'a, f32, 3>,
    pub rates: DeviceView<'a, f32, 2>,
}

/// Queues a step.
#[track_caller]
pub(super) fn queue_step<T: Number>(
    stream: &Stream,
    name: &str,
    scale: f32,
    inputs: Step<T>,
    state: DeviceViewMut<f32, 4>,
    out: DeviceViewMut<T, 3>,
) -> ct::Result<()> {
    let Step { q, k, v, gates, rates } = inputs;
    let ([batch, key_heads, keys], [_, heads, values]) = (q.shape(), v.shape());
    let is_gated_by_key = gates.shape()[2] != 1 || keys == 1;
    require(k.shape() == q.shape() && v.shape()[0] == batch, || {
        format!("{name}: queries {:?}, keys {:?} and values {:?} do not fit", q.shape(), k.shape(), v.shape())
    })?;
    require(key_heads > 0 && heads.is_multiple_of(key_heads) && keys <= 256, || {
        format!("{name}: values {:?} do not fit the keys {:?}", v.shape(), k.shape())
    })?;
    let width = if is_gated_by_key { keys } else { 1 };
    require(gates.shape() == [batch, heads, width] && rates.shape() == [batch, heads], || {
        format!("{name}: gates {:?} and rates {:?} do not fit {batch} x {heads} heads", gates.shape(), rates.shape())
    })?;
    require(state.shape() == [batch, heads, keys, values], || {
        format!("{name}: states are of shape {:?}, not {:?}", state.shape(), [batch, heads, keys, values])
    })?;
    require(out.shape() == v.shape(), || {
        format!("{name}: the result is of shape {:?}, not {:?}", out.shape(), v.shape())
    })?;
    if out.is_empty() {
        return Ok(());
    }
    // Parts of 64 values: the least time by the cost model, of 16 to 128.
    let tile = values.next_power_of_two().min(64);
    let group = heads / key_heads;
    let form = Form { keys: keys.next_power_of_two(), values: tile, parts: 1, group, chunks: 1 };
    let arguments = ((q, k, v), (gates, rates), state, out, scale, ct::Constant(form), ct::Constant(is_gated_by_key));
    // A thread has 64 numbers of the state: with more warps, fewer loads are in flight.
    let launch = ct::Launch::new([values.div_ceil(tile), heads, batch]).hints(ct::Hints::new().num_warps(4));
    launch.stream(stream).run(step::<T>, arguments)
}

impl GatedDeltaRule {
    /// Queues the results (batch, tokens, heads, value channels) of whole sequences, by chunks of
    /// 64 steps.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::recurrent::{DeltaInputs, GatedDeltaRule, States};
    ///
    /// let device = ct::Device::cpu();
    /// let (k, v) = (device.full([1, 3, 1, 1], 1.0f32)?, device.array(&[2.0f32, 4.0, 6.0], [1, 3, 1, 1])?);
    /// let (gates, rates) = (device.zeros([1, 3, 1])?, device.full([1, 3, 1], 0.5)?);
    /// let mut out = device.zeros([1, 3, 1, 1])?;
    /// let (k, v, gates, rates) = (k.view(), v.view(), gates.view(), rates.view());
    /// let inputs = DeltaInputs { q: k, k, v, gates, rates };
    /// let rule = GatedDeltaRule { scale: 1.0 };
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
        inputs: DeltaInputs<T, 3>,
        packing: Option<Packing>,
        states: States,
        out: DeviceViewMut<T, 4>,
    ) -> ct::Result<()> {
        let name = "GatedDeltaRule::chunks";
        let [batch, count, heads, keys, values] = inputs.check(name, out.shape())?;
        let extents = Extents::new(name, [batch, count], packing)?;
        let Extents { sequences, chunks, slots } = extents;
        states.check(name, [sequences, heads, keys, values])?;
        if heads * values * sequences == 0 {
            return Ok(());
        }
        let tile = keys.next_power_of_two().max(16);
        let whole = widest(values);
        let group = heads / inputs.k.shape()[2];
        let form = Form { keys: tile, values: whole, parts: values.div_ceil(whole), group, chunks };
        let device = stream.device();
        let mut w = device.unspecified::<T, 4>([slots, heads, STEPS, keys])?;
        let mut u = device.unspecified::<T, 4>([slots, heads, STEPS, values])?;
        let mut sums = device.unspecified::<f32, 3>([slots, heads, STEPS])?;
        let offsets = packing.map(|packing| packing.offsets);
        let column = [batch, count, heads, 1];
        if chunks > 0 {
            let gates = tokens(inputs.gates.reshape(column)?, packing)?;
            let rates = tokens(inputs.rates.reshape(column)?, packing)?;
            let arguments = (tokens(inputs.k, packing)?, tokens(inputs.v, packing)?, gates, rates);
            let scratch = (&mut w, &mut u, &mut sums);
            let launch = ct::Launch::new([chunks, heads, sequences]).stream(stream);
            // The buffers of two tile blocks fit on a multiprocessor.
            let launch = launch.hints(ct::Hints::new().num_warps(4).occupancy(2));
            launch.run(prepare::<T>, (arguments, offsets, scratch, ct::Constant(form)))?;
        }
        let (parts, width) = parts(values, heads * of_batch(sequences, 1), num_multiprocessors(stream));
        let form = Form { values: width, parts, ..form };
        let arguments = (tokens(inputs.q, packing)?, tokens(inputs.k, packing)?, &w, &u, &sums);
        let states = (states.initial, states.last);
        let out = tokens_mut(out, packing)?;
        let launch = ct::Launch::new([parts, heads, sequences]).stream(stream);
        launch.run(recurrence::<T>, (arguments, offsets, states, out, self.scale, ct::Constant(form)))
    }

    /// Queues the gradients of the inputs of [`Self::chunks`]. `behind` has the gradients of the
    /// results, and of the states after the last token: zeros by default. `initial` has the states
    /// before the first token.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::recurrent::{DeltaGradients, DeltaInputs, GatedDeltaRule};
    ///
    /// let device = ct::Device::cpu();
    /// let (k, v) = (device.full([1, 2, 1, 1], 1.0f32)?, device.full([1, 2, 1, 1], 4.0f32)?);
    /// let (gates, rates) = (device.zeros([1, 2, 1])?, device.full([1, 2, 1], 0.5)?);
    /// let (k, v, gates, rates) = (k.view(), v.view(), gates.view(), rates.view());
    /// let inputs = DeltaInputs { q: k, k, v, gates, rates };
    /// let [mut dq, mut dk, mut dv] = std::array::from_fn(|_| device.zeros([1, 2, 1, 1]).unwrap());
    /// let (mut dgates, mut drates) = (device.zeros([1, 2, 1])?, device.zeros([1, 2, 1])?);
    /// let gradients = DeltaGradients {
    ///     q: dq.view_mut(),
    ///     k: dk.view_mut(),
    ///     v: dv.view_mut(),
    ///     gates: dgates.view_mut(),
    ///     rates: drates.view_mut(),
    ///     initial: None,
    /// };
    /// let rule = GatedDeltaRule { scale: 1.0 };
    /// rule.gradients(&device.default_stream(), inputs, (k, None), None, None, gradients)?;
    /// assert_eq!(dv.to_vec()?, [0.75, 0.5]); // the second step halves the first value
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Self::chunks`].
    #[track_caller]
    pub fn gradients<T: Number>(
        &self,
        stream: &Stream,
        inputs: DeltaInputs<T, 3>,
        behind: (DeviceView<T, 4>, Option<DeviceView<f32, 4>>),
        packing: Option<Packing>,
        initial: Option<DeviceView<f32, 4>>,
        gradients: DeltaGradients<T, 3>,
    ) -> ct::Result<()> {
        let name = "GatedDeltaRule::gradients";
        queue_gradients(stream, name, self.scale, inputs, behind, (packing, initial), gradients)
    }

    /// Queues one step of each sequence of a batch: `q` and `k` (batch, key heads, key channels),
    /// `v` and the result (batch, heads, value channels), gates and rates (batch, heads). The
    /// states (batch, heads, keys, values) are updated in place. Nothing is allocated.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::recurrent::GatedDeltaRule;
    ///
    /// let device = ct::Device::cpu();
    /// let (k, v) = (device.full([1, 1, 1], 1.0f32)?, device.full([1, 1, 1], 4.0f32)?);
    /// let (gates, rates) = (device.zeros([1, 1])?, device.full([1, 1], 0.5)?);
    /// let (mut state, mut out) = (device.full([1, 1, 1, 1], 2.0)?, device.zeros([1, 1, 1])?);
    /// let inputs = [k.view(), k.view(), v.view()];
    /// let rule = GatedDeltaRule { scale: 1.0 };
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
        gates: DeviceView<f32, 2>,
        rates: DeviceView<f32, 2>,
        state: DeviceViewMut<f32, 4>,
        out: DeviceViewMut<T, 3>,
    ) -> ct::Result<()> {
        let [batch, heads] = gates.shape();
        let gates = gates.reshape([batch, heads, 1])?;
        queue_step(stream, "GatedDeltaRule::step", self.scale, Step { q, k, v, gates, rates }, state, out)
    }
}
