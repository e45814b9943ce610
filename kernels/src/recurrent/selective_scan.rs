//! Selective scan of Mamba (Gu and Dao, 2023).
//!
//! A step of a channel with its states h: h ← e^(dt · a) h + dt · x · b, and the result is Σ h c +
//! d · x, times silu(z) if there is a gate. Tiles of steps, channels and states are scanned along
//! the steps, with the state before the tile carried.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// The selective scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SelectiveScan {
    /// `dt` is the softplus of the array of that name, with the bias of a channel added, if there
    /// is one.
    pub softplus: bool,
}

/// Arrays of the selective scan. Those of tokens have rank 3: (batch, tokens, channels) or (batch,
/// tokens, states). A step has one token.
#[derive(Clone, Copy, Debug)]
pub struct SelectiveInputs<'a, T: Element> {
    /// (batch, tokens, channels).
    pub x: DeviceView<'a, T, 3>,
    /// Lengths of steps (batch, tokens, channels).
    pub dt: DeviceView<'a, T, 3>,
    /// Bias of `dt` (channels).
    pub dt_bias: Option<DeviceView<'a, f32, 1>>,
    /// Logarithms of the decays of a unit step (channels, states): negative.
    pub a: DeviceView<'a, f32, 2>,
    /// (batch, tokens, states).
    pub b: DeviceView<'a, T, 3>,
    /// (batch, tokens, states).
    pub c: DeviceView<'a, T, 3>,
    /// Factor of `x` in the result (channels).
    pub d: Option<DeviceView<'a, f32, 1>>,
    /// Gate of the result (batch, tokens, channels).
    pub z: Option<DeviceView<'a, T, 3>>,
}

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Steps, channels and states of a tile.
    steps: usize,
    channels: usize,
    states: usize,
    softplus: bool,
    /// The states after the last token replace those before the first.
    is_in_place: bool,
}

/// `x`, `dt` and `z`: (batch, tokens, channels); `b` and `c`: (batch, tokens, states).
type OfTokens<T> = (Array<T, 3>, Array<T, 3>, Option<Array<T, 3>>, Array<T, 3>, Array<T, 3>);
/// `a`, the bias of `dt`, and `d`.
type OfChannels = (Array<f32, 2>, Option<Array<f32, 1>>, Option<Array<f32, 1>>);

/// The sequence of some channels.
fn scan<T: Number>(
    tokens: OfTokens<T>,
    of_channels: OfChannels,
    states: (Option<Array<f32, 3>>, Option<ArrayMut<f32, 3>>),
    out: ArrayMut<T, 3>,
    form: Form,
) {
    let mode = ct::FloatMode::new().contract().flush_to_zero();
    ct::with_mode(mode, || scan_of_channels(tokens, of_channels, states, out, form));
}

fn scan_of_channels<T: Number>(
    (x, dt, z, b, c): OfTokens<T>,
    (a, bias, d): OfChannels,
    (before, last): (Option<Array<f32, 3>>, Option<ArrayMut<f32, 3>>),
    out: ArrayMut<T, 3>,
    form: Form,
) {
    let promise = ct::require_rowwise(0).constant(a);
    let _ = [bias, d].into_iter().flatten().fold(promise, |promise, array| promise.constant(array));
    let Form { steps, channels, states, softplus, is_in_place } = form;
    let (block, batch) = (ct::bid(0), ct::bid(1));
    let rate = a.load((block, 0), [channels, states]) * std::f32::consts::LOG2_E;
    let of_channel = |array: Array<f32, 1>| array.load(block, [channels]).reshape([1, channels, 1]);
    let (bias, d) = (bias.map(of_channel), d.map(of_channel));
    let count = x.extent(1);
    let place = (batch, block, 0);
    let shape = [1, channels, states];
    let start = match (before, last) {
        (Some(before), _) => before.load(place, shape),
        (None, Some(last)) if is_in_place => last.load(place, shape),
        _ => ct::zeros(shape),
    };
    let state = ct::fold(..x.num_tiles(1, [1, steps, channels]), start, |state: Tile<f32, 3>, i| {
        let of_channel = |from: Array<T, 3>| {
            from.load((batch, i, block), [1, steps, channels]).cast::<f32>().reshape([steps, channels, 1])
        };
        let of_state =
            |from: Array<T, 3>| from.load((batch, i, 0), [1, steps, states]).cast::<f32>().reshape([steps, 1, states]);
        let (x, mut dt, b, c) = (of_channel(x), of_channel(dt), of_state(b), of_state(c));
        if let Some(bias) = bias {
            dt += bias;
        }
        if softplus {
            dt = dt.softplus();
        }
        // Steps after the last token have no length.
        let is_step = (i * steps as i32 + ct::indices([steps, 1, 1], 0)).lt(count);
        let dt = is_step.select(dt, 0.0);
        let decay = (dt * rate.unsqueeze(0)).exp2();
        let input = dt * x * b;
        let (all, state) = if steps == 1 {
            let state = state * decay + input;
            (state, state)
        } else {
            // The state is a part of the first input: the scan has no factor of its own.
            let first = |tile: Tile<f32, 3>| tile.extract((0, 0, 0), shape);
            let input = input.insert((0, 0, 0), first(decay).fma(state, first(input)));
            let (_, all) = ct::scan((decay, input), 0, (1.0, 0.0), |(a1, b1), (a2, b2)| (a1 * a2, a2 * b1 + b2));
            (all, all.extract([steps - 1, 0, 0], [1, channels, states]))
        };
        let mut result = (all * c).sum(2);
        if let Some(d) = d {
            result += x * d;
        }
        if let Some(z) = z {
            result *= of_channel(z).silu();
        }
        out.store((batch, i, block), result.cast::<T>().reshape([1, steps, channels]));
        state
    });
    if let Some(last) = last {
        last.store(place, state);
    }
}

