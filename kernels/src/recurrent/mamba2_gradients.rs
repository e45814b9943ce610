//! Gradients of Mamba-2.
//!
//! The states S before each chunk are computed again. The gradients H of the states after each
//! chunk are computed backward: H ← e^(last G) H + (e^G C)ᵀ dY, with the sums G of dt · a in a
//! chunk. Then all chunks are independent:
//!
//! * dX' = (C Bᵀ ∘ decays)ᵀ dY + e^(last G - G) B H, and the gradient of X is dt dX' + d dY
//! * M = dY Xᵀ ∘ decays ∘ dt; that of C is M B + e^G dY Sᵀ, and that of B is
//!   Mᵀ C + dt e^(last G - G) X Hᵀ. The products with B and C follow the sum of M over heads.
//! * Result i has e^(G_i) as a factor, and input j e^(-G_j): the gradient of G_i is C_i · dC_i -
//!   dt_i X_i · dX'_i, where C_i · dC_i is the sum of row i of M ∘ C Bᵀ and of e^G dY ∘ C S. The
//!   last one also has the product of H and of the state after the chunk. The sums of these from
//!   the end on are the gradients of dt · a.
//!
//! Gradients of `b` and `c` have the sum over the heads of a group, by atomic additions in any
//! order.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, ScanOptions, Stream};

use super::mamba2::{Form, HEADS, Mamba2, Mamba2Inputs, lengths};
use super::tokens::{
    Extents, Packing, STEPS, Sequence, Tokens, TokensMut, decays, initial, tokens, tokens_mut, widest,
};
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Gradients of the inputs of Mamba-2, of their shapes.
#[derive(Debug)]
pub struct Mamba2Gradients<'a, T: Element> {
    /// Gradient of `x`.
    pub x: DeviceViewMut<'a, T, 4>,
    /// Gradient of `dt`, before the softplus. Its sum over batch and tokens is that of the bias.
    pub dt: DeviceViewMut<'a, f32, 3>,
    /// Gradient of `a`.
    pub a: DeviceViewMut<'a, f32, 1>,
    /// Gradient of `b`.
    pub b: DeviceViewMut<'a, f32, 4>,
    /// Gradient of `c`.
    pub c: DeviceViewMut<'a, f32, 4>,
    /// Gradient of `d`.
    pub d: DeviceViewMut<'a, f32, 1>,
}

/// Stores the states before each chunk: (slot, head, state, channel).
fn states<T: Number>(
    (x, b): (Tokens<T>, Tokens<T>),
    (lengths, sums): (Array<f32, 3>, Array<f32, 3>),
    offsets: Option<Array<i32, 1>>,
    before: Option<Array<f32, 4>>,
    starts: ArrayMut<T, 4>,
    form: Form,
) {
    let Form { states, channels, group, chunks, .. } = form;
    let [head, sequence] = [0, 1].map(ct::bid);
    let zero = ct::scalar(0);
    let start = initial(before, [sequence, head, zero], [states, channels]);
    let sequence = Sequence::new(sequence, offsets);
    ct::fold(..sequence.chunks(x, chunks), start, |state: Tile<f32, 2>, at| {
        let slot = sequence.slot(at, chunks);
        starts.store((slot, head, 0, 0), state.cast::<T>().reshape([1, 1, states, channels]));
        let x = sequence.load(x, [at, head, zero], channels);
        let b = sequence.load(b, [at, head / group as i32, zero], states);
        let lengths = lengths.load((slot, head, 0), [1, 1, STEPS]).reshape([STEPS, 1]);
        let sums = sums.load((slot, head, 0), [1, 1, STEPS]).reshape([STEPS, 1]);
        let whole = sums.extract((STEPS - 1, 0), [1, 1]);
        let decayed = (x.cast::<f32>() * (lengths * (whole - sums).exp())).cast::<T>();
        ct::mma(b.transpose(), decayed, state * whole.exp())
    });
}

