//! Mamba-2: state-space duality (Dao and Gu, *Transformers are SSMs*, 2024).
//!
//! A step of a head with the state S (states x channels): S ← e^(dt · a) S + dt · B xᵀ, and the
//! result is Sᵀ C + d · x. Chunks of steps are computed together: with the sums G of dt · a within
//! a chunk, the results are (C Bᵀ ∘ decays ∘ dt) X + e^G C S. The state becomes e^(last G) S +
//! (e^(last G - G) dt B)ᵀ X. The sums of all chunks are computed first.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::tokens::{
    Extents, Packing, STEPS, Sequence, States, Tokens, TokensMut, decays, initial, parts, store_last, tokens,
    tokens_mut,
};
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors, of_batch};

/// Mamba-2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mamba2 {
    /// `dt` is the softplus of the array of that name, with the bias of a head added, if there is
    /// one.
    pub softplus: bool,
}

/// Inputs of Mamba-2. Several heads may share a group of `b` and `c`.
#[derive(Clone, Copy, Debug)]
pub struct Mamba2Inputs<'a, T: Element> {
    /// (batch, tokens, heads, channels).
    pub x: DeviceView<'a, T, 4>,
    /// Lengths of steps (batch, tokens, heads).
    pub dt: DeviceView<'a, T, 3>,
    /// Bias of `dt` (heads).
    pub dt_bias: Option<DeviceView<'a, f32, 1>>,
    /// Logarithms of the decays of a unit step (heads): negative.
    pub a: DeviceView<'a, f32, 1>,
    /// (batch, tokens, groups, states).
    pub b: DeviceView<'a, T, 4>,
    /// (batch, tokens, groups, states).
    pub c: DeviceView<'a, T, 4>,
    /// Factor of `x` in the result (heads).
    pub d: Option<DeviceView<'a, f32, 1>>,
}

impl<T: Element> Mamba2Inputs<'_, T> {
    /// Checks the shapes. Returns batch, tokens, heads, channels, groups and states.
    #[track_caller]
    pub(super) fn check(&self, name: &str) -> ct::Result<[usize; 6]> {
        let Mamba2Inputs { x, dt, dt_bias, a, b, c, d } = *self;
        let ([batch, count, heads, channels], [.., groups, width]) = (x.shape(), b.shape());
        require(dt.shape() == [batch, count, heads], || {
            format!("{name}: dt is of shape {:?}, not {:?}", dt.shape(), [batch, count, heads])
        })?;
        let is_fitting = b.shape() == c.shape() && b.shape()[..2] == x.shape()[..2] && width <= 256;
        require(is_fitting && groups > 0 && heads.is_multiple_of(groups), || {
            format!("{name}: x {:?}, b {:?} and c {:?} do not fit", x.shape(), b.shape(), c.shape())
        })?;
        check_heads(name, heads, [Some(a), dt_bias, d])?;
        Ok([batch, count, heads, channels, groups, width])
    }
}

/// Constants of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    /// States, and channels of a part, in tiles.
    pub states: usize,
    pub channels: usize,
    /// Heads of a group.
    pub group: usize,
    /// The most chunks of a sequence.
    pub chunks: usize,
    pub softplus: bool,
}

/// `a`, the bias of `dt`, and `d` of all heads.
type OfHeads = (Array<f32, 1>, Option<Array<f32, 1>>, Option<Array<f32, 1>>);

/// Heads of a tile of lengths.
pub(super) const HEADS: usize = 32;

