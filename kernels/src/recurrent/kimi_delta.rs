//! Kimi delta attention (KDA; *Kimi Linear*, 2025): the delta rule with a decay for each key
//! channel.
//!
//! A step of a head with the state S (keys x values): S ← diag(e^g) S, then S ← S + k (β (v - Sᵀ
//! k))ᵀ, and the result is scale · Sᵀ q. Chunks of 64 steps are computed together as in
//! [`super::GatedDeltaRule`]. Each chunk is prepared on its own; then the recurrence over chunks
//! has products of matrices alone.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::delta_chunks::{Chunks, Form, prepare};
use super::delta_gradients::{DeltaGradients, queue_gradients};
use super::delta_inputs::DeltaInputs;
use super::delta_rule::{Step, queue_step};
use super::tokens::{
    Extents, Packing, STEPS, Sequence, States, Tokens, TokensMut, initial, parts, store_last, tokens, tokens_mut,
    widest,
};
use crate::Number;
use crate::launch::{Run, num_multiprocessors, of_batch};

/// Kimi delta attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KimiDelta {
    /// Factor of the results; 1 / √(key channels) as a rule.
    pub scale: f32,
}

/// Keys W, values U, decayed queries and keys, and scores; decays.
type Prepared<T> = ([Array<T, 4>; 5], Array<f32, 3>);

/// The recurrence over the chunks, of a part of the values of a head.
fn recurrence<T: Number>(
    ([w, u, queries, ends, scores], decays): Prepared<T>,
    like: Tokens<T>,
    offsets: Option<Array<i32, 1>>,
    (before, last): (Option<Array<f32, 4>>, Option<ArrayMut<f32, 4>>),
    out: TokensMut<T>,
    scale: Scalar<f32>,
    form: Form,
) {
    let Form { keys, values, chunks, .. } = form;
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
        let rounded = state.cast::<T>();
        let new = ct::mma(w, rounded, u.cast::<f32>()).cast::<T>();
        let result = ct::mma(scores, new, ct::mma(q, rounded, ct::zeros::<f32, 2>([STEPS, values])));
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
        let Extents { sequences, chunks, slots } = Extents::new(name, [batch, count], packing)?;
        states.check(name, [sequences, heads, keys, values])?;
        if heads * values * sequences == 0 {
            return Ok(());
        }
        let whole = widest(values).min(64);
        let form = Form {
            keys: keys.next_power_of_two().max(16),
            // The registers of a thread hold tiles of 32 channels.
            width: keys.next_power_of_two().clamp(16, 32),
            by_channel: true,
            values: whole,
            parts: values.div_ceil(whole),
            group: heads / inputs.k.shape()[2],
            chunks,
        };
        let mut scratch = Chunks::<T>::new(stream, [slots, heads], [keys, values, keys], false)?;
        let offsets = packing.map(|packing| packing.offsets);
        let like = tokens(inputs.v, packing)?;
        if chunks > 0 {
            let rates = tokens(inputs.rates.reshape([batch, count, heads, 1])?, packing)?;
            let keys = (tokens(inputs.q, packing)?, tokens(inputs.k, packing)?);
            let arguments = (keys.0, keys.1, like, tokens(inputs.gates, packing)?, rates);
            // Threads of four warps have the same steps and channels in all tiles: 1410 us for 4 x
            // 4096 tokens of 32 heads of 128 channels on an H100, 2026 us with eight warps and
            // products of all pairs of steps.
            let hints = ct::Hints::new().num_warps(4).occupancy(3);
            let launch = ct::Launch::new([chunks, heads, sequences]).hints(hints).stream(stream);
            launch.run(prepare::<T>, (arguments, offsets, scratch.arguments(), ct::Constant(form)))?;
        }
        let (parts, width) = parts(values, heads * of_batch(sequences, 1), num_multiprocessors(stream));
        let form = Form { values: width, parts, ..form };
        let Chunks { w, u, queries, ends, scores, decays, .. } = &scratch;
        let arguments = ([w, u, queries, ends, scores], decays);
        let states = (states.initial, states.last);
        let out = tokens_mut(out, packing)?;
        let launch = ct::Launch::new([parts, heads, sequences]).stream(stream);
        launch.run(recurrence::<T>, (arguments, like, offsets, states, out, self.scale, ct::Constant(form)))
    }

    /// Queues the gradients of the inputs of [`Self::chunks`]: [`GatedDeltaRule::gradients`]. Gates
    /// and their gradients have a fourth axis, of key channels.
    ///
    /// [`GatedDeltaRule::gradients`]: super::GatedDeltaRule::gradients
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::recurrent::{DeltaGradients, DeltaInputs, KimiDelta};
    ///
    /// let device = ct::Device::cpu();
    /// let (k, v) = (device.full([1, 2, 1, 1], 1.0f32)?, device.full([1, 2, 1, 1], 4.0f32)?);
    /// let (gates, rates) = (device.zeros([1, 2, 1, 1])?, device.full([1, 2, 1], 0.5)?);
    /// let (k, v, gates, rates) = (k.view(), v.view(), gates.view(), rates.view());
    /// let inputs = DeltaInputs { q: k, k, v, gates, rates };
    /// let [mut dq, mut dk, mut dv, mut dgates] = std::array::from_fn(|_| device.zeros([1, 2, 1, 1]).unwrap());
    /// let mut drates = device.zeros([1, 2, 1])?;
    /// let gradients = DeltaGradients {
    ///     q: dq.view_mut(),
    ///     k: dk.view_mut(),
    ///     v: dv.view_mut(),
    ///     gates: dgates.view_mut(),
    ///     rates: drates.view_mut(),
    ///     initial: None,
    /// };
    /// let rule = KimiDelta { scale: 1.0 };
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
        inputs: DeltaInputs<T, 4>,
        behind: (DeviceView<T, 4>, Option<DeviceView<f32, 4>>),
        packing: Option<Packing>,
        initial: Option<DeviceView<f32, 4>>,
        gradients: DeltaGradients<T, 4>,
    ) -> ct::Result<()> {
        queue_gradients(stream, "KimiDelta::gradients", self.scale, inputs, behind, (packing, initial), gradients)
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