/// Stores the gradients of the states after each chunk: (slot, head, state, channel).
fn state_gradients<T: Number>(
    (dy, c): (Tokens<T>, Tokens<T>),
    sums: Array<f32, 3>,
    offsets: Option<Array<i32, 1>>,
    ends: ArrayMut<T, 4>,
    form: Form,
) {
    let Form { states, channels, group, chunks, .. } = form;
    let [head, sequence] = [0, 1].map(ct::bid);
    let zero = ct::scalar(0);
    let sequence = Sequence::new(sequence, offsets);
    let count = sequence.chunks(dy, chunks);
    ct::fold(..count, ct::zeros([states, channels]), |behind: Tile<f32, 2>, i| {
        let at = count - 1 - i;
        let slot = sequence.slot(at, chunks);
        ends.store((slot, head, 0, 0), behind.cast::<T>().reshape([1, 1, states, channels]));
        let dy = sequence.load(dy, [at, head, zero], channels);
        let c = sequence.load(c, [at, head / group as i32, zero], states);
        let sums = sums.load((slot, head, 0), [1, 1, STEPS]).reshape([STEPS, 1]);
        let whole = sums.extract((STEPS - 1, 0), [1, 1]);
        let decayed = (dy.cast::<f32>() * sums.exp()).cast::<T>();
        ct::mma(c.transpose(), decayed, behind * whole.exp())
    });
}

/// Results of [`backward`]: gradients of `x`, `dt`, `b` and `c`.
type Results<T> = (TokensMut<T>, TokensMut<f32>, TokensMut<f32>, TokensMut<f32>);

/// States before, and gradients of the states after each chunk.
type OfStates<T> = (Array<T, 4>, Array<T, 4>);

/// Tokens, lengths and their sums, states, and `a` and `d`.
type Inputs<T> = ([Tokens<T>; 4], (Array<f32, 3>, Array<f32, 3>), OfStates<T>, (Array<f32, 1>, Option<Array<f32, 1>>));

/// A chunk of `count` heads of a group.
fn backward<T: Number>(
    ([x, dy, b, c], (lengths, sums), (starts, ends), (a, d)): Inputs<T>,
    offsets: Option<Array<i32, 1>>,
    (dx, ddt, db, dc): Results<T>,
    of_heads: ArrayMut<f32, 3>,
    form: Form,
    count: usize,
) {
    let Form { states, channels, group, chunks, softplus } = form;
    let [heads, at, sequence] = [0, 1, 2].map(ct::bid);
    let (zero, first) = (ct::scalar(0), heads * count as i32);
    let sequence = Sequence::new(sequence, offsets);
    if offsets.is_some() {
        ct::return_if(at.ge(sequence.chunks(x, chunks)));
    }
    let (slot, of_group) = (sequence.slot(at, chunks), [at, first / group as i32, zero]);
    let (b, c) = (sequence.load(b, of_group, states), sequence.load(c, of_group, states));
    let square = ct::zeros::<f32, 2>([STEPS, STEPS]);
    let wide = ct::zeros::<f32, 2>([STEPS, states]);
    let products = ct::mma(c, b.transpose(), square);
    type Sums = (Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>);
    let start = (wide, wide, square);
    let (sum_b, sum_c, weights) =
        ct::fold(..ct::scalar(count as i32), start, |(sum_b, sum_c, sum_weights): Sums, i| {
            let head = first + i;
            let (x, dy) = (sequence.load(x, [at, head, zero], channels), sequence.load(dy, [at, head, zero], channels));
            let of_state = |array: Array<T, 4>| {
                array.load((slot, head, 0, 0), [1, 1, states, channels]).reshape([states, channels])
            };
            let (before, behind) = (of_state(starts), of_state(ends));
            let row = lengths.load((slot, head, 0), [1, 1, STEPS]).reshape([STEPS]);
            let sums = sums.load((slot, head, 0), [1, 1, STEPS]).reshape([STEPS, 1]);
            let lengths = row.unsqueeze(1);
            let whole = sums.extract((STEPS - 1, 0), [1, 1]);
            let (head_decay, tail) = (sums.exp(), (whole - sums).exp());
            let decays = decays(sums, false);
            let (exact_x, exact_dy) = (x.cast::<f32>(), dy.cast::<f32>());

            // One product after another, so that registers have few of them at a time.
            let weights = ct::mma(dy, x.transpose(), square) * decays * row.unsqueeze(0);
            let of_row = (weights * products).sum(1);
            let sum_weights = sum_weights + weights;
            let from_behind = ct::mma(b, behind, ct::zeros::<f32, 2>([STEPS, channels])) * tail;
            let of_last = ((from_behind * exact_x).sum(1) * lengths).sum(0);
            let inner = ct::mma((products * decays).cast::<T>().transpose(), dy, from_behind);
            let direct = (inner * exact_x).sum(1);
            let mut of_x = inner * lengths;
            if let Some(d) = d {
                of_x += exact_dy * d.load_scalar(head);
            }
            sequence.store(dx, [at, head, zero], of_x.cast::<T>());

            let decayed = (exact_x * (lengths * tail)).cast::<T>();
            let sum_b = ct::mma(decayed, behind.transpose(), sum_b);
            let decayed_dy = (exact_dy * head_decay).cast::<T>();
            let of_before = ct::mma(c, before, ct::zeros::<f32, 2>([STEPS, channels]));
            let of_row = of_row + (of_before * decayed_dy.cast::<f32>()).sum(1);
            let sum_c = ct::mma(decayed_dy, before.transpose(), sum_c);

            let carried = (behind.cast::<f32>() * before.cast::<f32>()).sum([0, 1]) * whole.exp();
            let of_sums = of_row - direct * lengths;
            let of_gates = of_sums.cumsum_with(0, ScanOptions::new().reverse()) + (carried + of_last);
            let mut of_dt = direct + of_gates * a.load_scalar(head);
            if softplus {
                // The derivative of the softplus is 1 - e^-softplus.
                of_dt *= 1.0 - (-lengths).exp();
            }
            sequence.store(ddt, [at, head, zero], of_dt);
            of_heads.store((0, slot, head), (of_gates * lengths).sum(0).reshape([1, 1, 1]));
            of_heads.store((1, slot, head), (exact_dy * exact_x).sum([0, 1]).reshape([1, 1, 1]));
            (sum_b, sum_c, sum_weights)
        });
    let weights = weights.cast::<T>();
    sequence.add(db, of_group, ct::mma(weights.transpose(), c, sum_b));
    sequence.add(dc, of_group, ct::mma(weights, b, sum_c));
}