/// Lengths of the steps of a chunk of some heads, and their sums times `a`: (slot, head, step).
pub(super) fn lengths<T: Number>(
    dt: Tokens<T>,
    (a, bias): (Array<f32, 1>, Option<Array<f32, 1>>),
    offsets: Option<Array<i32, 1>>,
    (all, sums): (ArrayMut<f32, 3>, ArrayMut<f32, 3>),
    Form { chunks, softplus, .. }: Form,
) {
    let [heads, at, sequence] = [0, 1, 2].map(ct::bid);
    let sequence = Sequence::new(sequence, offsets);
    if offsets.is_some() {
        ct::return_if(at.ge(sequence.chunks(dt, chunks)));
    }
    let mut lengths = sequence.load(dt, [at, ct::scalar(0), heads], HEADS).cast::<f32>();
    if let Some(bias) = bias {
        lengths += bias.load(heads, [HEADS]);
    }
    if softplus {
        lengths = lengths.softplus();
    }
    // Steps after the last token have no length.
    let is_step = (at * STEPS as i32 + ct::indices([STEPS, 1], 0)).lt(sequence.tokens(dt));
    let lengths = is_step.select(lengths, 0.0);
    let place = (sequence.slot(at, chunks), heads, 0);
    let of_heads = |tile: Tile<f32, 2>| tile.transpose().reshape([1, HEADS, STEPS]);
    all.store(place, of_heads(lengths));
    sums.store(place, of_heads((lengths * a.load(heads, [HEADS])).cumsum(0)));
}

/// The sequence of a part of the channels of a head.
fn sequences<T: Number>(
    (x, b, c): (Tokens<T>, Tokens<T>, Tokens<T>),
    (lengths, sums): (Array<f32, 3>, Array<f32, 3>),
    d: Option<Array<f32, 1>>,
    offsets: Option<Array<i32, 1>>,
    (before, last): (Option<Array<f32, 4>>, Option<ArrayMut<f32, 4>>),
    out: TokensMut<T>,
    form: Form,
) {
    let Form { states, channels, group, chunks, .. } = form;
    let [part, head, sequence] = [0, 1, 2].map(ct::bid);
    let place = [sequence, head, part];
    let sequence = Sequence::new(sequence, offsets);
    let d = d.map(|d| d.load_scalar(head));
    let start = initial(before, place, [states, channels]);
    let state = ct::fold(..sequence.chunks(x, chunks), start, |state: Tile<f32, 2>, at| {
        let x = sequence.load(x, [at, head, part], channels);
        let of_group = [at, head / group as i32, ct::scalar(0)];
        let (b, c) = (sequence.load(b, of_group, states), sequence.load(c, of_group, states));
        let slot = sequence.slot(at, chunks);
        let lengths = lengths.load((slot, head, 0), [1, 1, STEPS]).reshape([STEPS]);
        let gates = sums.load((slot, head, 0), [1, 1, STEPS]).reshape([STEPS]);
        let whole = gates.extract(STEPS - 1, [1]).reshape([1, 1]);
        let sums = gates.unsqueeze(1);
        let products = ct::mma(c, b.transpose(), ct::zeros::<f32, 2>([STEPS, STEPS]));
        let scores = (products * decays(sums, false) * lengths.unsqueeze(0)).cast::<T>();
        let carried = ct::mma(c, state.cast::<T>(), ct::zeros::<f32, 2>([STEPS, channels])) * sums.exp();
        let mut result = ct::mma(scores, x, carried);
        let exact = x.cast::<f32>();
        if let Some(d) = d {
            result += exact * d;
        }
        sequence.store(out, [at, head, part], result.cast::<T>());
        let decayed = (exact * (lengths.unsqueeze(1) * (whole - sums).exp())).cast::<T>();
        ct::mma(b.transpose(), decayed, state * whole.exp())
    });
    store_last(last, place, state);
}