impl SelectiveScan {
    /// Queues the results (batch, tokens, channels) of whole sequences. States (batch, channels,
    /// states) are before the first and after the last token: zeros, and not stored, by default.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::recurrent::{SelectiveInputs, SelectiveScan};
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.full([1, 3, 1], 1.0f32)?;
    /// let (a, mut out) = (device.array(&[-std::f32::consts::LN_2], [1, 1])?, device.zeros([1, 3, 1])?);
    /// let (x, a) = (x.view(), a.view());
    /// let inputs = SelectiveInputs { x, dt: x, dt_bias: None, a, b: x, c: x, d: None, z: None };
    /// SelectiveScan::default().tokens(&device.default_stream(), inputs, (None, None), out.view_mut())?;
    /// assert!(out.to_vec()?.iter().zip([1.0, 1.5, 1.75]).all(|(x, y)| (x - y).abs() < 1e-6));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit, or if there are more than 256 states; those of
    /// the launch.
    #[track_caller]
    pub fn tokens<T: Number>(
        &self,
        stream: &Stream,
        inputs: SelectiveInputs<T>,
        (initial, last): (Option<DeviceView<f32, 3>>, Option<DeviceViewMut<f32, 3>>),
        out: DeviceViewMut<T, 3>,
    ) -> ct::Result<()> {
        self.queue(stream, "SelectiveScan::tokens", inputs, (initial, last, false), out)
    }

    /// Queues one step of each sequence of a batch, with inputs of one token. The states (batch,
    /// channels, states) are updated in place. Nothing is allocated.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::recurrent::{SelectiveInputs, SelectiveScan};
    ///
    /// let device = ct::Device::cpu();
    /// let (x, a) = (device.full([1, 1, 1], 1.0f32)?, device.zeros([1, 1])?);
    /// let (mut state, mut out) = (device.full([1, 1, 1], 2.0)?, device.zeros([1, 1, 1])?);
    /// let (x, a) = (x.view(), a.view());
    /// let inputs = SelectiveInputs { x, dt: x, dt_bias: None, a, b: x, c: x, d: None, z: None };
    /// SelectiveScan::default().step(&device.default_stream(), inputs, state.view_mut(), out.view_mut())?;
    /// assert_eq!((out.to_vec()?, state.to_vec()?), (vec![3.0], vec![3.0]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit or if there are several tokens, and those of
    /// the launch.
    #[track_caller]
    pub fn step<T: Number>(
        &self,
        stream: &Stream,
        inputs: SelectiveInputs<T>,
        state: DeviceViewMut<f32, 3>,
        out: DeviceViewMut<T, 3>,
    ) -> ct::Result<()> {
        let name = "SelectiveScan::step";
        let tokens = inputs.x.shape()[1];
        require(tokens == 1, || format!("{name}: {tokens} tokens are not one step"))?;
        self.queue(stream, name, inputs, (None, Some(state), true), out)
    }

    #[track_caller]
    fn queue<T: Number>(
        &self,
        stream: &Stream,
        name: &str,
        inputs: SelectiveInputs<T>,
        (initial, last, is_in_place): (Option<DeviceView<f32, 3>>, Option<DeviceViewMut<f32, 3>>, bool),
        out: DeviceViewMut<T, 3>,
    ) -> ct::Result<()> {
        let SelectiveInputs { x, dt, dt_bias, a, b, c, d, z } = inputs;
        let ([batch, count, channels], [_, states]) = (x.shape(), a.shape());
        let is_like = |shape: [usize; 3]| shape == x.shape();
        require(is_like(dt.shape()) && is_like(out.shape()) && z.is_none_or(|z| is_like(z.shape())), || {
            format!("{name}: x {:?}, dt {:?}, gate and result {:?} differ", x.shape(), dt.shape(), out.shape())
        })?;
        let wanted = [batch, count, states];
        require(a.shape()[0] == channels && b.shape() == wanted && c.shape() == wanted && states <= 256, || {
            format!("{name}: x {:?}, a {:?}, b {:?}, c {:?} do not fit", x.shape(), a.shape(), b.shape(), c.shape())
        })?;
        for array in [dt_bias, d].into_iter().flatten() {
            require(array.shape() == [channels], || {
                format!("{name}: an array of {:?} elements for {channels} channels", array.shape())
            })?;
        }
        let shapes = [initial.as_ref().map(|x| x.shape()), last.as_ref().map(|x| x.shape())];
        for shape in shapes.into_iter().flatten() {
            let wanted = [batch, channels, states];
            require(shape == wanted, || format!("{name}: states are of shape {shape:?}, not {wanted:?}"))?;
        }
        if batch * channels == 0 {
            return Ok(());
        }
        // 16 steps of 32 channels of 16 states: the fastest tile on an H100.
        let tile = states.next_power_of_two();
        let form = Form {
            steps: count.next_power_of_two().min(16),
            channels: channels.next_power_of_two().min((512 / tile).max(4)),
            states: tile,
            softplus: self.softplus,
            is_in_place,
        };
        let tokens = (x, dt, z, b, c);
        let arguments = (tokens, (a, dt_bias, d), (initial, last), out, ct::Constant(form));
        let launch = ct::Launch::new([channels.div_ceil(form.channels), batch]).stream(stream);
        // Two warps, which the cost model selects for whole tiles, take 6 % longer on an H100.
        let is_whole = form.steps * form.channels * form.states == 8192;
        let launch = if is_whole { launch.hints(ct::Hints::new().num_warps(4)) } else { launch };
        launch.run(scan::<T>, arguments)
    }
}