/// Chunks of a tile of [`add`].
const SLOTS: usize = 64;

/// Adds the gradients of all chunks of some heads, always in one order: those of `a`, or of `d`.
fn add(of_heads: Array<f32, 3>, da: ArrayMut<f32, 1>, dd: ArrayMut<f32, 1>) {
    let (heads, which) = (ct::bid(0), ct::bid(1));
    let tile = [1, SLOTS, HEADS];
    let sums = ct::fold(..of_heads.num_tiles(1, tile), ct::zeros::<f32, 3>(tile), |sums, slots| {
        sums + of_heads.load((which, slots, heads), tile)
    });
    let sum = sums.sum(1).reshape([HEADS]);
    ct::if_else(which.eq(0), || da.store(heads, sum), || dd.store(heads, sum));
}

/// Writes zeros to the tokens of a group.
fn clear(y: ArrayMut<f32, 4>, states: usize) {
    y.store((ct::bid(2), ct::bid(0), ct::bid(1), 0), ct::zeros([1, STEPS, 1, states]));
}

impl Mamba2 {
    /// Queues the gradients of the inputs of [`Self::chunks`] from `dy` of the shape of the result.
    /// `initial` has the states before the first token. Channels are at most 128.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::recurrent::{Mamba2, Mamba2Gradients, Mamba2Inputs};
    ///
    /// let device = ct::Device::cpu();
    /// let (x, dt) = (device.full([1, 2, 1, 1], 3.0f32)?, device.full([1, 2, 1], 1.0f32)?);
    /// let (a, one) = (device.zeros::<f32, 1>([1])?, device.full([1, 2, 1, 1], 1.0f32)?);
    /// let (x, dt, a, one) = (x.view(), dt.view(), a.view(), one.view());
    /// let inputs = Mamba2Inputs { x, dt, dt_bias: None, a, b: one, c: one, d: None };
    /// let (mut dx, mut ddt) = (device.zeros([1, 2, 1, 1])?, device.zeros([1, 2, 1])?);
    /// let (mut db, mut dc) = (device.zeros([1, 2, 1, 1])?, device.zeros([1, 2, 1, 1])?);
    /// let (mut da, mut dd) = (device.zeros([1])?, device.zeros([1])?);
    /// let gradients = Mamba2Gradients {
    ///     x: dx.view_mut(),
    ///     dt: ddt.view_mut(),
    ///     a: da.view_mut(),
    ///     b: db.view_mut(),
    ///     c: dc.view_mut(),
    ///     d: dd.view_mut(),
    /// };
    /// Mamba2::default().gradients(&device.default_stream(), inputs, one, None, None, gradients)?;
    /// assert_eq!(dx.to_vec()?, [2.0, 1.0]); // the first input is in both results
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit, or if there are more than 256 states or 128
    /// channels; those of the launches.
    #[track_caller]
    pub fn gradients<T: Number>(
        &self,
        stream: &Stream,
        inputs: Mamba2Inputs<T>,
        dy: DeviceView<T, 4>,
        packing: Option<Packing>,
        initial: Option<DeviceView<f32, 4>>,
        gradients: Mamba2Gradients<T>,
    ) -> ct::Result<()> {
        let name = "Mamba2::gradients";
        let Mamba2Inputs { x, dt, dt_bias, a, b, c, d } = inputs;
        let [batch, count, heads, channels, groups, width] = inputs.check(name)?;
        let Mamba2Gradients { x: dx, dt: ddt, a: da, b: mut db, c: mut dc, d: dd } = gradients;
        require(dy.shape() == x.shape() && dx.shape() == x.shape() && ddt.shape() == dt.shape(), || {
            format!("{name}: gradients {:?}, {:?}, {:?} do not fit", dy.shape(), dx.shape(), ddt.shape())
        })?;
        require(db.shape() == b.shape() && dc.shape() == c.shape(), || {
            format!("{name}: gradients {:?} and {:?} do not fit {:?}", db.shape(), dc.shape(), b.shape())
        })?;
        require(da.shape() == [heads] && dd.shape() == [heads], || {
            format!("{name}: gradients {:?} and {:?} for {heads} heads", da.shape(), dd.shape())
        })?;
        require(channels <= 128, || format!("{name}: {channels} channels, and 128 is the largest number"))?;
        let Extents { sequences, chunks, slots } = Extents::new(name, [batch, count], packing)?;
        if let Some(initial) = &initial {
            let wanted = [sequences, heads, width, channels];
            require(initial.shape() == wanted, || {
                format!("{name}: states are of shape {:?}, not {wanted:?}", initial.shape())
            })?;
        }
        if heads == 0 {
            return Ok(());
        }
        let form = Form {
            states: width.next_power_of_two().max(16),
            channels: widest(channels),
            group: heads / groups,
            chunks,
            softplus: self.softplus,
        };
        let device = stream.device();
        let offsets = packing.map(|packing| packing.offsets);
        let mut of_heads = device.zeros::<f32, 3>([2, slots, heads])?;
        if count * channels * sequences * chunks > 0 {
            let mut all = device.unspecified::<f32, 3>([slots, heads, STEPS])?;
            let mut sums = device.unspecified::<f32, 3>([slots, heads, STEPS])?;
            let mut starts = device.unspecified::<T, 4>([slots, heads, width, channels])?;
            let mut ends = device.unspecified::<T, 4>([slots, heads, width, channels])?;
            let by_heads = tokens(dt.reshape([batch, count, 1, heads])?, packing)?;
            let launch = ct::Launch::new([heads.div_ceil(HEADS), chunks, sequences]).stream(stream);
            launch.run(lengths::<T>, (by_heads, (a, dt_bias), offsets, (&mut all, &mut sums), ct::Constant(form)))?;
            for gradient in [&mut db, &mut dc] {
                let launch = ct::Launch::new([count.div_ceil(STEPS), groups, batch]).stream(stream);
                launch.run(clear, (gradient.reborrow(), ct::Constant(form.states)))?;
            }
            let (x, dy) = (tokens(x, packing)?, tokens(dy, packing)?);
            let (b, c) = (tokens(b, packing)?, tokens(c, packing)?);
            // One tile block of four warps alone does not fill a multiprocessor.
            let two = ct::Hints::new().occupancy(2);
            let launch = ct::Launch::new([heads, sequences]).stream(stream);
            let launch = launch.hints(two);
            launch.run(states::<T>, ((x, b), (&all, &sums), offsets, initial, &mut starts, ct::Constant(form)))?;
            let launch = ct::Launch::new([heads, sequences]).stream(stream);
            let launch = launch.hints(two);
            launch.run(state_gradients::<T>, ((dy, c), &sums, offsets, &mut ends, ct::Constant(form)))?;
            let ddt = tokens_mut(ddt.reshape([batch, count, heads, 1])?, packing)?;
            let results = (tokens_mut(dx, packing)?, ddt, tokens_mut(db, packing)?, tokens_mut(dc, packing)?);
            let inputs = ([x, dy, b, c], (&all, &sums), (&starts, &ends), (a, d));
            // Heads of a tile block: their gradients of `b` and `c` have one addition.
            let own = (1..=8).rev().find(|own| form.group.is_multiple_of(*own)).unwrap_or(1);
            let hints = ct::Hints::new().num_warps(8);
            let launch = ct::Launch::new([heads / own, chunks, sequences]).hints(hints).stream(stream);
            let arguments = (inputs, offsets, results, &mut of_heads, ct::Constant(form), ct::Constant(own));
            launch.run(backward::<T>, arguments)?;
        }
        ct::Launch::new([heads.div_ceil(HEADS), 2]).stream(stream).run(add, (&of_heads, da, dd))
    }
}