/// A step of a part of the channels of a head.
fn step<T: Number>(
    (x, dt, b, c): (Array<T, 3>, Array<T, 2>, Array<T, 3>, Array<T, 3>),
    (a, bias, d): OfHeads,
    state: ArrayMut<f32, 4>,
    out: ArrayMut<T, 3>,
    form: Form,
) {
    let Form { states, channels, group, softplus, .. } = form;
    let [part, head, batch] = [0, 1, 2].map(ct::bid);
    let x = x.load((batch, head, part), [1, 1, channels]).cast::<f32>().reshape([1, channels]);
    let of_group = |array: Array<T, 3>| {
        array.load((batch, head / group as i32, 0), [1, 1, states]).cast::<f32>().reshape([states, 1])
    };
    let mut dt = dt.load_scalar((batch, head)).cast::<f32>();
    if let Some(bias) = bias {
        dt += bias.load_scalar(head);
    }
    if softplus {
        dt = dt.softplus();
    }
    let decay = (dt * a.load_scalar(head)).exp();
    let (at, shape) = ((batch, head, 0, part), [1, 1, states, channels]);
    let after = of_group(b).fma(x * dt, state.load(at, shape).reshape([states, channels]) * decay);
    state.store(at, after.reshape(shape));
    let mut result = (after * of_group(c)).sum(0);
    if let Some(d) = d {
        result += x * d.load_scalar(head);
    }
    out.store((batch, head, part), result.cast::<T>().reshape([1, 1, channels]));
}

/// Checks arrays of heads.
#[track_caller]
fn check_heads(name: &str, heads: usize, arrays: [Option<DeviceView<f32, 1>>; 3]) -> ct::Result<()> {
    for array in arrays.into_iter().flatten() {
        let shape = array.shape();
        require(shape == [heads], || format!("{name}: an array of {shape:?} elements for {heads} heads"))?;
    }
    Ok(())
}

impl Mamba2 {
    /// Queues the results (batch, tokens, heads, channels) of whole sequences, by chunks of 64
    /// steps. States are (sequence, head, states, channels).
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::recurrent::{Mamba2, Mamba2Inputs, States};
    ///
    /// let device = ct::Device::cpu();
    /// let (x, dt) = (device.full([1, 3, 1, 1], 1.0f32)?, device.full([1, 3, 1], 1.0f32)?);
    /// let (a, mut out) = (device.array(&[-std::f32::consts::LN_2], [1])?, device.zeros([1, 3, 1, 1])?);
    /// let (x, dt, a) = (x.view(), dt.view(), a.view());
    /// let inputs = Mamba2Inputs { x, dt, dt_bias: None, a, b: x, c: x, d: None };
    /// let stream = device.default_stream();
    /// Mamba2::default().chunks(&stream, inputs, None, States::default(), out.view_mut())?;
    /// assert!(out.to_vec()?.iter().zip([1.0, 1.5, 1.75]).all(|(x, y)| (x - y).abs() < 1e-6));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit, or if there are more than 256 states; those of
    /// the launch.
    #[track_caller]
    pub fn chunks<T: Number>(
        &self,
        stream: &Stream,
        inputs: Mamba2Inputs<T>,
        packing: Option<Packing>,
        states: States,
        out: DeviceViewMut<T, 4>,
    ) -> ct::Result<()> {
        let name = "Mamba2::chunks";
        let Mamba2Inputs { x, dt, dt_bias, a, b, c, d } = inputs;
        let [batch, count, heads, channels, groups, width] = inputs.check(name)?;
        require(out.shape() == x.shape(), || {
            format!("{name}: the result is of shape {:?}, not {:?}", out.shape(), x.shape())
        })?;
        let Extents { sequences: number, chunks, slots } = Extents::new(name, [batch, count], packing)?;
        states.check(name, [number, heads, width, channels])?;
        if number * heads * channels == 0 {
            return Ok(());
        }
        let (parts, tile) = parts(channels, heads * of_batch(number, 1), num_multiprocessors(stream));
        let form = Form {
            states: width.next_power_of_two().max(16),
            channels: tile,
            group: heads / groups,
            chunks,
            softplus: self.softplus,
        };
        let (offsets, states) = (packing.map(|packing| packing.offsets), (states.initial, states.last));
        let mut all = stream.device().unspecified::<f32, 3>([slots, heads, STEPS])?;
        let mut sums = stream.device().unspecified::<f32, 3>([slots, heads, STEPS])?;
        if chunks > 0 {
            let dt = tokens(dt.reshape([batch, count, 1, heads])?, packing)?;
            let launch = ct::Launch::new([heads.div_ceil(HEADS), chunks, number]).stream(stream);
            launch.run(lengths::<T>, (dt, (a, dt_bias), offsets, (&mut all, &mut sums), ct::Constant(form)))?;
        }
        let arguments = (tokens(x, packing)?, tokens(b, packing)?, tokens(c, packing)?);
        let out = tokens_mut(out, packing)?;
        let launch = ct::Launch::new([parts, heads, number]).stream(stream);
        launch.run(sequences::<T>, (arguments, (&all, &sums), d, offsets, states, out, ct::Constant(form)))
    }

    /// Queues one step of each sequence of a batch, with tokens of one: `x` and the result (batch,
    /// heads, channels), `dt` (batch, heads), `b` and `c` (batch, groups, states). `of_heads` has
    /// `a`, the bias of `dt`, and `d`. The states (batch, heads, states, channels) are updated in
    /// place. Nothing is allocated.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::recurrent::Mamba2;
    ///
    /// let device = ct::Device::cpu();
    /// let (x, dt) = (device.full([1, 1, 1], 3.0f32)?, device.full([1, 1], 1.0f32)?);
    /// let (a, one) = (device.array(&[0.0f32], [1])?, device.full([1, 1, 1], 1.0f32)?);
    /// let (mut state, mut out) = (device.full([1, 1, 1, 1], 2.0)?, device.zeros([1, 1, 1])?);
    /// let inputs = (x.view(), dt.view(), one.view(), one.view());
    /// let of_heads = (a.view(), None, None);
    /// let stream = device.default_stream();
    /// Mamba2::default().step(&stream, inputs, of_heads, state.view_mut(), out.view_mut())?;
    /// assert_eq!((out.to_vec()?, state.to_vec()?), (vec![5.0], vec![5.0]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
    #[track_caller]
    pub fn step<T: Number>(
        &self,
        stream: &Stream,
        (x, dt, b, c): (DeviceView<T, 3>, DeviceView<T, 2>, DeviceView<T, 3>, DeviceView<T, 3>),
        (a, dt_bias, d): (DeviceView<f32, 1>, Option<DeviceView<f32, 1>>, Option<DeviceView<f32, 1>>),
        state: DeviceViewMut<f32, 4>,
        out: DeviceViewMut<T, 3>,
    ) -> ct::Result<()> {
        let name = "Mamba2::step";
        let ([batch, heads, channels], [_, groups, width]) = (x.shape(), b.shape());
        let is_fitting = b.shape() == c.shape() && b.shape()[0] == batch && dt.shape() == [batch, heads];
        require(is_fitting && groups > 0 && heads.is_multiple_of(groups) && width <= 256, || {
            format!("{name}: x {:?}, dt {:?}, b {:?}, c {:?} do not fit", x.shape(), dt.shape(), b.shape(), c.shape())
        })?;
        check_heads(name, heads, [Some(a), dt_bias, d])?;
        require(state.shape() == [batch, heads, width, channels], || {
            format!("{name}: states are of shape {:?}, not {:?}", state.shape(), [batch, heads, width, channels])
        })?;
        require(out.shape() == x.shape(), || {
            format!("{name}: the result is of shape {:?}, not {:?}", out.shape(), x.shape())
        })?;
        if out.is_empty() {
            return Ok(());
        }
        let tile = channels.next_power_of_two().min(64);
        let (states, group) = (width.next_power_of_two(), heads / groups);
        let form = Form { states, channels: tile, group, chunks: 1, softplus: self.softplus };
        let arguments = ((x, dt, b, c), (a, dt_bias, d), state, out, ct::Constant(form));
        ct::Launch::new([channels.div_ceil(tile), heads, batch]).stream(stream).run(step::<T>, arguments)
    }
}
